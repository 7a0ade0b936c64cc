"""What the engine's thread has to say to the screen, and the box it is put in."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from localspec.chat.conversation import Turn as PastTurn
from localspec.errors import ExitCode
from localspec.talk.compare import Step
from localspec.talk.turn import TurnEvent
from localspec.text.thinking import Piece
from localspec.types import EngineInfo, Prefill, Tokens


@dataclass(frozen=True, slots=True)
class Doing:
    """What the thread is at, for the status line: ``loading smol.gguf …``; nothing when it rests. ``share``: how much
    of it is done, 0…1, where that is known."""

    what: str
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """An engine runs."""

    info: EngineInfo


@dataclass(frozen=True, slots=True)
class Gone:
    """No engine runs: it did not load, or has died."""


@dataclass(frozen=True, slots=True)
class Said:
    """A block of lines from a command or a notice."""

    text: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something did not work; what to do about it."""

    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What was typed and has not begun yet, the oldest first."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Came:
    """An event of the turn that runs."""

    event: TurnEvent


@dataclass(frozen=True, slots=True)
class Ended:
    """The turn is over.

    Attributes:
        kept: whether it became part of the conversation.
        footer: how it went, in parts.
    """

    kept: bool
    footer: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conversed:
    """The conversation is another one now, not by a turn. ``anew``: it is none that the one before became; ``saved``:
    whether that one can be found again."""

    turns: tuple[PastTurn, ...]
    anew: bool = False
    saved: bool = False


@dataclass(frozen=True, slots=True)
class Places:
    """Which of its versions every exchange of the conversation is, from 1, and how many there are."""

    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Holds:
    """What the engine holds of the machine's memory, in bytes; ``None``: not known."""

    memory: int | None


@dataclass(frozen=True, slots=True)
class Opened:
    """What is typed from now on belongs to another session; ``draft`` is what was typed in it before."""

    session: str
    draft: str


@dataclass(frozen=True, slots=True)
class Brief:
    """A line that goes away by itself."""

    text: str


@dataclass(frozen=True, slots=True)
class Returned:
    """Text that was not sent: it goes back to where it was typed."""

    text: str


@dataclass(frozen=True, slots=True)
class Edits:
    """A text is to be changed; the thread waits for it (`Conductor.edited`)."""

    text: str


@dataclass(frozen=True, slots=True)
class Copied:
    """Text that went to the clipboard, or that the terminal is to be asked to take by a ``sequence``."""

    text: str
    sequence: str


@dataclass(frozen=True, slots=True)
class Multiline:
    """Enter begins a new line from now on, or sends."""

    on: bool


@dataclass(frozen=True, slots=True)
class Compared:
    """The next step of a comparison; ``None``: it is over."""

    step: Step | None


@dataclass(frozen=True, slots=True)
class Left:
    """The user wants to go."""

    code: ExitCode


News = (
    Doing
    | Ready
    | Gone
    | Holds
    | Said
    | Trouble
    | Waiting
    | Came
    | Ended
    | Conversed
    | Places
    | Opened
    | Brief
    | Returned
    | Edits
    | Copied
    | Multiline
    | Compared
    | Left
)


class Mailbox:
    """News in order, from one thread to another.

    Args:
        wake: called in the thread that puts something into the empty box; takes what is there sooner or later.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._news: list[News] = []

    def __bool__(self) -> bool:
        """Whether there is something in it."""
        return bool(self._news)

    def put(self, news: News) -> None:
        with self._lock:
            first = not self._news
            self._news.append(news)
        if first:
            self._wake()

    def take(self) -> list[News]:
        """All of it, what belongs together joined."""
        with self._lock:
            news, self._news = self._news, []
        return joined(news)


def joined(news: Iterable[News]) -> list[News]:
    """Text of one kind in one piece, only the newest of progress; all else as it is, in order.

    Steps do not part text: they stand before the piece that they add to.
    """
    whole: list[News] = []
    open_at: int | None = None  # the piece that text may be added to
    for one in news:
        event = one.event if isinstance(one, Came) else None
        if isinstance(event, Piece):
            open_at = _add_text(whole, open_at, event)
            continue
        if whole and _is_overtaken(whole[-1], one):
            whole[-1] = one
        else:
            whole.append(one)
        if not isinstance(event, Tokens):
            open_at = None
    return whole


def _add_text(whole: list[News], open_at: int | None, piece: Piece) -> int:
    """Where the piece went."""
    if open_at is not None:
        before = whole[open_at]
        if isinstance(before, Came) and isinstance(before.event, Piece) and before.event.kind == piece.kind:
            whole[open_at] = Came(Piece(piece.kind, before.event.text + piece.text))
            return open_at
    whole.append(Came(piece))
    return len(whole) - 1


def _is_overtaken(before: News, after: News) -> bool:
    """Whether the later progress makes the earlier one old."""
    if isinstance(before, Came) and isinstance(after, Came):
        return isinstance(before.event, Prefill) and isinstance(after.event, Prefill)
    return isinstance(before, Doing) and isinstance(after, Doing)
