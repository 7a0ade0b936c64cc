"""Chats over engines without weights, in this process; a terminal that is a list of lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.chat import ChatTemplate
from localspec.chat.conversation import Conversation
from localspec.cli.output import Output
from localspec.cli.repl.loop import Repl
from localspec.cli.repl.view import View
from localspec.drafters.ngram import NgramSimple
from localspec.drafters.options import NgramOptions
from localspec.engine import Engine
from localspec.errors import LocalspecError
from localspec.options import COMMANDS, Values
from localspec.talk.chat import Chat
from localspec.talk.turn import TurnEvent
from localspec.text.thinking import Piece
from localspec.types import Message
from tests.cli.scripted import TEMPLATE


def engine(target: FakeTarget | None = None, *, template: str = TEMPLATE, n_ctx: int = 512) -> Engine:
    return Engine(
        target or FakeTarget(FakeVocab(40), seed=5, spread=2.0, n_ctx=n_ctx),
        [NgramSimple(NgramOptions())],
        template=ChatTemplate(template, origin="a test"),
    )


class FakeEngines:
    """Engines by what is loaded; ``fails`` is raised by the next load."""

    def __init__(self, first: Engine) -> None:
        self.current = first
        self.loads: list[Values] = []
        self.revived = 0
        self.fails: LocalspecError | None = None
        self.next: Engine | None = None

    def load(self, values: Values) -> None:
        if self.fails is not None:
            raise self.fails
        self.loads.append(values)
        self.current = self.next or self.current

    def revive(self) -> None:
        self.revived += 1


def values(**changes: Any) -> dict[str, Any]:
    """A chat's options, short and repeatable."""
    defaults = {option.name: option.default for option in COMMANDS["chat"].options}
    return {
        **defaults,
        "model": "fake.gguf",
        "temp": 0.0,
        "n_predict": 12,
        "ignore_eos": True,
        "spec": "fixed",
        **changes,
    }


def chat(loaded: Engine | None = None, *, system: str | None = None, typed: Sequence[str] = (), **changes: Any) -> Chat:
    return Chat(FakeEngines(loaded or engine()), values(**changes), Conversation(system), typed=typed)


def loads(one: Chat) -> FakeEngines:
    assert isinstance(one.engines, FakeEngines)
    return one.engines


def run(events: Iterable[TurnEvent]) -> tuple[str, TurnEvent]:
    """The answer, and the last event."""
    seen = list(events)
    text = "".join(event.text for event in seen if isinstance(event, Piece) and event.kind == "answer")
    return text, seen[-1]


def contents(one: Chat) -> list[str]:
    return [message.content for message in one.conversation.messages]


def messages(*texts: str) -> list[Message]:
    """Questions and answers in turn."""
    return [Message(("user", "assistant")[i % 2], text) for i, text in enumerate(texts)]


class Typed:
    """A terminal where these lines are typed; an exception in their place is raised."""

    def __init__(self, lines: Sequence[str | BaseException]) -> None:
        self.multiline = False
        self.typed = ""
        self.lines = list(lines)
        self.defaults: list[str] = []
        self.copied: list[str] = []
        self.withdrawn = 0

    def read(self, default: str = "") -> str | None:
        self.defaults.append(default)
        if not self.lines:
            return None
        line = self.lines.pop(0)
        if isinstance(line, BaseException):
            raise line
        self.typed = line
        return line

    def withdraw(self) -> None:
        self.withdrawn += 1

    def copy(self, text: str) -> str:
        self.copied.append(text)
        return f"copied {len(text)} characters"


def repl(one: Chat, *lines: str | BaseException) -> Repl:
    return Repl(one, Typed(lines), View(Output(), one.values, plain=True))


def typed(one: Repl) -> Typed:
    assert isinstance(one.terminal, Typed)
    return one.terminal
