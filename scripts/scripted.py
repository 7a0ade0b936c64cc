"""The command line over an engine that says a given text: ``python -m scripts.scripted chat --tui -m FILE …``.

FILE is the text. The environment says how fast it comes: ``LOCALSPEC_SCRIPT_RATE`` pieces a second of
``LOCALSPEC_SCRIPT_PIECE`` characters (60 and 4).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from localspec.backends.base import Row, Rows, Work
from localspec.backends.fake import END, FakeTarget, FakeVocab
from localspec.chat import ChatTemplate
from localspec.cli import main, session
from localspec.engine import Engine
from localspec.host import HostedEngine
from localspec.loading import EngineOptions

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}<ctl>"
BEGIN = 1  # the token that the template ends with
PAUSE = 5.0  # seconds without a pass after which a new answer begins
FIRST = 80  # tokens before it are those of the fake


class Saying(FakeTarget):
    """Answers every question with one text, in pieces, at a steady rate."""

    def __init__(self, text: str, *, piece: int, rate: float) -> None:
        pieces = [text[at : at + piece] for at in range(0, len(text), piece)]
        ids = {one: FIRST + number for number, one in enumerate(dict.fromkeys(pieces))}
        super().__init__(FakeVocab(2), n_ctx=2 * len(pieces) + 4096, rows=4096)
        self._said = [*(ids[one] for one in pieces), END]
        self._vocab = FakeVocab(FIRST + len(ids), renamed={token: one for one, token in ids.items()})
        self._caps = replace(self._caps, n_vocab=FIRST + len(ids))
        self._seconds = 1 / rate
        self._due = -PAUSE

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        now = time.monotonic()
        self._due = (self._due if now - self._due < PAUSE else now) + self._seconds  # what is late is made good
        time.sleep(max(self._due - now, 0.0))
        return super().forward(work)

    def scores(self, text: Sequence[int]) -> Row:
        said = text[::-1].index(BEGIN)
        row = np.zeros(self._caps.n_vocab, np.float32)
        row[self._said[said]] = 50.0
        return row


def engine(options: EngineOptions, *, progress: Callable[[str, float], bool]) -> Engine:
    text = options.target.path.read_text("utf-8")
    piece, rate = os.environ.get("LOCALSPEC_SCRIPT_PIECE", "4"), os.environ.get("LOCALSPEC_SCRIPT_RATE", "60")
    target = Saying(text, piece=int(piece), rate=float(rate))
    made = Engine(target, [], template=ChatTemplate(TEMPLATE, origin="a script"))
    made.info = replace(made.info, target=options.target.path.name, has_template=True)
    return made


if __name__ == "__main__":
    from scripts.scripted import engine as saying  # not that of `__main__`: the child imports it

    setattr(session, "HostedEngine", partial(HostedEngine, factory=saying))  # noqa: B010
    setattr(session, "find", lambda path: path)  # noqa: B010
    main.main()
