"""Rows that lie on a card: what is drawn from them is what is drawn from rows that are here, and few of them come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")

import torch
from torch import Tensor

from localspec.backends.base import NORMED, Work
from localspec.backends.fake import FakeVocab
from localspec.backends.torch.rows import Whole
from localspec.backends.torch.target import TorchTarget
from localspec.errors import ModelFault, UsageError
from localspec.grammar import Grammars
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import SamplingParams
from tests.torch.test_cells import MODELS, N, target_of

TREE = TokenTree.grown((3, 4, 5, 6, 7, 8), (-1, 0, 0, 1, 3, 4), (1.0,) * 6, ("",) * 6)
ENDS = (2, 9)


GRAMMAR = Grammars([b"", *(bytes([65 + i]) for i in range(N - 1))], ENDS).start("root ::= [ABG]+")
LEFT_TO_ROWS: dict[str, dict[str, Any]] = {
    "drawn": {"temperature": 0.8},
    "penalised": {"repeat_penalty": 1.5, "repeat_last_n": 8},
    "biased": {"logit_bias": ((5, 3.0),)},
}


class Scoring(TorchTarget):
    """Scores are what it is given; notes how many rows came here at a time."""

    def __init__(self, given: Tensor, *, far: bool = True) -> None:
        super().__init__(MODELS["whole"], FakeVocab(N), n_ctx=400, sequences=8, far=far)
        self.given, self.came = given, list[int]()

    def _scored(self, last: Tensor) -> Tensor:
        return self.given[: len(last)]

    def _by_token(self, scores: Whole) -> Whole:
        self.came.append(len(scores))
        return scores


def state(prompt: Sequence[int] = (1,), **params: Any) -> SamplerState:
    sampling = SamplingParams(**{"temperature": 0.0, **params})
    return SamplerState.start(sampling, seed=1, prompt=prompt, end_tokens=ENDS, n_ctx=100)


def drawn(target: TorchTarget, one: SamplerState) -> list[int]:
    (rows,) = target.forward([Work(target.open(), TREE)])
    return [rows.draw(node, one) for node in range(len(TREE))]


def even(seed: int) -> Tensor:
    """Scores of few values: many are equal."""
    return torch.randint(-3, 4, (len(TREE), N), generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


@pytest.mark.parametrize("seed", range(20))
def test_the_likeliest_is_drawn_without_its_row(seed: int) -> None:
    """Of equals the lowest."""
    far, near = (Scoring(even(seed), far=far) for far in (True, False))
    assert drawn(far, state()) == drawn(near, state()) == even(seed).float().numpy().argmax(axis=1).tolist()
    assert (far.came, near.came) == ([], [len(TREE)])


@pytest.mark.parametrize("name", LEFT_TO_ROWS)
def test_what_the_likeliest_does_not_settle_is_drawn_from_rows(name: str) -> None:
    far, near = (Scoring(torch.randn(len(TREE), N, generator=_chance()), far=far) for far in (True, False))
    one = state((3, 4, 5), **LEFT_TO_ROWS[name])
    assert drawn(far, one) == drawn(near, one)
    assert far.came == [len(TREE)]


@pytest.mark.parametrize("bans", [{"ignore_eos": True}, {"min_tokens": 3}, {}])
def test_ends_that_are_banned_are_not_drawn(bans: dict[str, Any]) -> None:
    scores = torch.zeros(len(TREE), N)
    scores[:3, 2], scores[:, 7] = 2, 1
    far, near = (Scoring(scores, far=far) for far in (True, False))
    assert drawn(far, state(**bans)) == drawn(near, state(**bans))
    assert far.came == ([len(TREE)] if bans else [])


def test_a_grammar_is_kept() -> None:
    for allowed, came in ((1, []), (30, [len(TREE)])):
        scores = torch.zeros(len(TREE), N)
        scores[:, allowed], scores[:, 7] = 2, 1
        far, near = (Scoring(scores, far=far) for far in (True, False))
        one = replace(state(), grammar=GRAMMAR)
        assert drawn(far, one) == drawn(near, one) == [1 if allowed == 1 else 7] * len(TREE)
        assert far.came == came


@pytest.mark.parametrize(
    ("value", "error"), [(torch.nan, ModelFault), (torch.inf, ModelFault), (-torch.inf, UsageError)]
)
def test_no_number_is_told(value: float, error: type[Exception]) -> None:
    scores = torch.zeros(len(TREE), N)
    scores[0, 5 if value > 0 or value != value else slice(None)] = value
    for far in (True, False):
        with pytest.raises(error):
            drawn(Scoring(scores, far=far), state())


def test_rows_come_with_the_pass_while_they_are_asked_for() -> None:
    """And no longer."""
    target = Scoring(torch.randn(len(TREE), N, generator=_chance()))

    def rows_of_a_pass(one: SamplerState) -> list[int]:
        target.came.clear()
        (rows,) = target.forward([Work(target.open(), TREE)])
        before = list(target.came)
        rows.draw(0, one)
        return before

    hot = state(temperature=1.0)
    assert [rows_of_a_pass(one) for one in (state(), hot, hot, state(), state())] == [[], [], [6], [6], []]
    target.forward([Work.prompt(target.open(), (1, 2))])
    assert rows_of_a_pass(state()) == []


def test_states_and_rows_of_several_texts_are_their_own() -> None:
    targets = [target_of(MODELS["windows"], far=far) for far in (True, False)]
    works = [Work(0, TREE, features=(1, NORMED)), Work(0, TokenTree.chain((5, 6)), rows_from=1, features=(1, NORMED))]
    far, near = (target.forward([replace(one, seq=target.open()) for one in works]) for target in targets)
    for ours, theirs, work in zip(far, near, works, strict=True):
        for node in range(work.rows_from, len(work.tree)):
            assert ours.draw(node, state()) == theirs.draw(node, state()) == int(theirs.logits(node).argmax())
            assert np.array_equal(ours.logits(node), theirs.logits(node))
        assert all(np.array_equal(ours.features[layer], theirs.features[layer]) for layer in (1, NORMED))
    with pytest.raises(KeyError):
        far[1].draw(0, state())


def _chance() -> torch.Generator:
    return torch.Generator().manual_seed(7)
