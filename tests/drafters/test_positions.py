"""Trees over positions that were guessed apart: the best of all trees, within what is allowed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.backends.base import Row
from localspec.control import Limits, Price
from localspec.drafters.base import Ask, Draft
from localspec.drafters.positions import Guess, Positions, grow
from localspec.sampling import SamplerState
from localspec.types import AcceptRule, SamplingParams
from localspec.vocab import Pairing

N, DEPTH = 9, 4
few = settings(max_examples=60, deadline=None)


def state_of(temperature: float) -> SamplerState:
    params = SamplingParams(temperature=temperature, top_k=0, top_p=1, min_p=0)
    return SamplerState.start(params, seed=5, prompt=[3], end_tokens={0}, n_ctx=64)


def rows(seed: int, spread: float = 2.0) -> list[Row]:
    return [row.astype(np.float32) for row in np.random.default_rng(seed).normal(0, spread, (DEPTH, N))]


def ask(
    limits: Limits, temperature: float = 0.0, rule: AcceptRule = "draw", row_s: float = 0.0, pass_s: float = 0.0
) -> Ask:
    return Ask(0, [3], Price(limits, row_s, pass_s), state_of(temperature), rule)


def guess(one: Ask, scores: Sequence[Row], *, ready: int = DEPTH, pairing: Pairing | None = None) -> Draft:
    positions = Positions(one, lambda position: scores[position], pairing or Pairing(N, frozenset()))
    return grow(one, positions, len(scores), "test", ready=ready)


def shares(row: Row, place: int, temperature: float) -> dict[int, float]:
    """The chance of each token, as the noise of its place leaves it."""
    values = row.astype(float) / (temperature or 1.0)
    if temperature:
        values = values - np.log(np.exp(values).sum()) + replace(state_of(temperature), index=place).noise(range(N))
    weights = np.exp(values - values.max())
    return dict(enumerate((weights / weights.sum()).tolist()))


def all_paths(scores: Sequence[Row], width: int, temperature: float) -> dict[tuple[int, ...], float]:
    """Every path over the ``width`` best of each position, with its chance."""
    found: dict[tuple[int, ...], float] = {}
    best = []
    for place, row in enumerate(scores):
        chances = shares(row, place, temperature)
        best.append(sorted(chances.items(), key=lambda one: -one[1])[:width])
        for path in itertools.product(*best):
            found[tuple(token for token, _ in path)] = float(np.prod([share for _, share in path]))
    return found


def proposed(draft: Draft) -> dict[tuple[int, ...], float]:
    tree = draft.tree
    return {tuple(tree.tokens[i] for i in tree.path(node)[1:]): tree.reach[node] for node in range(1, len(tree))}


@few
@given(st.integers(0, 99), st.integers(1, 20), st.integers(1, 5), st.sampled_from([0.0, 0.8]))
def test_no_tree_of_as_many_nodes_is_likelier(seed: int, nodes: int, width: int, temperature: float) -> None:
    scores = rows(seed)
    got = proposed(guess(ask(Limits(DEPTH, nodes, width), temperature), scores))
    every = all_paths(scores, width, temperature)
    assert len(got) == min(nodes, len(every))
    for path, reach in got.items():
        assert reach == pytest.approx(every[path])
    assert sorted(got.values()) == pytest.approx(sorted(every.values())[-len(got) :])


@few
@given(
    st.integers(0, 99),
    st.builds(
        Limits,
        depth=st.integers(1, 6),
        nodes=st.integers(1, 20),
        width=st.integers(1, 5),
        p_min=st.sampled_from([0.0, 0.2]),
        leaves=st.sampled_from([None, 1, 3]),
    ),
    st.sampled_from(["draw", "ratio"]),
    st.sampled_from([0.0, 0.05]),
)
def test_limits_and_price(seed: int, limits: Limits, rule: AcceptRule, row_s: float) -> None:
    draft = guess(ask(limits, 0.8, rule, row_s=row_s), rows(seed))
    tree = draft.tree
    assert tree.draft_n <= limits.nodes
    assert max(tree.depths) <= min(limits.depth, DEPTH)
    assert max(map(len, tree.children)) <= limits.width
    assert len(tree.leaves) <= (limits.leaves or limits.nodes)
    if rule == "draw":
        assert all(score >= limits.p_min for score in tree.scores[1:])
        assert all(reach > row_s for reach in tree.reach[1:])
        assert draft.laws == {}
    else:
        assert set(draft.laws) == {node for node, kids in enumerate(tree.children) if kids}
        for node, law in draft.laws.items():
            for token, kid in tree.children[node].items():
                assert law.p(token) == pytest.approx(tree.scores[kid])


def test_drawn_siblings_differ_from_node_to_node() -> None:
    """All nodes of a position draw from one law, each for itself."""
    flat = [np.zeros(N, np.float32)] * 2
    tree = guess(ask(Limits(2, 99, 3), 1.0, "ratio"), flat).tree
    drawn = [tuple(tree.tokens[kid] for kid in tree.children[node].values()) for node in (1, 2, 3)]
    assert len(set(drawn)) == 3


def test_a_row_that_has_to_be_paid_for_is_looked_at_only_where_that_pays() -> None:
    looked: list[int] = []
    sure = [np.where(np.arange(N) == 4, 2.0, 0.0).astype(np.float32)] * DEPTH  # the best guess: 0.48

    def row(position: int) -> Row:
        looked.append(position)
        return sure[position]

    for pass_s, upto in ((0.0, DEPTH), (0.4, 2), (0.6, 1), (9.0, 1)):
        looked.clear()
        one = ask(Limits(DEPTH, 99, 1), pass_s=pass_s)
        draft = grow(one, Positions(one, row, Pairing(N, frozenset())), DEPTH, "test")
        assert looked == list(range(upto))
        assert max(draft.tree.depths) == upto


def test_barred_and_foreign_ids_are_never_guessed() -> None:
    pairing = Pairing(common=7, barred=frozenset({2, 5}))
    for rule, seed in itertools.product(("draw", "ratio"), range(8)):
        draft = guess(ask(Limits(3, 30, 9), 1.0, rule), rows(seed), pairing=pairing)  # type: ignore[arg-type]
        assert draft.tree.draft_n
        assert set(draft.tree.tokens[1:]) <= {0, 1, 3, 4, 6}


def test_chances_of_ones_own_give_a_tree_of_that_shape() -> None:
    """The shape comes from the chances alone, the tokens from the rows."""
    chance = ((0.6, 0.3, 0.05), (0.5, 0.15, 0.0), (0.4, 0.1, 0.0), (0.1, 0.0, 0.0))

    def weigh(position: int, guesses: Sequence[Guess]) -> list[Guess]:
        return [(token, chance[position][rank]) for rank, (token, _) in enumerate(guesses)]

    def shape(seed: int) -> set[tuple[int, ...]]:
        scores = rows(seed)
        one = ask(Limits(DEPTH, 6, 3))
        draft = grow(one, Positions(one, lambda at: scores[at], Pairing(N, frozenset())), DEPTH, "test", weigh=weigh)
        ranks = [np.argsort(-row).tolist() for row in scores]
        return {tuple(ranks[at].index(token) for at, token in enumerate(path)) for path in proposed(draft)}

    assert shape(1) == shape(2) == {(0,), (1,), (0, 0), (1, 0), (0, 0, 0), (0, 1)}
