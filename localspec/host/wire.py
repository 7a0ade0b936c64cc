"""What travels between a front end and its engine process: pickled messages over one socket.

Every request has a *ticket* that the front end chose, so that it can be cancelled before the engine has seen it and
its events find their reader however early they come.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Literal

from localspec.errors import LocalspecError
from localspec.types import EngineInfo, EngineStatus, Event, GenerationRequest

#: Ticket of the load itself.
LOAD = 0

_LOOK_AROUND = 1.0  # seconds between two looks at whether the other side lives


@dataclass(frozen=True, slots=True)
class Start:
    """The first message. ``recipe`` is a pickled (factory, options): unpickling it may import heavy modules, so
    that is left to the engine's thread."""

    recipe: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """Submit a request, or only turn it into tokens."""

    ticket: int
    what: Literal["submit", "encode"]
    request: GenerationRequest


@dataclass(frozen=True, slots=True)
class Look:
    """How does the engine stand?"""

    ticket: int


@dataclass(frozen=True, slots=True)
class Cancel:
    ticket: int


@dataclass(frozen=True, slots=True)
class Grant:
    """The answer may make so many verify steps more; ``None``: all that come."""

    ticket: int
    steps: int | None


@dataclass(frozen=True, slots=True)
class Close:
    """Cancel what runs, free the models, exit."""


Command = Start | Call | Look | Cancel | Grant | Close


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the load is; its `Reply` is still to come."""

    stage: str
    share: float


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a `Start` (info), to a submit (the request's number), to an encode (tokens) or to a `Look`."""

    ticket: int
    value: EngineInfo | int | list[int] | EngineStatus | LocalspecError


@dataclass(frozen=True, slots=True)
class Events:
    ticket: int
    events: tuple[Event, ...]


News = Progress | Reply | Events


def pack(message: Command | News) -> bytes:
    return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)


def receive(connection: Connection, other_lives: Callable[[], bool]) -> object | None:
    """The next message; ``None`` when there will be no more.

    The end of the stream tells that the other side is gone, unless a process that either side forked still holds the
    socket open. That is why ``other_lives`` is asked too, whenever nothing comes for a while.
    """
    try:
        while not connection.poll(_LOOK_AROUND):
            if not other_lives() and not connection.poll():  # its last words may just have come
                return None
        message: object = pickle.loads(connection.recv_bytes())
    except (EOFError, OSError):
        return None
    return message
