"""What the scenes are played with: an engine that says one text, a drafter that knows most of it, and a clock that
goes on by looks alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from unittest import mock

import numpy as np

from localspec.backends.base import Row, Rows, Work
from localspec.chat import ChatTemplate
from localspec.control.controller import FixedController
from localspec.drafters.base import Ask
from localspec.engine import Engine
from localspec.host.death import died
from localspec.spec.tree import TokenTree
from tests.cli.scripted import TEMPLATE
from tests.engine.support import Scripted as Guesses
from tests.tui.support import Gated

TARGET, DRAFT = "SmolLM2-1.7B-Instruct-Q8_0.gguf", "SmolLM2-135M-Instruct-Q4_1.gguf"
ANSWER = """Here is one that goes through the list **once**:

```python
def sum_of_even(numbers: list[int]) -> int:
    # zero is even, too
    return sum(n for n in numbers if n % 2 == 0)
```

Two things to know:

1. an empty list gives `0`;
2. numbers below zero are counted as well, so `[-2, 4]` gives `2`.
"""
FIRST = 40  # the token that an answer begins with
#: Places in the answer where the likeliest guess is wrong, and where there is a second one, too.
STUMBLES = frozenset(range(3, 400, 7)) | frozenset(range(5, 400, 11))
FORKS = frozenset(range(1, 400, 3))
END = "~"  # of a prompt, and no token of an answer: it begins with the first
TICK = 0.002  # seconds between two looks at the clock


def pieces(text: str) -> tuple[str, ...]:
    """A text cut about as tokens cut it: a word with the blank before it."""
    cuts = [
        at
        for at in range(1, len(text))
        if text[at - 1] != " " and (text[at] == " " or text[at].isalnum() != text[at - 1].isalnum())
    ]
    return tuple(text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True))


class Staged(Gated):
    """Finds the token that comes next likely, and another one less so.

    Attributes:
        dies: its next pass is its last.
    """

    dies = False

    def scores(self, text: Sequence[int]) -> Row:
        row = super().scores(text) / np.float32(5)
        row[2 + text[-1] % 30] += 8.0
        return row

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        if self.dies:
            raise died(-9, "")
        return super().forward(work)


class Paid(FixedController):
    """Knows what a plain step takes."""

    plain_s = 8 * TICK


def guesses(ask: Ask) -> TokenTree:
    """The answer goes on as it does, but for `STUMBLES`."""
    pending, limits = ask.tokens[-1], ask.price.limits
    tokens, parents, scores, parent = [pending], [-1], [1.0], 0
    for depth in range(1, limits.depth + 1 if pending >= FIRST else 1):
        place = pending + depth - FIRST
        right, wrong = pending + depth, 2 + place % 30
        stumbles = place in STUMBLES
        for guess, score in ((wrong, 0.5), (right, 0.25)) if stumbles else ((right, 0.8), (wrong, 0.125)):
            first = guess == (wrong if stumbles else right)
            if len(tokens) <= limits.nodes and (first or place in FORKS):
                tokens.append(guess)
                parents.append(parent)
                scores.append(score)
        parent = next((at for at in range(len(tokens) - 1, 0, -1) if parents[at] == parent and tokens[at] == right), -1)
        if parent < 0:
            break
    return TokenTree(tuple(tokens), tuple(parents), tuple(scores), ("", *["draft-simple"] * (len(tokens) - 1)))


def staged(text: str = ANSWER) -> Engine:
    """An engine that answers so."""
    made = Engine(
        Staged(pieces(text), n_ctx=2048),
        [Guesses(guesses, name="draft-simple")],
        template=ChatTemplate(TEMPLATE + END, origin="a test"),
        controller=Paid(),
    )
    made.info = replace(made.info, target=TARGET, draft=DRAFT)
    return made


@contextmanager
def no_time() -> Iterator[None]:
    """The clocks of the engine go on by `TICK` a look: what an answer took does not depend on the machine."""
    looks = count(1)
    clock = SimpleNamespace(perf_counter=lambda: next(looks) * TICK, process_time=lambda: 0.0)
    with ExitStack() as stack:
        for module in ("engine", "answer", "panel"):
            stack.enter_context(mock.patch(f"localspec.engine.{module}.time", clock))
        yield
