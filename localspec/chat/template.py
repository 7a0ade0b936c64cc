"""Chat templates: from messages to the text, and the tokens, a model was trained on.

The template is a Jinja program from the model's file. It runs in `localspec.chat.sandbox`. A model without
one has no format of its own: callers decide whether to refuse or to take one of `localspec.chat.builtin`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any

from localspec.chat.builtin import CHATML
from localspec.chat.literal import Marker, control_names, unused_characters
from localspec.chat.repair import Repair, repaired
from localspec.errors import ModelError
from localspec.types import Message
from localspec.vocab import Vocab

_HINT = "Choose another chat template, for example --chat-template chatml."
#: What no template changes: one plain word.
_PROBE = "lookout"
_MARK = re.compile(r"<[^<>\s]{1,60}>|\[[^\[\]\s]{1,60}\]")


@dataclass(frozen=True)
class Rendered:
    """A conversation as text, and what had to be changed for the template to take it."""

    text: str
    repairs: tuple[Repair, ...] = ()


@dataclass(frozen=True)
class ChatTemplate:
    """A Jinja chat template. ``origin`` is the file or name it came from, for messages to the user."""

    source: str
    origin: str

    def render(
        self,
        messages: Sequence[Message],
        *,
        bos: str,
        eos: str,
        answer: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> Rendered:
        """The conversation as one string.

        Where the template refuses the messages, or takes the system message and does not show it, they are
        changed as `localspec.chat.repair` says. Where the last message is an answer, the text ends with it, to
        be gone on with.

        Args:
            bos: text of the token that opens a text, for templates that write it.
            eos: text of the token that ends a turn, for templates that write it.
            answer: end with what opens an answer; without, the last turn is closed and that is all.
            variables: more variables (``tools``, ``enable_thinking``, …).

        Raises:
            ModelError: the template is broken, refuses the messages, or goes over a limit.
        """
        more = dict(variables or {})
        values = {"tools": None, "documents": None, **more, "bos_token": bos, "eos_token": eos}
        if not answer or not messages or messages[-1].role != "assistant":
            return self._repaired(messages, {**values, "add_generation_prompt": answer})
        said = ([message.content, dict(message.more)] for message in messages)
        texts = [self.source, bos, eos, *texts_in(more), *texts_in(list(said))]
        end = next(unused_characters(texts))
        *before, last = messages
        open_end = [*before, replace(last, content=last.content + end)]
        rendered = self._repaired(open_end, {**values, "add_generation_prompt": False})
        if rendered.text.count(end) != 1:
            raise self._error("cannot go on with an answer: it changes what the answer says")
        return Rendered(rendered.text[: rendered.text.index(end)], rendered.repairs)

    def check(self) -> None:
        """Raises `ModelError` if it is no Jinja template."""
        self._run([], {}, run=False)

    def variables(self) -> frozenset[str]:
        """The variables it looks at; none if it is broken."""
        return _variables(self.source)

    def turn_end(self, *, bos: str, eos: str) -> str | None:
        """The mark it writes behind an answer (``<…>`` or ``[…]``), ``None`` if there is none.

        A vocabulary that lacks this token spells it out, and nothing else tells that the answer is over.
        """
        return _turn_end(self, bos, eos)

    def _repaired(self, messages: Sequence[Message], values: dict[str, Any]) -> Rendered:
        from localspec.chat.sandbox import Refused

        hiding: Rendered | None = None
        refusal: Refused | None = None
        for changed, repairs in chain([(messages, ())], repaired(messages)):
            try:
                rendered = Rendered(self._run(changed, values), repairs)
                if self._shows_system(changed, rendered.text, values):
                    return rendered
                hiding = hiding or rendered
            except Refused as error:
                refusal = refusal or error  # the first is the one to report
        if hiding is not None:
            return hiding
        raise self._error(f"refuses these messages: {_one_line(refusal)}") from refusal

    def _shows_system(self, messages: Sequence[Message], text: str, values: dict[str, Any]) -> bool:
        """Whether a leading system message is in ``text``. Templates may change what it says (its white space,
        say), so one that seems to be missing is looked for with a word that none changes."""
        if not messages or messages[0].role != "system" or messages[0].content.strip() in text:
            return True
        from localspec.chat.sandbox import Refused

        try:
            return _PROBE in self._run([Message("system", _PROBE), *messages[1:]], values)
        except Refused:
            return True

    def _run(self, messages: Sequence[Message], values: dict[str, Any], *, run: bool = True) -> str:
        import jinja2

        from localspec.chat.limits import TemplateLimit
        from localspec.chat.sandbox import Refused, Sandbox, compile_template

        turns = [{**dict(message.more), "role": message.role, "content": message.content} for message in messages]
        try:
            code = compile_template(self.source)
            return Sandbox().render(code, {**values, "messages": turns}) if run else ""
        except Refused:
            raise
        except jinja2.TemplateSyntaxError as error:
            raise self._error(f"is broken in line {error.lineno}: {_one_line(error.message)}") from error
        except TemplateLimit as error:
            raise self._error(f"was stopped: it {_one_line(error)}") from None
        except RecursionError:
            raise self._error("was stopped: it is nested too deeply or calls itself") from None
        except Exception as error:  # the template's own faults come as any kind of exception
            if isinstance(error, TypeError) and values.get("tools", ()) is None:
                return self._run(messages, {**values, "tools": []})  # it goes through them without asking
            raise self._error(f"fails: {_one_line(error) or type(error).__name__}") from error

    def _error(self, what: str) -> ModelError:
        return ModelError(f"the chat template of {self.origin} {what}", hint=_HINT)


def default_template() -> ChatTemplate:
    """ChatML, the most widely understood format, for models whose file has no template."""
    return ChatTemplate(CHATML, "chatml")


def encode_chat(
    template: ChatTemplate,
    messages: Sequence[Message],
    vocab: Vocab,
    variables: Mapping[str, Any] | None = None,
) -> list[int]:
    """The conversation as token ids, ready to be answered.

    Control tokens come from the template only. Their names in messages, or in ``variables``, are tokenised as
    the text they are. The ids start with exactly one BOS where the vocabulary wants one.

    Raises:
        ModelError: as `ChatTemplate.render`.
    """
    bos, eos = vocab.bos_text, vocab.eos_text
    more = dict(variables or {})
    names = control_names(vocab)
    turns = [[message.role, message.content, dict(message.more)] for message in messages]
    marker = Marker.beside(names, [template.source, bos, eos, *texts_in(more), *texts_in(turns)])
    rendered = template.render(marker.messages(messages), bos=bos, eos=eos, variables=marker.value(more))
    return _one_bos(_tokenize(rendered.text, vocab, marker), vocab.bos)


@lru_cache(maxsize=8)
def _variables(source: str) -> frozenset[str]:
    from localspec.chat.sandbox import variables_of

    return variables_of(source)


@lru_cache(maxsize=8)
def _turn_end(template: ChatTemplate, bos: str, eos: str) -> str | None:
    turns = [Message("user", "?"), Message("assistant", _PROBE)]
    try:
        text = template.render(turns, bos=bos, eos=eos, answer=False).text
    except ModelError:
        return None
    before, _, end = text.rpartition(_PROBE)
    mark = _MARK.match(end.lstrip())
    return mark[0] if mark and before else None


def _tokenize(text: str, vocab: Vocab, marker: Marker) -> list[int]:
    if marker.mark not in text:
        return vocab.tokenize(text, special=True)
    ids: list[int] = []
    for part, token in marker.names.split(text):
        if token is not None:
            ids.append(token)
        elif plain := marker.clean(part):
            ids += vocab.tokenize(plain, special=False)
    return ids


def _one_bos(ids: list[int], bos: int | None) -> list[int]:
    if bos is None:
        return ids
    start = next((i for i, token in enumerate(ids) if token != bos), len(ids))
    return [bos, *ids[start:]]


def texts_in(value: Any) -> Iterator[str]:
    """All strings in nested lists and dicts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from texts_in([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:300]
