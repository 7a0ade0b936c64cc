"""Engines without weights in place of those that the command line would load."""

from __future__ import annotations

import os
from collections.abc import Callable

from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.chat import ChatTemplate
from localspec.drafters.base import Drafter
from localspec.drafters.files import DRAFT_MODEL
from localspec.drafters.lookahead import Lookahead
from localspec.drafters.ngram import NgramSimple
from localspec.drafters.ngram_mod import NgramMod
from localspec.drafters.suffix import Suffix
from localspec.engine import Engine
from localspec.loading import EngineOptions
from localspec.spec_types import spec_types
from tests.engine.support import draft_model
from tests.tools import faults

TEMPLATE = "{% for message in messages %}{{ message.content }}\n{% endfor %}"


def target() -> FakeTarget:
    return FakeTarget(FakeVocab(40), seed=5, spread=2.0, n_ctx=2048)


def engine(options: EngineOptions, *, progress: Callable[[str, float], bool] | None = None) -> Engine:
    """What `localspec.load` would give; the environment may ask for a fault in it."""
    fake = target()
    makers: dict[str, Callable[[], Drafter]] = {
        "suffix": Suffix,
        "ngram-simple": NgramSimple,
        "ngram-mod": NgramMod,
        "lookahead": Lookahead,
        DRAFT_MODEL: lambda: draft_model(fake, seed=5, noise=1.0),
    }
    drafters = [makers[name]() for name in spec_types(options)]
    faults.break_as_asked(os.environ)
    return Engine(fake, drafters, template=ChatTemplate(TEMPLATE, origin="a test"))
