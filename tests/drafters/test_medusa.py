"""Heads on the target's last state, over fake models: what an engine makes of them is the target's text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.base import NORMED, Row, Work
from localspec.backends.fake import FakeRows, FakeTarget, FakeVocab
from localspec.control import Limits, Price
from localspec.drafters.base import Ask
from localspec.drafters.medusa import Hydra, Medusa, Shape, State
from localspec.engine import Engine
from localspec.sampling import SamplerState
from localspec.types import AcceptRule, SamplingParams, SpecParams
from localspec.vocab import Pairing
from tests.engine.support import Gapless, answer, plain, request, together

N, HEADS = 12, 3
TEXT = (3, 4, 5, 6, 3)
PAIRING = Pairing(N, frozenset())
NOBODY = FakeTarget(FakeVocab(N))
DRAWN = SamplingParams(temperature=0.9, seed=4, ignore_eos=True)
GREEDY = SamplingParams(temperature=0.0, seed=4, ignore_eos=True)
TREE = SpecParams(depth=4, width=3, nodes=9, mode="fixed")


class Tables:
    """Heads whose scores are tables over the token that the state is of. ``asked``: heads of each pass."""

    n = HEADS

    def __init__(self, at_once: bool = False) -> None:
        self.at_once = at_once
        self.tables = np.random.default_rng(3).normal(0, 2, (HEADS, N, N)).astype(np.float32)
        self.asked: list[list[int]] = []

    def rows(self, heads: range, state: State) -> NDArray[np.float32]:
        self.asked.append(list(heads))
        found: NDArray[np.float32] = np.stack([state @ self.tables[head] for head in heads])
        return found

    def forward(self, work: Work) -> FakeRows:
        """As Hydra's: the token that a node guesses turns the table."""
        assert work.states is not None
        tree, tables, state = work.tree, self.tables, work.states[0]

        class Found(FakeRows):
            def logits(self, node: int) -> Row:
                row: Row = np.roll(state @ tables[tree.depths[node]], tree.tokens[node])
                return row

        return Found(NOBODY, work, [])

    def set_threads(self, n: int) -> None:
        pass


def target(kind: type[FakeTarget] = FakeTarget) -> FakeTarget:
    return kind(FakeVocab(N), layers=frozenset({NORMED}), spread=1.5)


def drafter(kind: str) -> Medusa | Hydra:
    if kind == "hydra":
        return Hydra(Tables(), PAIRING)
    shape: Shape = "static" if kind == "static" else "dynamic"
    return Medusa(Tables(at_once=kind == "at once"), PAIRING, shape)


KINDS = ("dynamic", "at once", "static", "hydra")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampling", [GREEDY, DRAWN, replace(DRAWN, repeat_penalty=1.3)], ids=["greedy", "0.9", "pen"])
@pytest.mark.parametrize("model", [FakeTarget, Gapless])
def test_the_text_is_the_targets_own(kind: str, sampling: SamplingParams, model: type[FakeTarget]) -> None:
    """Of several answers at once, and of turns that go back and on."""
    engine = Engine(target(model), [drafter(kind)])
    wishes = [request(text, sampling=sampling, spec=TREE, n=15) for text in (TEXT, TEXT[:3], (7, 8))]
    first = together(engine, wishes)
    longer = [
        replace(wish, tokens=(*(wish.tokens or ()), *one.ids[:12], 5)) for wish, one in zip(wishes, first, strict=True)
    ]
    later = together(engine, [*longer, wishes[0]])
    assert all(one.stats.draft_n > 10 for one in (*first, *later))
    for one, wish in zip((*first, *later), (*wishes, *longer, wishes[0]), strict=True):
        assert one.told == answer(Engine(target()), plain(wish)).told


@pytest.mark.parametrize("kind", KINDS)
def test_by_ratio_too(kind: str) -> None:
    spec = replace(TREE, accept="ratio")
    outcome = answer(Engine(target(), [drafter(kind)]), request(TEXT, sampling=DRAWN, spec=spec, n=30))
    assert len(outcome.ids) == 30
    assert outcome.stats.draft_n > 30


def ask(limits: Limits, rule: AcceptRule = "draw", **price: float) -> Ask:
    state = SamplerState.start(GREEDY, seed=1, prompt=TEXT, end_tokens={0}, n_ctx=64)
    return Ask(0, TEXT, Price(limits, pass_s=price.get("pass_s", 0.0)), state, rule)


def test_heads_are_asked_one_by_one_or_at_once() -> None:
    """One by one where each has to pay for itself."""
    for at_once, pass_s, asked in (
        (False, 0.0, [[0], [1], [2]]),
        (False, 9.0, [[0]]),
        (True, 9.0, [[0, 1, 2]]),
    ):
        heads = Tables(at_once)
        guesser = Medusa(heads, PAIRING)
        guesser.open(0)
        guesser.prefill(0, 0, TEXT[:-1], {NORMED: np.eye(N, dtype=np.float32)[list(TEXT[:-1])]})
        (draft,) = guesser.propose([ask(Limits(9, 9, 2), pass_s=pass_s)])
        assert heads.asked == asked
        assert max(draft.tree.depths) == len(asked[-1] if at_once else asked)
