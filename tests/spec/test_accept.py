"""The acceptance rules: the walk against an oracle, and exactness of what it emits."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from localspec.sampling import Law, SamplerState, Stream, gumbel, uniform
from localspec.spec.accept import Acceptance, accept_by_draw, accept_by_ratio
from localspec.spec.tree import TokenTree
from localspec.types import AcceptRule, SamplingParams
from tests.sampling import reference

Row = NDArray[np.float32]
Text = tuple[int, ...]
START: Text = ()


@st.composite
def trees(draw: st.DrawFn, vocab: int = 4, largest: int = 14) -> TokenTree:
    tokens, parents = [draw(st.integers(0, vocab - 1))], [-1]
    edges = set()
    for _ in range(draw(st.integers(0, largest - 1))):
        edge = (draw(st.integers(0, len(tokens) - 1)), draw(st.integers(0, vocab - 1)))
        if edge not in edges:
            edges.add(edge)
            parents.append(edge[0])
            tokens.append(edge[1])
    n = len(tokens)
    return TokenTree(tuple(tokens), tuple(parents), (1.0,) * n, ("",) * n)


def agreed_paths(tree: TokenTree, says: list[int]) -> list[Text]:
    """Every path from the root on which the target says each next token."""
    paths = [tree.path(node) for node in range(len(tree))]
    return [p for p in paths if all(says[a] == tree.tokens[b] for a, b in itertools.pairwise(p))]


@given(trees(), st.data())
def test_walk_by_draw_finds_the_longest_agreed_path(tree: TokenTree, data: st.DataObject) -> None:
    says = data.draw(st.lists(st.integers(0, 3), min_size=len(tree), max_size=len(tree)))
    best = max(agreed_paths(tree, says), key=len)
    states: list[tuple[Text, int]] = []

    def draw(state: Text, node: int) -> int:
        states.append((state, node))
        return says[node]

    got = accept_by_draw(tree, START, draw, lambda state, node, token: (*state, token))
    assert got == Acceptance(
        path=best[1:],
        tokens=tuple(says[node] for node in best),
        tested=sum(bool(tree.children[node]) for node in best),
    )
    # Each node is decided once, by a state that knows exactly the tokens on the way to it.
    assert states == [(tuple(tree.tokens[n] for n in tree.path(node)[1:]), node) for node in best]


@dataclass
class Scripted:
    """Accepts the first child whose rank is listed for the node."""

    node: int
    stands: dict[tuple[int, int], bool]
    log: list[tuple[int, int, int]]

    def accepts(self, token: int, rank: int) -> bool:
        self.log.append((self.node, rank, token))
        return self.stands[self.node, rank]

    def draw(self) -> int:
        return 100 + self.node


@given(trees(), st.data())
def test_walk_by_ratio_takes_the_first_child_that_stands(tree: TokenTree, data: st.DataObject) -> None:
    stands = {
        (node, rank): data.draw(st.booleans()) for node in range(len(tree)) for rank in range(len(tree.children[node]))
    }
    log: list[tuple[int, int, int]] = []
    states: list[Text] = []

    def target(state: Text, node: int) -> Scripted:
        states.append(state)
        return Scripted(node, stands, log)

    got = accept_by_ratio(tree, START, target, lambda state, node, token: (*state, token))

    def descends(parent: int, child: int) -> bool:
        ranks = [stands[parent, rank] for rank in range(len(tree.children[parent]))]
        return True in ranks and list(tree.children[parent].values())[ranks.index(True)] == child

    paths = [tree.path(node) for node in range(len(tree))]
    best = max((p for p in paths if all(descends(a, b) for a, b in itertools.pairwise(p))), key=len)
    kept = tuple(tree.tokens[node] for node in best[1:])
    assert got.path == best[1:]
    assert got.tokens == (*kept, 100 + best[-1])
    assert got.tested == sum(bool(tree.children[node]) for node in best)
    assert states == [kept[:i] for i in range(len(best))]
    expected = []
    for node in best:
        for rank, token in enumerate(tree.children[node]):
            expected.append((node, rank, token))
            if stands[node, rank]:
                break
    assert log == expected


@dataclass(frozen=True)
class Model:
    """A table of logits per last two tokens."""

    vocab: int
    seed: int
    spread: float = 1.5

    @cached_property
    def table(self) -> Row:
        rng = np.random.default_rng(self.seed)
        table = (rng.normal(size=(self.vocab,) * 3) * self.spread).astype(np.float32)
        table.flags.writeable = False
        return table

    def row(self, text: Text) -> Row:
        row: Row = self.table[text[-2], text[-1]]
        return row


PROMPT: Text = (0, 1, 1)
END = (3,)


@cache
def first(params: SamplingParams) -> SamplerState:
    return SamplerState.start(params, seed=0, prompt=PROMPT, end_tokens=END, n_ctx=64)


def fresh(params: SamplingParams, seed: int) -> SamplerState:
    return replace(first(params), seed=seed)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "repeat": {"repeat_penalty": 1.5},
    "frequency": {"frequency_penalty": 1.3},
    "presence": {"presence_penalty": 1.3},
    "short window": {"frequency_penalty": 1.3, "repeat_last_n": 2},
    "bias": {"logit_bias": ((2, -100.0), (0, 1.5))},
    "ban": {"logit_bias": ((1, -math.inf),)},
    "ignore eos": {"ignore_eos": True},
    "min tokens": {"min_tokens": 5},
    "typical": {"typical_p": 0.5},
    "top k": {"top_k": 2},
    "top p": {"top_p": 0.6},
    "min p": {"min_p": 0.4},
}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("option", OPTIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_no_tree_changes_the_text(option: str, temperature: float, data: st.DataObject) -> None:
    """Whatever is guessed, rejected guesses included: same seed, same text, under every option."""
    params = replace(SamplingParams(temperature=temperature), **OPTIONS[option])
    model, length = Model(5, data.draw(st.integers(0, 9))), 10
    seed = data.draw(st.integers(0, 2**64 - 1))

    state, plain = fresh(params, seed), PROMPT
    for _ in range(length):
        token = state.draw(model.row(plain))
        state, plain = state.advance(token), (*plain, token)

    state, text = fresh(params, seed), PROMPT
    while len(text) < len(plain):
        tree = data.draw(trees(vocab=5, largest=8))
        tree = replace(tree, tokens=(text[-1], *tree.tokens[1:]))
        got = walk("draw", tree, {}, state, text, model)
        for token in got.tokens:
            state, text = state.advance(token), (*text, token)
    assert text[: len(plain)] == plain


def walk(
    rule: AcceptRule, tree: TokenTree, laws: dict[int, Law], state: SamplerState, text: Text, model: Model
) -> Acceptance:
    def row(node: int) -> Row:
        return model.row(text + tuple(tree.tokens[n] for n in tree.path(node)[1:]))

    def advance(state: SamplerState, node: int, token: int) -> SamplerState:
        return state.advance(token)

    if rule == "draw":
        return accept_by_draw(tree, state, lambda state, node: state.draw(row(node)), advance)
    return accept_by_ratio(tree, state, lambda state, node: state.residual(row(node), laws.get(node), node), advance)


# Exactness: the joint distribution of the first tokens that go out, against exact enumeration.

#: Children at each depth of the tree that is guessed.
SHAPES: dict[str, tuple[int, ...]] = {
    "none": (),
    "chain": (1, 1),
    "wide": (3,),
    "tree": (2, 2),
    "certain": (2, 1),
}
SETTINGS: dict[str, SamplingParams] = {
    "T=1": SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
    "filters": SamplingParams(temperature=0.7, top_k=3, top_p=0.95, min_p=0.05),
    "penalties": SamplingParams(
        temperature=1.0, top_k=0, repeat_penalty=1.4, frequency_penalty=0.6, presence_penalty=0.3
    ),
    "bias": SamplingParams(temperature=1.0, top_k=0, min_p=0.0, logit_bias=((2, -2.0), (1, 1.0))),
    "min_tokens": SamplingParams(temperature=1.0, top_k=0, min_p=0.0, min_tokens=2),
}
Step = Callable[[SamplerState, Text], Text]


def guess(
    rule: AcceptRule, shape: str, state: SamplerState, text: Text, draft: Model
) -> tuple[TokenTree, dict[int, Law]]:
    """A tree from a drafter that is wrong about much. Under ``draw`` it peeks at the target's noise; under
    ``ratio`` it draws with noise of its own. ``certain``: fixed tokens, no law."""
    tokens, parents, states = [text[-1]], [-1], [(state, text)]
    laws: dict[int, Law] = {}
    level = [0]
    for width in SHAPES[shape]:
        below = []
        for node in level:
            here, known = states[node]
            if shape == "certain":
                children = [(known[-1] + 1 + i) % draft.vocab for i in range(width)]
            else:
                law = here.draft_law(draft.row(known))
                noise = here.noise(law.ids) if rule == "draw" else here.draft_noise(law.ids, salt=node)
                laws[node] = law
                children = [token for token, _ in law.draws(noise, width)]
            for token in children:
                below.append(len(tokens))
                tokens.append(token)
                parents.append(node)
                states.append((here.advance(token), (*known, token)))
        level = below
    n = len(tokens)
    return TokenTree(tuple(tokens), tuple(parents), (1.0,) * n, ("",) * n), laws


def speculative(rule: AcceptRule, shape: str, target: Model, draft: Model) -> Step:
    def step(state: SamplerState, text: Text) -> Text:
        tree, laws = guess(rule, shape, state, text, draft)
        return walk(rule, tree, laws, state, text, target).tokens

    return step


def emit(step: Step, params: SamplingParams, seed: int, length: int, target: Model) -> Text:
    """The first ``length`` tokens of a text made by ``step``."""
    state, text = fresh(params, seed), PROMPT
    while len(text) < len(PROMPT) + length:
        for token in step(state, text):
            state, text = state.advance(token), (*text, token)
    return text[len(PROMPT) : len(PROMPT) + length]


def exact(params: SamplingParams, length: int, target: Model) -> dict[Text, float]:
    """Probability of every text of ``length`` tokens, by the slow reference chain."""
    joint: dict[Text, float] = {(): 1.0}
    for _ in range(length):
        joint = {
            (*text, token): reach * p
            for text, reach in joint.items()
            for token, p in reference.law(
                target.row(PROMPT + text), params, prompt=PROMPT, output=text, end_tokens=END, n_ctx=64
            ).items()
        }
    return joint


def p_value(step: Step, params: SamplingParams, length: int, n: int, target: Model) -> float:
    """Chi-square of ``n`` seeds against enumeration; texts expected fewer than 5 times are pooled."""
    joint = exact(params, length, target)
    seen = Counter(emit(step, params, seed, length, target) for seed in range(n))
    assert set(seen) <= set(joint), "a text that has no chance"
    pairs = [(seen[text], n * p) for text, p in joint.items() if n * p >= 5]
    rest = n - sum(o for o, _ in pairs), n - sum(e for _, e in pairs)
    if rest[1] > 1e-6:
        pairs.append(rest)
    observed, expected = np.array(pairs).T
    return float(stats.chisquare(observed, expected).pvalue)


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves time: laws depend on row, position and window only, noise on its key; each is computed once."""
    for name in ("law", "draft_law"):
        monkeypatch.setattr(SamplerState, name, remembering(getattr(SamplerState, name)))
    monkeypatch.setattr("localspec.sampling.state.gumbel", remembered_gumbel)
    monkeypatch.setattr("localspec.sampling.residual.gumbel", remembered_gumbel)
    monkeypatch.setattr("localspec.sampling.residual.uniform", remembered_uniform)


@cache
def noise_of(kind: Callable[..., NDArray[np.float64]], *key: int) -> NDArray[np.float64]:
    seed, stream, index, salt = key
    return kind(seed, stream, index, range(16), salt)


def remembered_gumbel(
    seed: int, stream: Stream, index: int, ids: NDArray[np.int32], salt: int = 0
) -> NDArray[np.float64]:
    return noise_of(gumbel, seed, stream, index, salt)[ids]


def remembered_uniform(
    seed: int, stream: Stream, index: int, ids: tuple[int, ...], salt: int = 0
) -> NDArray[np.float64]:
    return noise_of(uniform, seed, stream, index, salt)[list(ids)]


def remembering(compute: Callable[[SamplerState, Row], Law]) -> Callable[[SamplerState, Row], Law]:
    known: dict[tuple[object, ...], Law] = {}

    def law(state: SamplerState, row: Row) -> Law:
        key = (row.tobytes(), state.index, state.window.tokens.tobytes(), state.params.temperature)
        if key not in known:
            known[key] = compute(state, row)
        return known[key]

    return law


SMALL, SMALL_DRAFT = Model(4, seed=1), Model(4, seed=2)
LARGE, LARGE_DRAFT = Model(16, seed=3), Model(16, seed=4)


#: Every shape with plain sampling, every setting with the widest tree; the other combinations take longer.
CASES = [
    pytest.param(shape, setting, marks=() if setting == "T=1" or shape == "tree" else pytest.mark.slow)
    for shape in SHAPES
    for setting in SETTINGS
]


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize(("shape", "setting"), CASES)
@pytest.mark.parametrize("rule", ["draw", "ratio"])
def test_exact_in_distribution(rule: AcceptRule, shape: str, setting: str) -> None:
    step = speculative(rule, shape, SMALL, SMALL_DRAFT)
    assert p_value(step, SETTINGS[setting], 3, 1500, SMALL) > 1e-4


@pytest.mark.slow
@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("rule", ["draw", "ratio"])
def test_exact_in_distribution_with_more_seeds(rule: AcceptRule) -> None:
    step = speculative(rule, "tree", SMALL, SMALL_DRAFT)
    assert p_value(step, SETTINGS["filters"], 2, 10_000, SMALL) > 1e-4


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize("rule", ["draw", "ratio"])
def test_exact_in_distribution_over_16_tokens(rule: AcceptRule) -> None:
    params = SamplingParams(temperature=0.7, top_k=10, top_p=0.9, min_p=0.05, presence_penalty=0.5)
    step = speculative(rule, "tree", LARGE, LARGE_DRAFT)
    assert p_value(step, params, 2, 2000, LARGE) > 1e-4


def draws_again(target: Model, draft: Model) -> Step:
    """Wrong: where the draw is not the guess, another token is drawn instead of the draw."""

    def step(state: SamplerState, text: Text) -> Text:
        tree, _ = guess("draw", "chain", state, text, draft)
        got = walk("draw", tree, {}, state, text, target)
        if len(got.tokens) == len(tree):
            return got.tokens
        again = fresh(state.params, state.seed + (1 << 32))
        return (*got.tokens[:-1], again.draw(target.row(text + got.tokens[:-1])))

    return step


def drops_unlikely_guesses(target: Model, draft: Model) -> Step:
    """Wrong: a guess is left out because of what it is, after it was drawn."""

    def step(state: SamplerState, text: Text) -> Text:
        tree, laws = guess("ratio", "wide", state, text, draft)
        kept = [node for node in range(1, len(tree)) if laws[0].p(tree.tokens[node]) > 0.3]
        return walk("ratio", tree.keep(kept), laws, state, text, target).tokens

    return step


@pytest.mark.usefixtures("remembered")
@pytest.mark.parametrize(
    "step",
    [
        draws_again(SMALL, SMALL_DRAFT),
        drops_unlikely_guesses(SMALL, SMALL_DRAFT),
    ],
)
def test_wrong_rules_are_caught(step: Step) -> None:
    assert p_value(step, SETTINGS["T=1"], 3, 1500, SMALL) < 1e-4


@pytest.mark.usefixtures("remembered")
def test_a_draft_of_another_temperature_than_its_law_is_caught() -> None:
    """The test must use the very law the guess was drawn from."""

    def step(state: SamplerState, text: Text) -> Text:
        warmer = replace(state, params=replace(state.params, temperature=2.5))
        tree, _ = guess("ratio", "chain", state, text, SMALL_DRAFT)
        laws = guess("ratio", "chain", warmer, text, SMALL_DRAFT)[1]
        return walk("ratio", tree, laws, state, text, SMALL).tokens

    assert p_value(step, SETTINGS["T=1"], 3, 1500, SMALL) < 1e-4
