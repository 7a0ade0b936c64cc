"""One training from its target to its file: write texts, have the target read them, learn, measure, keep."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from localspec.backends.torch.llama import TorchLlama
from localspec.control import core_count
from localspec.hub.fingerprint import fingerprint
from localspec.train.kinds import Kind
from localspec.train.learner import CHAIN
from localspec.train.llamas import read_llama
from localspec.train.notes import Notes
from localspec.train.run import Point, Run
from localspec.train.sources import Desk, Source
from localspec.train.texts import HELD, PART, Texts
from localspec.train.whole import whole
from localspec.train.work import Work

#: How often a text is learned from before there is a new one: writing and reading take as long as some passes.
_PASSES = 3
#: Share of the time after which there are no new texts: what is left is too short to learn from them.
_WRITES = 0.6
#: A run is saved after so many seconds, and measured after so many tokens, or a share more than the last time.
_SAVED, _MEASURED, _MEASURED_SHARE = 30.0, 25_000, 0.1
#: Of every drafter, for its metadata.
_LICENCE = "that of the target, whose words it learned from"


@dataclass(frozen=True, slots=True)
class Job:
    """What to train. It ends after ``seconds``, or ``tokens`` learned from, of all its runs together; ``threads`` below
    1 are as many as there are cores."""

    kind: Kind
    target: Path
    out: Path
    work: Path
    seconds: float | None
    tokens: int | None
    seed: int = 0
    threads: int = -1
    hub: Path | None = None


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of it; ``finished``: it was not stopped before."""

    curve: tuple[Point, ...]
    steps: int
    tokens: int
    texts: int
    seconds: float
    finished: bool


class Told(Protocol):
    """Who is told how far it is."""

    def phase(self, what: str, whole: int | None) -> AbstractContextManager[Callable[[int, str], None]]:
        """While one thing is done; the function is told how much of ``whole`` was done more, and a word on it."""

    def point(self, point: Point) -> None:
        """Something was measured."""

    @property
    def stopped(self) -> bool:
        """Whether to end soon."""


class _Stopped(Exception):
    """It is to end soon; all that was done is kept."""


def drive(job: Job, source: Source, told: Told) -> Trained:
    """Trains until the job is done or ``told`` wants it to stop.

    Raises:
        LocalspecError: the target cannot be read, or the work folder belongs to another training.
    """
    torch.set_num_threads(job.threads if job.threads > 0 else core_count())
    with told.phase(f"loading {job.target.name}", None):
        target = read_llama(job.target)
    work = Work(job.work)
    # What is kept is worth nothing for another target, another kind or other chances.
    work.claim({"target": fingerprint(job.target), "seed": job.seed, **job.kind.about()})
    shift = _Shift(job, work, target, source, told)
    try:
        shift.gather()
        torch.manual_seed(job.seed)
        run = Run(job.kind.begin(target, work), work.state, job.seed)
    except _Stopped:
        return Trained((), 0, 0, 0, 0.0, finished=False)
    return shift.train(run)


class _Shift:
    """One process' part of a training."""

    def __init__(self, job: Job, work: Work, target: TorchLlama, source: Source, told: Told) -> None:
        self._job, self._work, self._target, self._source, self._told = job, work, target, source, told
        self._layers = job.kind.layers(target.shape)
        self._exhausted = False
        self._since = time.monotonic()

    # -- texts

    def gather(self) -> None:
        """Texts to measure with and to begin with, read."""
        if not self._work.kept(HELD):
            self._write(HELD, 0, self._source.held)
        for path in self._work.unread(HELD):
            self._read(path)
        if not self._work.notes():
            self._more()

    def _more(self) -> None:
        """One more part to learn from, if there is one: one that lies there, or else a new one."""
        if not self._work.unread(PART):
            number = len(self._work.kept(PART))
            self._exhausted = not self._write(PART, number, lambda desk: self._source.part(number, desk))
        for path in self._work.unread(PART)[:1]:
            self._read(path)

    def _write(self, kind: str, number: int, write: Callable[[Desk], Texts | None]) -> bool:
        """Writes a part, beginning where a process before stopped."""
        path = self._work.texts / f"{kind}-{number:04}.npz"
        sketch = self._work.texts / f"{kind}-{number:04}.{type(self._source).__name__}.npy"
        begun = np.load(sketch) if sketch.exists() else None
        with self._told.phase("writing texts", None) as said:
            before = 0 if begun is None else begun.size

            def look(text: NDArray[np.int32]) -> None:
                nonlocal before
                _keep(sketch, text)
                said(text.size - before, "")
                before = text.size
                self._stop_if_told()

            found = write(Desk(self._target, self._job.seed, begun, look))
        if found is not None:
            found.write(path)
        sketch.unlink(missing_ok=True)
        return found is not None

    def _read(self, path: Path) -> None:
        with self._told.phase("the target reads them", Texts.read(path).tokens.size) as said:

            def advance(count: int) -> None:
                said(count, "")
                self._stop_if_told()

            self._work.read(path, self._target, self._layers, advance)

    def _stop_if_told(self) -> None:
        if self._told.stopped:
            raise _Stopped

    # -- learning

    def train(self, run: Run) -> Trained:
        """Learns, measures and writes more texts in turn."""
        held = self._work.held()
        try:
            if not run.state.curve:
                self._measure(run, held)
            while self._done(run) < 1:
                if self._thin(run, notes := self._work.notes()):
                    self._more()
                    continue
                self._learn(run, notes)
                if run.state.tokens >= self._due(run):
                    self._measure(run, held)
            if run.state.curve[-1].tokens < run.state.tokens:  # what is written down is what the file holds
                self._measure(run, held)
            finished = True
        except _Stopped:
            self._save(run)
            finished = False
        self._export(run)
        state = run.state
        return Trained(tuple(state.curve), state.step, state.tokens, self._size(), state.seconds, finished)

    def _learn(self, run: Run, notes: dict[str, Notes]) -> None:
        """Until it is time to measure, or for more texts."""
        state, due = run.state, self._due(run)
        with self._told.phase("learning", due - state.tokens) as said:
            while state.tokens < due and (done := self._done(run)) < 1:
                before = state.tokens
                run.step(notes, done)
                said(state.tokens - before, f"loss {state.loss:.2f}, {done:.0%} of all done")
                if time.monotonic() - self._since > _SAVED:
                    self._save(run)
                self._stop_if_told()
                if self._thin(run, notes):
                    break

    def _thin(self, run: Run, notes: dict[str, Notes]) -> bool:
        """Whether the texts are worn, and there may be more."""
        return not self._exhausted and run.passes(notes) >= _PASSES and self._spent(run) < _WRITES

    def _due(self, run: Run) -> int:
        """At how many tokens to measure."""
        last = run.state.curve[-1].tokens
        return last + max(_MEASURED, int(last * _MEASURED_SHARE))

    def _done(self, run: Run) -> float:
        """The share of the job that is done."""
        tokens = self._job.tokens
        return max(self._spent(run), 0.0 if tokens is None else run.state.tokens / max(tokens, 1))

    def _spent(self, run: Run) -> float:
        """The share of its time."""
        if self._job.seconds is None:
            return 0.0
        return (run.state.seconds + time.monotonic() - self._since) / max(self._job.seconds, 1e-3)

    def _measure(self, run: Run, held: list[Notes]) -> None:
        self._told.point(run.measure(held))
        self._save(run)

    def _save(self, run: Run) -> None:
        now = time.monotonic()
        run.state.seconds += now - self._since
        self._since = now
        run.save()

    def _size(self) -> int:
        return sum(Texts.read(path).tokens.size for path in self._work.kept(PART))

    def _export(self, run: Run) -> None:
        job, module = self._job, run.learner.module
        job.kind.write(job.out, module, run.weights, job.target, self._provenance(run))
        if job.hub is not None:
            job.kind.write_hub(job.hub, module, run.weights, self._target.shape.n_vocab)

    def _provenance(self, run: Run) -> dict[str, str]:
        state = run.state
        measured = ", ".join(f"{share:.3f}" for share in state.curve[-1].acceptance.by_position)
        found = {
            "target": self._job.target.name,
            "target_fingerprint": fingerprint(self._job.target),
            "texts": f"{self._size()} tokens, {self._source.about}",
            "steps": str(state.step),
            "tokens": str(state.tokens),
            "accepted_length": f"{state.curve[-1].acceptance.length:.3f}",
            "acceptance": f"{measured} (chains of {CHAIN} on texts held out)",
            "date": date.today().isoformat(),
        }
        return {"general.license": _LICENCE} | {f"localspec.train.{key}": text for key, text in found.items()}


def _keep(path: Path, text: NDArray[np.int32]) -> None:
    with whole(path) as part, part.open("wb") as file:
        np.save(file, text)
