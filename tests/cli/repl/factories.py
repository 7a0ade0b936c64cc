"""Engines of a process of their own, by the name of the model file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from localspec.backends.base import Rows, Work
from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.chat import ChatTemplate
from localspec.drafters.ngram import NgramSimple
from localspec.drafters.options import NgramOptions
from localspec.engine import Engine
from localspec.errors import ModelLoadError
from localspec.loading import EngineOptions
from tests.cli.factories import Slow
from tests.cli.factories import engine as slow
from tests.cli.scripted import TEMPLATE, Scripted

THINKING = ("<think>", "let me \x1b[31m see", "</think>", "yes", ".")


def complain() -> None:
    """As native code does."""
    for stream in (1, 2):
        os.write(stream, b"llama_model_loader: native code says something\n")


class Noisy(FakeTarget):
    def forward(self, work: Sequence[Work]) -> list[Rows]:
        complain()
        return super().forward(work)


def engine(options: EngineOptions, *, progress: Callable[[str, float], bool]) -> Engine:
    """``broken*`` does not load, ``base*`` has no template, ``thinks*`` thinks first, ``large*`` has room for long
    messages, and ``slow-large*`` too; all but ``large*`` and ``thinks*`` are slow, ``lazy*`` is so when it loads,
    ``noisy*`` writes past Python while it loads and computes."""
    name = options.target.path.name
    if name.startswith("broken") or (options.draft and options.draft.path.name.startswith("broken")):
        raise ModelLoadError(f"{name} is damaged", hint="Download it again.")
    drafters = [NgramSimple(NgramOptions())]
    if name.startswith("thinks"):
        return Engine(Scripted(THINKING), drafters, template=ChatTemplate(TEMPLATE, origin="a test"))
    if name.startswith("noisy"):
        complain()
        return Engine(
            Noisy(FakeVocab(40), seed=5, n_ctx=512), drafters, template=ChatTemplate(TEMPLATE, origin="a test")
        )
    if name.startswith("lazy"):
        progress("target", 0.4)
        time.sleep(1)
    if name.startswith(("large", "slow-large", "lazy")):
        kind = FakeTarget if name.startswith("large") else Slow
        target = kind(FakeVocab(40), seed=5, spread=2.0, n_ctx=32768, rows=512)
        return Engine(target, drafters, template=ChatTemplate(TEMPLATE, origin="a test"))
    made = slow(options, progress=progress)
    made.info = replace(
        made.info,
        target=str(options.target.path),
        draft=str(options.draft.path) if options.draft else None,
        has_template=not name.startswith("base"),
    )
    return made
