"""An engine without weights that runs as many answers as its options say."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from localspec.backends.base import Rows, Work
from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.chat import ChatTemplate
from localspec.control import LoadGuard
from localspec.engine import Engine
from localspec.loading import EngineOptions
from tests.cli.scripted import TEMPLATE
from tests.engine.support import draft_model, ngrams

#: A prompt with this token kills the engine.
POISON = 39
#: The environment says how many seconds a pass takes.
PASS_TIME = "LOCALSPEC_TEST_PASS_TIME"


class Slow(FakeTarget):
    def forward(self, work: Sequence[Work]) -> list[Rows]:
        time.sleep(float(os.environ.get(PASS_TIME, "0")))
        if any(item.rows_from == len(item.tree) and POISON in item.tree.tokens for item in work):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(work)


def engine(options: EngineOptions) -> Engine:
    target = Slow(FakeVocab(40), seed=5, spread=2.0, n_ctx=options.n_ctx or 512, sequences=options.sequences + 2)
    return Engine(
        target,
        [] if options.spec_types == ("none",) else [draft_model(target, seed=5, noise=0.7), ngrams()],
        template=ChatTemplate(TEMPLATE, origin="a test"),
        load=LoadGuard(options.most_running, options.most_waiting),
        most_running=options.sequences,
        prompt_chunk=16,
    )
