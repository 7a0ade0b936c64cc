"""Chat templates: from messages to the text, and the tokens, a model was trained on.

The template is a Jinja program from the model's file. It runs in `localspec.chat.sandbox`. A model without
one has no format of its own: callers decide whether to refuse or to take `default_template`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.chat.literal import ControlNames, Marker
from localspec.errors import ModelError
from localspec.types import Message
from localspec.vocab import Vocab

_CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_HINT = "Choose another chat template, for example chatml."


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
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """The conversation as one string.

        Where the template refuses a system message, that is put in front of the first user message.

        Args:
            bos: text of the token that opens a text, for templates that write it.
            eos: text of the token that ends a turn, for templates that write it.
            kwargs: more variables (``tools``, ``enable_thinking``, …).

        Raises:
            ModelError: the template is broken, refuses the messages, or goes over a limit.
        """
        from localspec.chat.sandbox import Refused

        values = {
            "tools": None,
            "documents": None,
            "bos_token": bos,
            "eos_token": eos,
            "add_generation_prompt": add_generation_prompt,
            **kwargs,
        }
        try:
            return self._run(messages, values)
        except Refused as refusal:
            folded = _fold_system(messages)
            if folded is not None:
                try:
                    return self._run(folded, values)
                except Refused:
                    pass  # it was not about the system message: report the first refusal
            raise self._error(f"refuses these messages: {_one_line(refusal)}") from refusal

    def _run(self, messages: Sequence[Message], values: dict[str, Any]) -> str:
        import jinja2

        from localspec.chat.limits import TemplateLimit
        from localspec.chat.sandbox import Refused, Sandbox, compile_template

        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return Sandbox().render(compile_template(self.source), {"messages": turns, **values})
        except Refused:
            raise
        except jinja2.TemplateSyntaxError as error:
            raise self._error(f"is broken in line {error.lineno}: {_one_line(error.message)}") from error
        except TemplateLimit as error:
            raise self._error(f"was stopped: it {_one_line(error)}") from None
        except RecursionError:
            raise self._error("was stopped: it is nested too deeply or calls itself") from None
        except Exception as error:  # the template's own faults come as any kind of exception
            raise self._error(f"fails: {_one_line(error) or type(error).__name__}") from error

    def _error(self, what: str) -> ModelError:
        return ModelError(f"the chat template of {self.origin} {what}", hint=_HINT)


def default_template() -> ChatTemplate:
    """ChatML, the most widely understood format, for models whose file has no template."""
    return ChatTemplate(_CHATML, "chatml")


def encode_chat(
    template: ChatTemplate,
    messages: Sequence[Message],
    vocab: Vocab,
    **kwargs: Any,
) -> list[int]:
    """The conversation as token ids, ready to be answered.

    Control tokens come from the template only. Their names in messages, or in ``kwargs``, are tokenised as
    the text they are. The ids start with exactly one BOS where the vocabulary wants one.

    Args:
        kwargs: passed on to `ChatTemplate.render`.

    Raises:
        ModelError: as `ChatTemplate.render`.
    """
    bos, eos = vocab.bos_text, vocab.eos_text
    names = ControlNames.of(vocab)
    turns = [[message.role, message.content] for message in messages]
    marker = Marker.beside(names, [template.source, bos, eos, *_texts(kwargs), *_texts(turns)])
    text = template.render(marker.messages(messages), bos=bos, eos=eos, **marker.value(kwargs))
    return _one_bos(_tokenize(text, vocab, marker), vocab.bos)


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


def _fold_system(messages: Sequence[Message]) -> list[Message] | None:
    """The messages with a leading system message put in front of the first user message; ``None`` if there is
    no such pair."""
    if not messages or messages[0].role != "system":
        return None
    system, *rest = messages
    for at, message in enumerate(rest):
        if message.role == "user":
            rest[at] = Message("user", f"{system.content}\n\n{message.content}")
            return rest
    return None


def _texts(value: Any) -> Iterator[str]:
    """All strings in nested lists and dicts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:300]
