"""A draft model over fake models: what it proposes, and what it leaves in its cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.backends.base import Work
from localspec.backends.fake import FakeRows, FakeTarget, FakeVocab
from localspec.control.price import Limits, Price
from localspec.drafters.base import Ask, Draft
from localspec.drafters.draft_model import DraftModel
from localspec.drafters.files import DRAFT_MODEL
from localspec.drafters.growth import without
from localspec.engine import Engine
from localspec.errors import OutOfMemory
from localspec.sampling import Law, SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import AcceptRule, SamplingParams, SpecParams
from localspec.vocab import Pairing, pair
from tests.engine.support import alone, answer, draft_model, fake, plain, request, together

few = settings(max_examples=40, deadline=None)
N = 12
TEXT = [3, 4, 5, 6, 3]


def state_of(temperature: float = 0.0, *, seed: int = 7) -> SamplerState:
    params = SamplingParams(temperature=temperature, top_k=0, top_p=1, min_p=0)
    return SamplerState.start(params, seed=seed, prompt=TEXT, end_tokens={0}, n_ctx=512)


def ask(
    limits: Limits,
    *,
    seq: int = 0,
    tokens: Sequence[int] = TEXT,
    temperature: float = 0.0,
    rule: AcceptRule = "draw",
    row_s: float = 0.0,
) -> Ask:
    return Ask(seq, tokens, Price(limits, row_s=row_s), state_of(temperature), rule)


def drafter_of(model: FakeTarget | None = None, pairing: Pairing | None = None) -> DraftModel:
    drafter = DraftModel(model or fake(N), pairing or Pairing(N, frozenset()))
    drafter.open(0)
    return drafter


def propose(drafter: DraftModel, one: Ask) -> Draft:
    (draft,) = drafter.propose([one])
    return draft


LIMITS = st.builds(
    Limits,
    depth=st.integers(1, 6),
    nodes=st.integers(1, 20),
    width=st.sampled_from([1, 2, 3, 12, 99]),
    p_min=st.sampled_from([0.0, 0.1, 0.4]),
)


@few
@given(LIMITS, st.sampled_from([0.0, 1.0]), st.sampled_from(["draw", "ratio"]), st.sampled_from([0.0, 0.05, 0.3]))
def test_limits_and_price(limits: Limits, temperature: float, rule: AcceptRule, row_s: float) -> None:
    drafter = drafter_of()
    draft = propose(drafter, ask(limits, temperature=temperature, rule=rule, row_s=row_s))
    tree = draft.tree
    assert draft.out is None
    assert tree.tokens[0] == TEXT[-1]
    assert tree.draft_n <= limits.nodes
    assert max(tree.depths) <= limits.depth
    assert max(len(kids) for kids in tree.children) <= limits.width
    assert set(tree.sources[1:]) <= {DRAFT_MODEL}
    assert all(0 <= score <= 1 + 1e-9 for score in tree.scores)
    if not draft.laws:
        assert all(score >= limits.p_min for score in tree.scores[1:])
        assert all(reach > row_s for reach in tree.reach[1:])


@few
@given(LIMITS, st.sampled_from([0.0, 1.0]))
def test_the_likeliest_trees(limits: Limits, temperature: float) -> None:
    """Siblings are the best of the row, in order; scores are shares of the (noisy) row."""
    tree = propose(drafter_of(), ask(limits, temperature=temperature)).tree
    model, state = fake(N), state_of(temperature)
    for node, kids in enumerate(tree.children):
        row = model.scores(TEXT[:-1] + [tree.tokens[i] for i in tree.path(node)]).astype(float)
        row /= temperature or 1.0
        if temperature:
            later = state
            for step in tree.path(node)[1:]:
                later = later.advance(tree.tokens[step])
            row = row + later.noise(range(N))
        best = np.argsort(-row)
        assert set(kids) == set(best[: len(kids)].tolist())
        shares = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        for token, kid in kids.items():
            assert tree.scores[kid] == pytest.approx(shares[token])


def test_the_price_of_a_pass_is_one_a_level() -> None:
    for depth in range(1, 7):
        for width in (1, 3):
            model = fake(N)
            tree = propose(drafter_of(model), ask(Limits(depth, 99, width))).tree
            assert (model.passes, max(tree.depths)) == (depth, depth)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("depth", [1, 4])
def test_a_twin_is_always_right(temperature: float, width: int, depth: int) -> None:
    """Greedy, and by the shared noise above temperature 0: every guess on the walk holds."""
    target = fake(N)
    sampling = SamplingParams(temperature=temperature, ignore_eos=True, seed=11)
    wish = request(TEXT, sampling=sampling, spec=SpecParams(depth=depth, width=width, nodes=40), n=41)
    drafter = draft_model(target)
    got = answer(Engine(target, [drafter]), wish)
    assert got.told == answer(Engine(fake(N)), plain(wish)).told
    assert got.stats.alpha == 1.0
    full = [step for step in got.steps if step.accepted == depth]
    assert len(full) >= len(got.steps) - 1  # all but the last, which the limit cuts
    model = drafter._model
    assert isinstance(model, FakeTarget)
    assert model.passes == sum(step.accepted for step in got.steps)


@pytest.mark.parametrize("rule", ["draw", "ratio"])
@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_barred_and_foreign_ids_are_never_guessed(rule: AcceptRule, temperature: float) -> None:
    """The draft model's padding, and control tokens spelt in another way, are nobody's guess."""
    pairing = Pairing(common=8, barred=frozenset({2, 5}))
    for seed in range(10):
        drafter = drafter_of(fake(N, seed=seed), pairing)
        draft = propose(drafter, ask(Limits(3, 99, 9), temperature=temperature, rule=rule))
        assert draft.tree.draft_n > 0
        assert set(draft.tree.tokens[1:]) <= {0, 1, 3, 4, 6, 7}
        for law in draft.laws.values():
            assert set(law.ids.tolist()) <= {0, 1, 3, 4, 6, 7}
            assert np.exp(law.logp).sum() == pytest.approx(1.0)


def test_a_law_without_some_tokens() -> None:
    law = Law(np.array([1, 4, 6], dtype=np.int32), np.log([0.5, 0.25, 0.25]))
    rest = without(law, frozenset({1, 9}))
    assert rest.ids.tolist() == [4, 6]
    np.testing.assert_allclose(np.exp(rest.logp), [0.5, 0.5])


def test_drawn_guesses_carry_the_laws_they_were_drawn_from() -> None:
    draft = propose(drafter_of(), ask(Limits(3, 9, 2), temperature=1.0, rule="ratio"))
    inner = {node for node, kids in enumerate(draft.tree.children) if kids}
    assert inner
    assert set(draft.laws) >= inner
    for node in inner:
        for token, kid in draft.tree.children[node].items():
            assert draft.laws[node].p(token) == pytest.approx(draft.tree.scores[kid])


@few
@given(st.lists(st.tuples(LIMITS, st.integers(0, 6), st.booleans()), min_size=1, max_size=6))
def test_the_cache_holds_what_was_kept(rounds: list[tuple[Limits, int, bool]]) -> None:
    """After every verified tree, pruned or not, kept whole or in part or not at all."""
    model = fake(N)
    drafter, text = drafter_of(model), list(TEXT)
    for limits, keep, merged in rounds:
        tree = propose(drafter, ask(limits, tokens=tuple(text))).tree
        tree = tree.top(tree.draft_n - 1)
        if merged:
            tree = tree.merge(TokenTree.chain([text[-1], 9, 9, 9]))
        path = tree.path(tree.leaves[-1])[1:][:keep]
        drafter.observe(0, 0, tree, path, FakeRows(model, Work(0, tree), []))
        text += [tree.tokens[node] for node in path] + [2]
        (lane,) = model._cells
        assert model.tokens(lane) == text[: model.n_past(lane)]
        assert not model._trees
        assert drafter.lag(0, len(text) - 1) == len(text) - 1 - model.n_past(lane)


def test_guesses_that_were_never_verified_leave_no_trace() -> None:
    model = fake(N)
    drafter = drafter_of(model)
    first = propose(drafter, ask(Limits(4, 9, 2)))
    assert propose(drafter, ask(Limits(4, 9, 2))) == first
    drafter.truncate(0, 2)
    assert not model._trees
    assert propose(drafter, ask(Limits(4, 9, 2))) == first


def test_a_long_text_is_read_in_pieces_that_fit() -> None:
    model = fake(N, rows=8)
    drafter = drafter_of(model)
    text = [2 + i % 7 for i in range(50)]
    tree = propose(drafter, ask(Limits(3, 9, 2), tokens=text)).tree
    wanted = propose(drafter_of(fake(N)), ask(Limits(3, 9, 2), tokens=text)).tree
    assert tree == wanted


@pytest.mark.parametrize("shape", [Limits(6, 99, 8), Limits(3, 99, 12), Limits(9, 99, 5)])
@pytest.mark.parametrize(("rows", "leaves"), [(8, 32), (64, 6), (8, 1), (9, 5)])
def test_a_tree_never_outgrows_rows_or_branches(shape: Limits, rows: int, leaves: int) -> None:
    """Wide trees are grown as wide as the draft model's pass takes them."""
    model = fake(N, rows=rows, leaves=leaves)
    drafter = drafter_of(model)
    drafter.open(1)
    asks = [ask(shape), ask(shape, seq=1)] if leaves > 1 else [ask(shape)]
    for draft in drafter.propose(asks):
        assert max(draft.tree.depths) == shape.depth


def test_a_draft_model_without_trees_guesses_along_one_branch() -> None:
    tree = propose(drafter_of(fake(N, trees=False)), ask(Limits(4, 99, 3))).tree
    assert max(tree.depths) == 4
    assert max(len(kids) for kids in tree.children) == 3


def test_a_full_context_is_told_and_leaves_no_tree() -> None:
    drafter = drafter_of(fake(N, n_ctx=8))
    assert propose(drafter, ask(Limits(9, 99, 1))).tree.draft_n == 4
    assert propose(drafter, ask(Limits(9, 99, 1), tokens=[3] * 8)).tree.draft_n == 1
    draft = propose(drafter, ask(Limits(9, 99, 1), tokens=[3] * 9))
    assert draft.tree.draft_n == 0
    assert draft.out == "the draft model's context of 8 tokens is full"


def test_idle_conversations_make_room() -> None:
    model = fake(N, n_ctx=16)
    drafter = drafter_of(model)
    drafter.open(1)
    limits = Limits(3, 9, 1)
    propose(drafter, ask(limits, tokens=[3] * 12))
    assert propose(drafter, ask(limits, seq=1, tokens=[4] * 12)).tree.draft_n == 3
    again = propose(drafter, ask(limits, tokens=[3] * 12)).tree
    assert again == propose(drafter_of(), ask(limits, tokens=[3] * 12)).tree
    with pytest.raises(OutOfMemory):
        drafter.propose([ask(limits, tokens=[3] * 12), ask(limits, seq=1, tokens=[4] * 12)])
    assert not model._trees


def test_forks_read_what_they_share_once() -> None:
    model = fake(N)
    drafter = drafter_of(model)
    propose(drafter, ask(Limits(1, 1)))
    drafter.observe(0, 0, TokenTree.root(3), (), FakeRows(model, Work(0, TokenTree.root(3)), []))
    drafter.fork(0, 1, 4)
    assert drafter.lag(1, 5) == 1
    assert model.tokens(2) == TEXT[:4]
    drafter.close(0)
    assert propose(drafter, ask(Limits(3, 9, 2), seq=1)) == propose(drafter_of(), ask(Limits(3, 9, 2)))


def test_vocabularies_of_two_sizes() -> None:
    """A draft model with fewer tokens reads texts that it shares, and guesses below its own size."""
    drafter = drafter_of(FakeTarget(FakeVocab(8), spread=2.0), Pairing(8, frozenset()))
    tree = propose(drafter, ask(Limits(3, 99, 9))).tree
    assert max(tree.tokens) < 8


@pytest.mark.parametrize("rows", [2, 64])
def test_a_text_with_tokens_that_the_draft_model_does_not_have(rows: int) -> None:
    """F01: names that the target learnt later are read as something else, in the prompt and in the answer, and neither
    this conversation nor its neighbour loses the drafter."""
    target, model = fake(20), FakeTarget(FakeVocab(15), spread=2.0, rows=rows)
    pairing = pair(target.vocab, model.vocab)
    assert pairing is not None
    sampling = SamplingParams(temperature=0, ignore_eos=True, repeat_penalty=1.5)
    wishes = [request(prompt, sampling=sampling, n=30) for prompt in ([3, 19, 4, 18, 17], [3, 4, 5])]
    got = together(Engine(target, [DraftModel(model, pairing)]), wishes)
    for one, wish in zip(got, wishes, strict=True):
        assert one.told == alone(fake(20), plain(wish)).told
        assert not one.notices
        assert one.stats.draft_n > 20
    assert max(got[1].ids) >= 15
