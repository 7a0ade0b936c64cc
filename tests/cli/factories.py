"""A slow engine without weights, some of whose tokens would steer a terminal."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence

from localspec.backends.base import Rows, Work
from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.chat import ChatTemplate
from localspec.drafters.ngram import NgramSimple
from localspec.drafters.options import NgramOptions
from localspec.engine import Engine
from tests.cli.scripted import TEMPLATE

ESCAPE, BELL, C1, BRACKETS = 5, 6, 7, 8
STEERING = {ESCAPE: "\x1b[31m", BELL: "\x07", C1: "\x9b2J", BRACKETS: "[/b]"}


class Slow(FakeTarget):
    """The environment says how slow, and in which pass it dies."""

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        time.sleep(float(os.environ.get("LOCALSPEC_TEST_PASS_TIME", "0.02")))
        if str(self.passes) == os.environ.get("LOCALSPEC_TEST_DIES_AT"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(work)


def engine(options: object, *, progress: Callable[[str, float], bool]) -> Engine:
    for percent in (0, 50, 50, 100):
        progress("target", percent / 100)
    target = Slow(FakeVocab(40, renamed=STEERING), seed=5, spread=2.0)
    return Engine(target, [NgramSimple(NgramOptions())], template=ChatTemplate(TEMPLATE, origin="a test"))
