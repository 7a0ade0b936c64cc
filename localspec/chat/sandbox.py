"""The Jinja environment chat templates run in. Imports Jinja: load it only where a template is rendered.

What transformers offers to templates is there (``raise_exception``, ``strftime_now``, ``tojson``, loop
controls, ``generation``), inside Jinja's immutable sandbox and `localspec.chat.limits`. A few filters that no
chat template needs and that make much out of little are left out; so are methods that lead to bytes.
"""

# The one module of the project that may import Jinja on top: it is itself imported only where one renders.
# ruff: noqa: TID253

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache, wraps
from types import BuiltinMethodType, CodeType, MethodType
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.chat.limits import (
    OUTPUT_BYTES,
    Meter,
    TemplateLimit,
    format_size,
    joined_size,
    method_size,
    operator_size,
    percent_size,
    text_size,
)

#: Jinja's code objects carry this file name when a template has no file of its own.
_CODE = "<template>"
_NO_METHODS = frozenset({"encode", "to_bytes", "format_map", "translate", "maketrans"})
_NO_FILTERS = frozenset(
    {"batch", "pprint", "random", "round", "slice", "striptags", "sum", "urlize", "wordwrap", "xmlattr"}
)


class Refused(jinja2.TemplateError):
    """The template called ``raise_exception``: it does not take these messages."""


class _Generator(CodeGenerator):
    """Routes what makes new values past the meter, and computes nothing while compiling."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._made(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self._made(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx == "load":
            self._made(super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat(map(str, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")

    def _made(self, visit: Callable[[Any, Frame], None], node: nodes.Expr, frame: Frame) -> None:
        self.write("environment.meter.made(")
        visit(node, frame)
        self.write(")")


class _Generation(Extension):
    """``{% generation %}…{% endgeneration %}`` marks what a model is trained on; for a prompt it means nothing."""

    tags = {"generation"}  # noqa: RUF012  (declared so by Jinja)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Sandbox(ImmutableSandboxedEnvironment):
    """One rendering's environment; all it makes is paid from ``meter``."""

    code_generator_class = _Generator
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
            optimized=False,  # the optimizer would compute constants while compiling, unwatched
        )
        self.meter = Meter(_CODE)
        self.globals.pop("lipsum")
        self.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
        for name in _NO_FILTERS:
            del self.filters[name]
        self.filters.update(tojson=self._tojson, join=self._join, format=self._percent, indent=self._indent)
        self.filters.update({name: self._paid(name, function) for name, function in self.filters.items()})

    def render(self, code: CodeType, values: Mapping[str, Any]) -> str:
        """Runs compiled code with ``values`` as variables.

        Raises:
            TemplateLimit: it used up time or memory, or wrote too much.
            Exception: whatever the template ran into.
        """
        template = jinja2.Template.from_code(self, code, self.make_globals(None))
        parts, size = [], 0
        with self.meter.watch():
            for part in template.generate(values):
                size += text_size(part)
                if size > OUTPUT_BYTES:
                    raise TemplateLimit(f"writes more than {OUTPUT_BYTES >> 20} MB")
                parts.append(part)
        return "".join(parts)

    def concat(self, parts: Iterable[str]) -> str:
        """Joins what a block, a macro or ``~`` has collected."""
        texts = list(parts)
        self.meter.spend(joined_size("", texts))
        return "".join(texts)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _NO_METHODS and super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        # Jinja puts this off to the value's first use, and printing is none.
        raise SecurityError(f"access to {attribute!r} of a {type(obj).__name__} is not allowed")

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None or value.__name__ in _NO_METHODS:
            return None
        template = value.__self__

        def paid(*args: Any, **kwargs: Any) -> str:
            self.meter.spend(format_size(template, self.meter.written_size((args, kwargs))))
            return wrapped(*args, **kwargs)

        return paid

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            self.meter.spend(percent_size(left, self.meter.written_size(right)))
        else:
            self.meter.spend(operator_size(operator, left, right))
        result = super().call_binop(context, operator, left, right)
        self.meter.written_size(result)
        return result

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(__obj, BuiltinMethodType | MethodType) and isinstance(__obj.__self__, str):
            if __obj.__name__ == "join" and len(args) == 1:
                args = (list(args[0]),)
            __self.meter.spend(method_size(__obj.__self__, __obj.__name__, [*args, *kwargs.values()]))
        return __self.meter.made(super().call(__context, __obj, *args, **kwargs))

    def _paid(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that pays for what it returns, and beforehand where it is known to grow its text."""

        @wraps(function)
        def paid(*args: Any, **kwargs: Any) -> Any:
            if name == "center":
                self.meter.spend(method_size("", name, [*args[1:], *kwargs.values()]))
            elif name == "replace":
                texts = [str(text) for text in (*args[1:], *kwargs.values())]
                self.meter.spend(method_size(texts[0], name, texts[1:]))
            return self.meter.made(function(*args, **kwargs))

        return paid

    def _join(self, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
        get = make_attrgetter(self, attribute) if attribute is not None else lambda item: item
        texts = [str(get(item)) for item in value]
        self.meter.spend(joined_size(str(d), texts))
        return str(d).join(texts)

    def _percent(self, value: Any, *args: Any, **kwargs: Any) -> str:
        self.meter.spend(percent_size(str(value), self.meter.written_size(kwargs or args)))
        return str(value) % (kwargs or args)

    def _indent(self, value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        text = str(value)
        unit = text_size(width) if isinstance(width, str) else width
        self.meter.spend(text_size(text) + (text.count("\n") + 1) * max(unit, 0))
        margin = width if isinstance(width, str) else " " * width
        head, *rest = text.split("\n")
        tail = (margin + line if line or blank else line for line in rest)
        return "\n".join([(margin if first else "") + head, *tail])

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Plain JSON. Jinja's own filter escapes for HTML, which models were not trained on."""
        encoder = json.JSONEncoder(
            ensure_ascii=ensure_ascii, indent=_small(indent), separators=separators, sort_keys=sort_keys
        )
        parts = []
        for part in encoder.iterencode(value):
            self.meter.spend(text_size(part))
            parts.append(part)
        return self.concat(parts)


@lru_cache(maxsize=8)
def compile_template(source: str) -> CodeType:
    """Raises `jinja2.TemplateSyntaxError`, or `RecursionError` for absurdly nested sources."""
    return Sandbox().compile(source)


def variables_of(source: str) -> frozenset[str]:
    """The variables a template looks up in what it is given; none if it is broken."""
    try:
        return frozenset(meta.find_undeclared_variables(Sandbox().parse(source)))
    except (jinja2.TemplateError, RecursionError):
        return frozenset()


def _raise_exception(message: object) -> NoReturn:
    raise Refused(str(message))


def _strftime_now(pattern: str) -> str:
    # C libraries take field widths: "%999999999d" would be a gigabyte.
    if len(pattern) > 100 or re.search(r"\d{3}", pattern):
        raise TemplateLimit("asks for a date in an absurd format")
    return datetime.now().strftime(pattern)


def _small(indent: int | None) -> int | None:
    if indent is not None and indent > 64:
        raise TemplateLimit("indents JSON by more than 64")
    return indent
