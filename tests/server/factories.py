"""Engines without weights for a server's child process, and the vocabulary that its front end has of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from localspec.backends.base import Row, Rows, Work
from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.chat import ChatTemplate
from localspec.drafters.ngram import NgramSimple
from localspec.drafters.options import NgramOptions
from localspec.engine import Engine
from localspec.errors import ModelLoadError
from localspec.types import EngineInfo

TEMPLATE = "{% for message in messages %}{{ message.role[0] }}:{{ message.content }}\n{% endfor %}"
SIGNS = '{}":[]-_<>=/?'
SEED = 5
#: Tokens of one sign each, then those of a script.
FIRST = 68 + len(SIGNS)
#: With ``perils``, a prompt with the first of these letters ends the engine's process, with the second the pass takes
#: long, with the third nothing stops it.
DEADLY, STICKY, DEAF = "Z", "Y", "X"


@dataclass(frozen=True)
class Options:
    """``pass_s``: seconds of a pass. ``script``: what the model says, piece by piece, whatever it is asked; empty: what
    its table says, without end. ``fails``: it cannot be loaded; ``load_s``: seconds that it takes."""

    pass_s: float = 0.0
    script: tuple[str, ...] = ()
    template: str = TEMPLATE
    n_ctx: int = 4096
    sequences: int = 4
    fails: bool = False
    load_s: float = 0.0
    perils: bool = False


def vocabulary(script: Sequence[str] = ()) -> FakeVocab:
    renamed = [*SIGNS, *script]
    return FakeVocab(68 + len(renamed), renamed={68 + at: piece for at, piece in enumerate(renamed)})


class Model(FakeTarget):
    def __init__(self, options: Options) -> None:
        vocab = vocabulary(options.script)
        super().__init__(vocab, seed=SEED, spread=2.0, n_ctx=options.n_ctx, sequences=options.sequences, rows=256)
        self._pass_s = options.pass_s
        said = [*range(FIRST, FIRST + len(options.script)), 0]
        self._after = dict(pairwise(said))
        self._first = said[0]
        self._says = bool(options.script)
        self._perils = options.perils
        self._deadly, self._sticky, self._deaf = vocab.tokenize(DEADLY + STICKY + DEAF)

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        time.sleep(self._pass_s)
        prompts = [item.tree for item in work if item.rows_from == len(item.tree) and self._perils]
        read = {token for tree in prompts for token in tree.tokens}
        if self._deadly in read:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._sticky in read:
            self._stop.wait(60)
        if self._deaf in read:
            time.sleep(60)
        return super().forward(work)

    def scores(self, text: Sequence[int]) -> Row:
        if not self._says:
            row = super().scores(text)
            row[:2] = -50.0  # it does not end by itself, and says nothing that is no text
            return row
        row = np.zeros(self.vocab.n_tokens, np.float32)
        row[self._after.get(text[-1], self._first)] = 50.0
        return row


def engine(options: Options, *, progress: Callable[[str, float], bool]) -> Engine:
    began = time.monotonic()
    while time.monotonic() < began + options.load_s:
        progress("target", (time.monotonic() - began) / options.load_s)
        time.sleep(0.01)
    if options.fails:
        raise ModelLoadError("the file is cut short", hint="Download it again.")
    target = Model(options)
    info = EngineInfo(
        target="folder/fake.gguf",
        draft=None,
        drafters=("ngram-simple",),
        backend="fake",
        n_ctx=options.n_ctx,
        n_ctx_train=options.n_ctx,
        n_vocab=target.vocab.n_tokens,
        has_template=True,
        chat_template=options.template,
    )
    template = ChatTemplate(options.template, origin="a test")
    drafter = NgramSimple(NgramOptions(size_n=2, size_m=4))
    return Engine(target, [drafter], template=template, info=info, prompt_chunk=64)
