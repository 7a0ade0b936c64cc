"""Engines for a child process to build: fakes that are slow, deaf, noisy, or die."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from localspec.backends.base import Rows, Work
from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.engine import Engine
from localspec.errors import LocalspecError
from tests.engine.support import draft_model, ngrams

Progress = Callable[[str, float], bool]
Trouble = Literal["none", "slow", "steady", "deaf", "noisy", "raise", "exit", "assert", "ABRT", "ILL", "KILL", "SEGV"]


@dataclass(frozen=True)
class Options:
    """``trouble`` starts with pass ``at``; with ``once`` only if that file is not there, which is then made. Until then
    passes of fewer than ``together`` sequences are slow and let it wait, so that the others can come."""

    trouble: Trouble = "none"
    at: int = 0
    once: Path | None = None
    together: int = 1
    n_ctx: int = 512


class Troubled(FakeTarget):
    def __init__(self, options: Options) -> None:
        super().__init__(FakeVocab(40), seed=5, spread=2.0, n_ctx=options.n_ctx)
        self._options = options

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        once = self._options.once
        if once is None or not once.exists():
            if len(work) < self._options.together:
                time.sleep(0.05)
            elif self.passes >= self._options.at:
                if once is not None:
                    once.touch()
                self._act()
        return super().forward(work)

    def _act(self) -> None:
        match self._options.trouble:
            case "none":
                pass
            case "slow":
                self._stop.wait(30)
            case "steady":
                time.sleep(0.02)
            case "deaf":
                time.sleep(30)
            case "noisy":
                print("printed", flush=True)
                os.write(1, b"out of native code\n")
                os.write(2, b"error of native code\n")
            case "raise":
                raise ValueError("a fault in Python")
            case "exit":
                os._exit(7)
            case "assert":
                os.write(2, b"ggml.c:9: GGML_ASSERT(rows <= n_batch) failed\nsome more\n")
                os.abort()
            case name:
                os.kill(os.getpid(), signal.Signals[f"SIG{name}"])
                time.sleep(30)


def engine(options: Options, *, progress: Progress) -> Engine:
    progress("target", 0.5)
    target = Troubled(options)
    progress("target", 1.0)
    return Engine(target, [draft_model(target, seed=5, noise=0.7), ngrams()], prompt_chunk=16)


def failing(error: LocalspecError, *, progress: Progress) -> Engine:
    raise error


def faulty(text: str, *, progress: Progress) -> Engine:
    raise ValueError(text)


def dying(options: object, *, progress: Progress) -> Engine:
    print("terminate called\n  what():  bad magic", file=sys.stderr, flush=True)
    os.abort()


def endless(options: object, *, progress: Progress) -> Engine:
    for i in range(3000):
        progress("target", i / 3000)
        time.sleep(0.01)
    raise AssertionError("nobody gave up")
