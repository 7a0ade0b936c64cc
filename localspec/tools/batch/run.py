"""Answers side by side, as many as are asked for, and what becomes of those that fail."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from localspec.errors import EngineDied, LocalspecError
from localspec.report import step_record
from localspec.text.thinking import Kind, Piece
from localspec.tools.batch.form import Answered, Form, Record
from localspec.tools.batch.meter import Meter
from localspec.tools.batch.parse import Refused, Task
from localspec.types import EngineInfo, Event, Failed, Finished, GenerationRequest, Started, TokenInfo, Tokens

#: Lines that wait in the engine beside those that run, so that it never waits for us.
AHEAD = 16
#: Lines that may wait for an earlier one to be written.
_HELD = 1024
_TICK_S = 0.25


class Handle(Protocol):
    def __iter__(self) -> Iterator[Event]: ...

    def cancel(self) -> None: ...


class Engine(Protocol):
    """What of `localspec.host.HostedEngine` is needed: any thread may submit."""

    @property
    def info(self) -> EngineInfo: ...

    @property
    def alive(self) -> bool: ...

    def submit(self, request: GenerationRequest) -> Handle: ...

    def restart(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """``parallel`` lines run at a time; ``ordered``: they are written in the order of the input; ``fail_fast``: the
    first that fails is the last."""

    parallel: int = 1
    ordered: bool = False
    fail_fast: bool = False


class Run:
    """One run over the lines of an input.

    Args:
        engine: in a process of its own. A line that kills it gets an error, and the others another engine.
        write: takes output lines, from the thread that calls `run`.
        meter: counts.
        tick: called now and then, to show how it stands.
    """

    def __init__(
        self,
        engine: Engine,
        plan: Plan,
        write: Callable[[Record], None],
        meter: Meter,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._plan = plan
        self._write = write
        self._meter = meter
        self._tick = tick
        self._width = plan.parallel + min(plan.parallel - 1, AHEAD)  # one at a time come in order
        self._running: set[int] = set()  # lines
        self._ended: queue.SimpleQueue[tuple[Task, Answered | Failed]] = queue.SimpleQueue()
        self._again: list[Task] = []  # whose engine died
        self._order: deque[int] = deque()  # lines that are not written, where that matters
        self._held: dict[int, tuple[Task | Refused, Answered | Failed]] = {}
        self._lock = threading.Lock()
        self._handles: dict[int, Handle] = {}
        self._over = False
        #: The line that ended it, where the first failure does.
        self.stopped_by: tuple[Form, Failed] | None = None

    def run(self, items: Iterable[Task | Refused]) -> None:
        """Answers them all; leaves early at the first failure, where that is asked for.

        Raises:
            LocalspecError: an output line cannot be written, or there is no engine any more.
        """
        with ThreadPoolExecutor(self._width, thread_name_prefix="batch-line") as pool:
            try:
                for item in items:
                    while not self._has_room and self.stopped_by is None:
                        self._wait()
                    if self.stopped_by is not None:
                        return
                    self._start(item, pool)
                while (self._running or self._again) and self.stopped_by is None:
                    self._wait()
            finally:
                self._cancel()

    @property
    def _has_room(self) -> bool:
        return len(self._running) < self._width and len(self._order) < _HELD and not self._again

    def _start(self, item: Task | Refused, pool: ThreadPoolExecutor) -> None:
        if self._plan.ordered:
            self._order.append(item.form.line)
        if isinstance(item, Refused):
            self._settle(item, Failed.of(0, item.error))
        else:
            self._running.add(item.form.line)
            pool.submit(self._work, item)

    def _cancel(self) -> None:
        with self._lock:
            self._over = True
            handles = list(self._handles.values())
        for handle in handles:
            handle.cancel()

    # -- in threads of their own

    def _work(self, task: Task) -> None:
        try:
            outcome = self._answer(task)
        except Exception as error:  # a fault of ours must not leave the others waiting
            outcome = Failed.of(0, LocalspecError(f"{type(error).__name__}: {error}"))
        self._ended.put((task, outcome))

    def _answer(self, task: Task) -> Answered | Failed:
        try:
            handle = self._engine.submit(task.request)
        except LocalspecError as error:
            return Failed.of(0, error)
        with self._lock:
            self._handles[task.form.line] = handle
            over = self._over
        if over:
            handle.cancel()
        hearing = _Hearing(task, self._meter)
        try:
            for event in handle:
                hearing.take(event)
        finally:
            with self._lock:
                del self._handles[task.form.line]
        return hearing.outcome

    # -- in the thread of `run`

    def _wait(self) -> None:
        """For a line to end, or for a moment."""
        try:
            task, outcome = self._ended.get(timeout=_TICK_S)
        except queue.Empty:
            self._tick()
            return
        self._running.remove(task.form.line)
        if isinstance(outcome, Failed) and outcome.kind == EngineDied.__name__:
            self._again.append(task)
        else:
            self._settle(task, outcome)
        if self._again and not self._running:
            self._one_by_one()
        self._tick()

    def _one_by_one(self) -> None:
        """The engine died, and any of its lines may be why: each runs alone, and one that dies again was it."""
        again, self._again = self._again, []
        for task in again:
            if not self._engine.alive:
                self._engine.restart()
            self._settle(task, self._answer(task))
            if self.stopped_by is not None:
                return
        if not self._engine.alive:
            self._engine.restart()

    def _settle(self, item: Task | Refused, outcome: Answered | Failed) -> None:
        if isinstance(outcome, Failed) and self._plan.fail_fast:
            self.stopped_by = self.stopped_by or (item.form, outcome)
        if not self._plan.ordered:
            self._put(item, outcome)
            return
        self._held[item.form.line] = item, outcome
        while self._order and self._order[0] in self._held:
            self._put(*self._held.pop(self._order.popleft()))

    def _put(self, item: Task | Refused, outcome: Answered | Failed) -> None:
        if isinstance(outcome, Failed) or isinstance(item, Refused):
            assert isinstance(outcome, Failed)
            self._write(item.form.failed(outcome))
            self._meter.failed()
            return
        logprobs = item.request.logprobs is not None
        self._write(item.form.answered(outcome, self._engine.info, logprobs=logprobs))
        self._meter.answered(outcome.finished.timings)


class _Hearing:
    """The events of one answer, as they come."""

    def __init__(self, task: Task, meter: Meter) -> None:
        self._task = task
        self._meter = meter
        self._splitter = None if task.reasoning is None else task.reasoning.splitter()
        self._texts: dict[Kind, list[str]] = {"answer": [], "thinking": []}
        self._tokens: list[TokenInfo] = []
        self._steps: list[Record] = []
        self._seed = 0
        self._last: Finished | Failed | None = None
        meter.started()

    def take(self, event: Event) -> None:
        match event:
            case Started():
                self._seed = event.seed
            case Tokens():
                self._tokens += event.tokens
                self._hear([Piece("answer", event.text)] if self._splitter is None else self._splitter.push(event.text))
                if event.step is not None:
                    self._meter.stepped(event.step)
                    if self._task.request.trace:
                        self._steps.append(step_record(event.step, event.tokens, event.step.tree))
            case Finished() | Failed():
                self._hear([] if self._splitter is None else self._splitter.finish())
                self._last = event

    def _hear(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            self._texts[piece.kind].append(piece.text)

    @property
    def outcome(self) -> Answered | Failed:
        assert self._last is not None
        if isinstance(self._last, Failed):
            return self._last
        return Answered(
            finished=self._last,
            text="".join(self._texts["answer"]),
            thinking="" if self._task.hides_thinking else "".join(self._texts["thinking"]),
            tokens=tuple(self._tokens),
            seed=self._seed,
            steps=tuple(self._steps) if self._task.request.trace else None,
        )
