"""The answer that runs, as far as somebody steers it: stopped, or let on verify step by verify step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from localspec.types import Event, GenerationRequest


class Handle(Protocol):
    """The events of one answer."""

    def __iter__(self) -> Iterator[Event]: ...

    def cancel(self) -> None: ...

    def grant(self, steps: int | None) -> None: ...


class Running:
    """At most one answer. It begins and ends in the thread that asks; everything else may be done from any thread, and
    `stop` from a signal handler.

    Attributes:
        paced: step mode: answers wait before every verify step until `step` lets them make it.
        stopping: whether the user stopped the answer that runs, or the last one.
    """

    def __init__(self) -> None:
        self.paced = False
        self.stopping = False
        self._handle: Handle | None = None

    @property
    def steps(self) -> int | None:
        """What the next request may make by itself: `GenerationRequest.steps`."""
        return 0 if self.paced else None

    # -- for the thread that asks

    def begin(self) -> None:
        """A question is on its way."""
        self._handle, self.stopping = None, False

    def runs(self, handle: Handle, request: GenerationRequest) -> None:
        """The engine has it. What was wanted in the meantime is done now."""
        self._handle = handle
        if self.stopping:
            handle.cancel()
        if request.steps != self.steps:
            handle.grant(self.steps)

    def over(self) -> None:
        self._handle = None

    # -- for whoever steers

    def stop(self) -> None:
        """Ends the answer within one pass, or at once while it waits."""
        self.stopping = True
        if (handle := self._handle) is not None:
            handle.cancel()

    def pace(self, on: bool) -> None:
        """Turns step mode on or off; an answer that runs waits after its pass, one that waits goes on."""
        if on is not self.paced:
            self.paced = on
            self._grant(self.steps)

    def step(self) -> bool:
        """One verify step; one that was let on to its end waits again after it. False: there is nothing to let on, or
        nothing waits for it."""
        return self.paced and self._grant(1)

    def run_on(self) -> bool:
        """On to the end of this answer; the next one waits again. False as in `step`."""
        return self.paced and self._grant(None)

    def _grant(self, steps: int | None) -> bool:
        if (handle := self._handle) is None:
            return False
        handle.grant(steps)
        return True
