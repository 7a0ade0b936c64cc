"""What a line says of its own answer: settings by the names they have here, in llama.cpp's server and at OpenAI."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from localspec.errors import UsageError
from localspec.options import Option, Values, check_values
from localspec.options.origin import Level, Origin
from localspec.options.suggest import did_you_mean
from localspec.options.tables.groups import SAMPLING

#: Beside all that is about sampling. Whatever else there is belongs to the engine, which is the same for all lines.
_SETTABLE = (
    *("n_predict", "stop", "system", "chat_template_kwargs", "reasoning"),
    *("spec", "draft_n_max", "draft_n_min", "draft_p_min", "tree_nodes", "tree_width", "spec_accept"),
)
#: A line's settings come from the line; files are named on the command line only.
_NOT_SETTABLE = ("grammar_file", "json_schema_file")
#: Checked whichever of them a line names.
_TOGETHER = ("draft_n_max", "draft_n_min")
#: Names that are not those of our flags.
_ALSO = {
    "temperature": "temp",
    "max_tokens": "n_predict",
    "max_completion_tokens": "n_predict",
    "typical_p": "typical",
    "top_n_sigma": "top_nsigma",
    "mirostat_tau": "mirostat_ent",
    "mirostat_eta": "mirostat_lr",
    "dry_sequence_breakers": "dry_sequence_breaker",
    "repetition_penalty": "repeat_penalty",
    "speculative": "spec",
}
#: What ``speculative`` may hold besides a mode.
_OF_SPECULATION = ("draft_n_max", "draft_n_min", "draft_p_min", "tree_nodes", "tree_width", "spec_accept")


class Overrides:
    """Lays what a line says over the values of the command line.

    Args:
        options: of the command.
        values: of the command line; `tree_nodes` is what the engine was loaded with.
    """

    def __init__(self, options: Iterable[Option], values: Values) -> None:
        self._options = {one.name: one for one in options}
        self._values = values
        mine = [one for one in self._options.values() if one.group == SAMPLING or one.name in _SETTABLE]
        self._names = {_plain(spelling): one for one in mine for spelling in (one.word, one.name)}
        self._names.update((also, self._options[name]) for also, name in _ALSO.items() if name in self._options)
        for name in _NOT_SETTABLE:
            self._names.pop(name, None)

    def over(self, given: Mapping[str, Any], line: int) -> Values:
        """The values of one line. ``null`` says nothing.

        Raises:
            UsageError: an unknown name, or a value that makes no sense.
        """
        values = dict(self._values)
        origins: dict[str, Origin] = {}
        for key, value in _flat(given).items():
            if value is None:
                continue
            option = self._find(key)
            origin = Origin(Level.USER_FILE, f"line {line}", key)
            read = option.read(_as_option(option, value), origin)
            if option.name in origins and values[option.name] != read:
                raise UsageError(
                    f"a line has {origins[option.name].key} and {key}, which are the same and differ",
                    hint="Leave one of them out.",
                )
            values[option.name], origins[option.name] = read, origin
            self._silence(option.name, values)
        together = {**origins, **dict.fromkeys(_TOGETHER)}
        check_values(tuple(self._options[name] for name in together), values, origins)
        self._check_nodes(values)
        return values

    def _find(self, key: str) -> Option:
        option = self._names.get(_plain(key))
        if option is None:
            hint = f"{did_you_mean(_plain(key), self._names)}Notes of your own go into metadata."
            raise UsageError(f"a line has no setting {key!r}", hint=hint)
        return option

    def _silence(self, name: str, values: dict[str, Any]) -> None:
        """A line's grammar or schema stands in place of that of the command line."""
        grammars = ("grammar", "grammar_file", "json_schema", "json_schema_file")
        if name in grammars:
            values.update((other, None) for other in grammars if other != name)

    def _check_nodes(self, values: Values) -> None:
        most = self._values["tree_nodes"]
        if values["tree_nodes"] > most:
            raise UsageError(
                f"tree_nodes {values['tree_nodes']} is more than the engine was loaded for ({most})",
                hint="Raise --spec-tree-nodes on the command line.",
            )


def _plain(name: str) -> str:
    return name.replace("-", "_")


def _flat(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with ``speculative: {…}`` and ``response_format`` taken apart."""
    flat: dict[str, Any] = {}
    for key, value in given.items():
        if key in ("speculative", "spec") and isinstance(value, dict):
            wrong = next((name for name in value if name not in (*_OF_SPECULATION, "mode")), None)
            if wrong is not None:
                known = ", ".join(("mode", *_OF_SPECULATION))
                raise UsageError(f"{key} has no setting {wrong!r}", hint=f"There are {known}.")
            flat.update(("spec" if name == "mode" else name, item) for name, item in value.items())
        elif key == "response_format":
            flat["json_schema"] = _schema(value)
        else:
            flat[key] = value
    return flat


def _schema(wanted: Any) -> Any:
    """The JSON schema that ``response_format`` asks for; ``None`` for plain text."""
    kind = wanted.get("type") if isinstance(wanted, dict) else None
    if wanted is None or kind == "text":
        return None
    if kind == "json_object":
        return {}
    held = wanted.get("json_schema") if kind == "json_schema" else None
    if isinstance(held, dict) and isinstance(held.get("schema"), dict):
        return held["schema"]
    raise UsageError(
        "response_format cannot be read",
        hint="Its type is text, json_object, or json_schema with a json_schema.schema.",
    )


def _as_option(option: Option, value: Any) -> Any:
    """JSON's ways to say what the option takes as text."""
    if option.name in ("json_schema", "chat_template_kwargs") and isinstance(value, dict):
        return json.dumps(value)
    if option.name == "logit_bias" and isinstance(value, dict):
        return [
            f"{token}{bias:+}" if isinstance(bias, int | float) else f"{token}+{bias}" for token, bias in value.items()
        ]
    return value


def _bias(token: str, bias: Any) -> str:
    """As ``--logit-bias`` takes it, where what is no number is refused."""
    return f"{token}{bias:+}" if isinstance(bias, int | float) else f"{token} {bias}"
