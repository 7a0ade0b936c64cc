"""The turns of one conversation, and what front ends do to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localspec.types import Message

ROLES = ("user", "assistant")


@dataclass(frozen=True, slots=True)
class Turn:
    """A message, and what its author thought first. Thinking is kept to be shown and saved; no prompt holds it.
    ``stopped``: the answer was broken off before its end."""

    message: Message
    thinking: str = ""
    stopped: bool = False


class Conversation:
    """Questions and answers, oldest first; the system message stands apart.

    Args:
        system: the system message; ``None`` for none.
        messages: turns so far, of the roles in `ROLES`.

    Raises:
        ValueError: a message of another role.
    """

    def __init__(self, system: str | None = None, messages: Sequence[Message] = ()) -> None:
        self.system = system
        self._turns: list[Turn] = []
        for message in messages:
            self.add(message.role, message.content)

    @classmethod
    def of_turns(cls, system: str | None, turns: Iterable[Turn]) -> Conversation:
        """A conversation of turns as they were. Raises as `add`."""
        conversation = cls(system)
        for turn in turns:
            message = turn.message
            conversation.add(message.role, message.content, thinking=turn.thinking, stopped=turn.stopped)
        return conversation

    @property
    def messages(self) -> tuple[Message, ...]:
        """The turns as messages, without the system message."""
        return tuple(turn.message for turn in self._turns)

    @property
    def turns(self) -> tuple[Turn, ...]:
        return tuple(self._turns)

    def prompt(self) -> tuple[Message, ...]:
        """What a request is made of: the system message first, if there is one."""
        system = () if self.system is None else (Message("system", self.system),)
        return (*system, *self.messages)

    def add(self, role: str, content: str, *, thinking: str = "", stopped: bool = False) -> None:
        """Appends a turn.

        Raises:
            ValueError: ``role`` is not in `ROLES`.
        """
        if role not in ROLES:
            raise ValueError(f"a turn of role {role!r}")
        self._turns.append(Turn(Message(role, content), thinking, stopped))

    def undo(self) -> tuple[Message, ...]:
        """Takes back the last question and what followed it; returns what was removed, empty if nothing was asked."""
        at = self._last("user")
        if at is None:
            return ()
        removed = self.messages[at:]
        del self._turns[at:]
        return removed

    def drop_answer(self) -> Message | None:
        """Takes back the last turn if it is an answer, so that its question can be asked again."""
        if not self._turns or self._turns[-1].message.role != "assistant":
            return None
        return self._turns.pop().message

    def last_question(self) -> str | None:
        return self._content("user")

    def last_answer(self) -> str | None:
        return self._content("assistant")

    def clear(self) -> None:
        """Forgets all turns; the system message stays."""
        self._turns.clear()

    def _content(self, role: str) -> str | None:
        at = self._last(role)
        return None if at is None else self._turns[at].message.content

    def _last(self, role: str) -> int | None:
        return next((at for at in reversed(range(len(self._turns))) if self._turns[at].message.role == role), None)
