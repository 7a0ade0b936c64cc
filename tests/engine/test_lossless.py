"""The promise: whoever guesses, and however well, the answer is the target's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localspec.backends.base import Rows, Work
from localspec.backends.fake import END, FakeTarget, FakeVocab
from localspec.control import AutoController, FixedController
from localspec.drafters.base import Ask, Drafter
from localspec.drafters.ngram_cache import NgramCache
from localspec.drafters.ngram_mod import NgramMod
from localspec.drafters.options import ModOptions
from localspec.drafters.suffix import Suffix, SuffixCorpus
from localspec.drafters.translated import TranslatedModel
from localspec.drafters.translation import Translation
from localspec.engine import Engine
from localspec.params import SAMPLERS
from localspec.spec.tree import TokenTree
from localspec.types import DEFAULT_SAMPLERS, SamplingParams, SpecParams
from tests.drafters.support import TEXT_DRAFTERS
from tests.engine.support import (
    GREEDY,
    Scripted,
    alone,
    answer,
    draft_model,
    drain,
    fake,
    ngrams,
    oracle,
    plain,
    request,
)

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def text_drafters() -> list[Drafter]:
    return [make() for make in TEXT_DRAFTERS.values()]


def alone_of(name: str) -> Callable[[FakeTarget, int, float], list[Drafter]]:
    return lambda target, seed, noise: [TEXT_DRAFTERS[name]()]


#: What a user may give to draft from.
GIVEN = [[2, 3, 3, 2, 3, 0], [3, 2, 2, 3, 1, 2, 3]]


def of_other_ids(target: FakeTarget, seed: int, noise: float) -> list[Drafter]:
    """A draft model whose vocabulary is the target's in reverse."""
    n = target.vocab.n_tokens
    vocab = FakeVocab(n, renamed={token: target.vocab.text(n + 1 - token) for token in range(2, n)})
    model = FakeTarget(vocab, seed=seed, spread=2.0, noise=noise, n_ctx=target.caps.n_ctx)
    return [TranslatedModel(model, Translation(target.vocab, vocab))]


#: Drafters for a target of a seed, the draft model being its twin with noise.
MIXES: dict[str, Callable[[FakeTarget, int, float], list[Drafter]]] = {
    "none": lambda target, seed, noise: [],
    "draft": lambda target, seed, noise: [draft_model(target, seed=seed, noise=noise)],
    "translated": of_other_ids,
    **{name: alone_of(name) for name in TEXT_DRAFTERS},
    "given": lambda target, seed, noise: [
        Suffix(),
        SuffixCorpus(GIVEN),
        NgramMod(ModOptions(n_match=2), GIVEN),
        NgramCache({(3,): {2: 9}}, {(2, 3): {2: 2, 3: 1}}),
    ],
    "both": lambda target, seed, noise: [draft_model(target, seed=seed, noise=noise), ngrams(1)],
    "texts": lambda target, seed, noise: text_drafters(),
    "all": lambda target, seed, noise: [draft_model(target, seed=seed, noise=noise), *text_drafters()],
}


@st.composite
def samplings(draw: st.DrawFn, n_vocab: int) -> SamplingParams:
    return SamplingParams(
        temperature=draw(st.sampled_from([0.0, 0.8, 1.5])),
        top_k=draw(st.sampled_from([0, 1, 3, 40])),
        top_p=draw(st.sampled_from([1.0, 0.9, 0.3])),
        min_p=draw(st.sampled_from([0.0, 0.05, 0.4])),
        typical_p=draw(st.sampled_from([1.0, 0.7])),
        repeat_penalty=draw(st.sampled_from([1.0, 1.3])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.4])),
        presence_penalty=draw(st.sampled_from([0.0, 0.5])),
        repeat_last_n=draw(st.sampled_from([0, -1, 1, 5, 64])),
        dry_multiplier=draw(st.sampled_from([0.0, 0.8, 5.0])),
        dry_allowed_length=draw(st.sampled_from([0, 1, 2])),
        dry_penalty_last_n=draw(st.sampled_from([-1, 5, 64])),
        dry_sequence_breakers=draw(st.sampled_from([("\n", ":"), ("a",), ("ab", "c"), ()])),
        top_n_sigma=draw(st.sampled_from([-1.0, 1.0])),
        xtc_probability=draw(st.sampled_from([0.0, 0.5, 1.0])),
        dynatemp_range=draw(st.sampled_from([0.0, 0.0, 0.7])),
        mirostat=draw(st.sampled_from([0, 0, 0, 2])),
        mirostat_tau=draw(st.sampled_from([0.5, 2.0, 5.0])),
        mirostat_eta=draw(st.sampled_from([0.1, 1.0])),
        adaptive_target=draw(st.sampled_from([-1.0, 0.2, 0.6])),
        logit_bias=tuple(draw(st.lists(st.tuples(st.integers(0, n_vocab - 1), st.floats(-4, 4)), max_size=2))),
        ignore_eos=draw(st.booleans()),
        min_tokens=draw(st.sampled_from([0, 0, 4, 12])),
        samplers=tuple(draw(st.permutations(SAMPLERS))) if draw(st.booleans()) else DEFAULT_SAMPLERS,
        seed=draw(st.integers(0, 1000)),
    )


SPECS = st.builds(
    SpecParams,
    depth=st.integers(1, 6),
    min_depth=st.sampled_from([0, 0, 2]),
    p_min=st.sampled_from([0.0, 0.0, 0.3]),
    nodes=st.sampled_from([1, 3, 8, 16, 40]),
    width=st.sampled_from([1, 1, 2, 3, 9]),
)


@pytest.mark.parametrize("mix", MIXES)
@settings(few, max_examples=16)
@given(data=st.data(), n_vocab=st.integers(4, 40), seed=st.integers(0, 99), spec=SPECS)
def test_any_options_any_drafter(mix: str, data: st.DataObject, n_vocab: int, seed: int, spec: SpecParams) -> None:
    prompt = data.draw(st.lists(st.integers(0, n_vocab - 1), min_size=1, max_size=20))
    sampling = data.draw(samplings(n_vocab))
    noise = data.draw(st.sampled_from([0.0, 1.0, 5.0]))
    wish = request(prompt, sampling=sampling, spec=spec, n=30, logprobs=data.draw(st.sampled_from([None, 0, 3])))
    target = fake(n_vocab, seed=seed)
    controller = data.draw(st.sampled_from([FixedController, AutoController]))()
    got = answer(Engine(target, MIXES[mix](target, seed, noise), prompt_chunk=16, controller=controller), wish)
    assert got.told == alone(fake(n_vocab, seed=seed), plain(wish)).told
    assert not got.notices or isinstance(controller, AutoController)
    booked = got.stats.by_source
    assert sum(one.draft_n for one in booked) == got.stats.draft_n, "a guess of several is booked once"
    assert sum(one.accepted for one in booked) == got.stats.accepted


OFF = SamplingParams(temperature=0.9, top_k=0, top_p=1.0, min_p=0.0)
#: Each of the samplers that learn, look back, or toss coins, on its own and strong enough to show.
ALONE: dict[str, SamplingParams] = {
    "dry": replace(OFF, dry_multiplier=3.0, dry_allowed_length=1, dry_sequence_breakers=("b", "cd")),
    "greedy dry": SamplingParams(temperature=0, dry_multiplier=3.0, dry_allowed_length=1, dry_penalty_last_n=-1),
    "top-n-sigma": replace(OFF, top_n_sigma=1.0),
    "xtc": replace(OFF, xtc_probability=0.5, xtc_threshold=0.1),
    "greedy xtc": SamplingParams(temperature=0, xtc_probability=0.5, xtc_threshold=0.1),
    "dynatemp": replace(OFF, dynatemp_range=0.8, dynatemp_exponent=2.0),
    "dynatemp from 0": replace(OFF, temperature=0, dynatemp_range=1.5),
    "mirostat": replace(OFF, mirostat=2, mirostat_tau=1.0, mirostat_eta=0.7),
    "adaptive-p": replace(OFF, adaptive_target=0.3, adaptive_decay=0.5, samplers=("min_p", "adaptive_p"), min_p=0.01),
}
CHAIN, TREE = SpecParams(depth=4), SpecParams(depth=4, width=3, nodes=16)


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("shape", [CHAIN, TREE], ids=["chain", "tree"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 999), mix=st.sampled_from(["draft", "both", "suffix"]), noise=st.sampled_from([0.0, 1.0]))
def test_each_sampler_alone(name: str, shape: SpecParams, seed: int, mix: str, noise: float) -> None:
    sampling = replace(ALONE[name], seed=seed, ignore_eos=True)
    wish = request([3, 4, 5, 3, 4], sampling=sampling, spec=shape, n=40)
    target = fake(9, seed=seed)
    got = alone(target, wish, MIXES[mix](target, seed, noise))
    assert got.told == alone(fake(9, seed=seed), plain(wish)).told


@pytest.mark.parametrize("name", ALONE)
def test_each_sampler_shows_in_the_text_and_guesses_hold(name: str) -> None:
    """Otherwise the equality would say little."""
    without = OFF if ALONE[name].temperature > 0 or "from 0" in name else SamplingParams(temperature=0)
    differ = accepted = 0
    for seed in range(8):
        texts = []
        for sampling in (ALONE[name], without):
            target = fake(9, seed=seed)
            wish = request([3, 4, 5], sampling=replace(sampling, seed=seed, ignore_eos=True), spec=TREE, n=30)
            one = alone(target, wish, [draft_model(target, seed=seed, noise=0.3)])
            texts.append(one.ids)
            accepted += one.stats.accepted
        differ += texts[0] != texts[1]
    assert differ >= 4
    assert accepted > 16


#: Every sampling option: what else it needs to matter, and a value that shows.
EACH: dict[str, tuple[dict[str, object], object]] = {
    "temperature": ({}, 1.5),
    "top_k": ({"temperature": 2.0}, 2),
    "top_p": ({"temperature": 2.0}, 0.3),
    "min_p": ({"temperature": 2.0}, 0.5),
    "typical_p": ({}, 0.1),
    "repeat_penalty": ({}, 1.8),
    "frequency_penalty": ({}, 1.5),
    "presence_penalty": ({}, 1.5),
    "repeat_last_n": ({"frequency_penalty": 1.5}, 2),
    "dry_multiplier": ({"dry_allowed_length": 1}, 3.0),
    "dry_base": ({"dry_multiplier": 0.3, "dry_allowed_length": 0}, 4.0),
    "dry_allowed_length": ({"dry_multiplier": 3.0}, 0),
    "dry_penalty_last_n": ({"dry_multiplier": 3.0, "dry_allowed_length": 0}, 3),
    "dry_sequence_breakers": ({"dry_multiplier": 3.0, "dry_allowed_length": 1}, ("a", "b", "c")),
    "top_n_sigma": ({"temperature": 2.0}, 0.5),
    "xtc_probability": ({"temperature": 0.8, "xtc_threshold": 0.05}, 1.0),
    "xtc_threshold": ({"temperature": 0.8, "xtc_probability": 1.0, "top_p": 1.0, "min_p": 0.0}, 0.02),
    "dynatemp_range": ({"temperature": 1.0}, 1.0),
    "dynatemp_exponent": ({"temperature": 1.0, "dynatemp_range": 1.0}, 6.0),
    "mirostat": ({"temperature": 1.0, "mirostat_tau": 1.0}, 2),
    "mirostat_tau": ({"temperature": 1.0, "mirostat": 2}, 0.5),
    "mirostat_eta": ({"temperature": 1.0, "mirostat": 2, "mirostat_tau": 1.0}, 2.0),
    "adaptive_target": ({"temperature": 1.0, "samplers": ("adaptive_p",)}, 0.2),
    "adaptive_decay": ({"temperature": 1.0, "samplers": ("adaptive_p",), "adaptive_target": 0.3}, 0.0),
    "logit_bias": ({}, ((3, -100.0), (4, -math.inf))),
    "ignore_eos": ({"logit_bias": ((END, 2.0),)}, True),
    "min_tokens": ({"logit_bias": ((END, 2.0),)}, 12),
    "samplers": ({"temperature": 2.0, "top_k": 3}, ("temperature",)),
    "seed": ({"temperature": 1.0}, 77),
    "grammar": ({}, "root ::= ([a-c] [c-g])*"),
}


@pytest.mark.parametrize("option", [one.name for one in fields(SamplingParams)])
def test_no_option_is_skipped_where_guesses_hold(option: str) -> None:
    """A06, A07: guesses are what the target says *without* the option; what goes out is what it says with it."""
    base, value = EACH[option]
    without = SamplingParams(**{"temperature": 0.0, "seed": 5, **base})  # type: ignore[arg-type]
    params = replace(without, **{option: value})  # type: ignore[arg-type]
    differ = accepted = 0
    for seed in range(5):
        ids = alone(fake(9, seed=seed), request([3, 4, 5, 3], sampling=without, spec=SpecParams(depth=0), n=30)).ids
        wish = request([3, 4, 5, 3], sampling=params, spec=replace(TREE, depth=6), n=30, logprobs=1)
        wanted = alone(fake(9, seed=seed), plain(wish))
        drafters: list[Drafter] = [Scripted(oracle((3, 4, 5, 3, *ids)))]
        drafters.append(draft_model(fake(9, seed=seed), seed=seed, noise=0.5))
        got = alone(fake(9, seed=seed), wish, drafters)
        assert got.told == wanted.told
        differ += got.ids != ids
        accepted += got.stats.accepted
    assert differ > 1
    assert accepted > 10


@pytest.mark.parametrize("mix", MIXES)
def test_the_prompt_is_read_in_the_same_pieces_whoever_guesses(mix: str) -> None:
    """A01: rounding depends on the rows of a pass, so another shape of it could change the very first token."""

    class Recording(FakeTarget):
        def forward(self, work: Sequence[Work]) -> list[Rows]:
            read.extend(item.tree.tokens for item in work if item.rows_from == len(item.tree))
            return super().forward(work)

    wish = request([2 + i * i % 7 for i in range(45)], n=12, spec=TREE)
    pieces = []
    for name, asked in (("none", plain(wish)), (mix, wish)):
        read: list[tuple[int, ...]] = []
        target = Recording(FakeVocab(12), spread=2.0)
        alone(target, asked, MIXES[name](target, 0, 0.5))
        pieces.append(read)
    assert pieces[0] == pieces[1]
    assert [len(piece) for piece in pieces[0]] == [16, 16, 12]


@pytest.mark.parametrize("mix", ["draft", "translated", "ngram-simple", "both", "texts"])
@few
@given(data=st.data(), n_ctx=st.integers(24, 64), spec=SPECS, temperature=st.sampled_from([0.0, 0.9]))
def test_up_to_the_last_cell(mix: str, data: st.DataObject, n_ctx: int, spec: SpecParams, temperature: float) -> None:
    """E01: near the end of the context trees shrink, then single tokens, then ``length``."""
    length = data.draw(st.one_of(st.integers(max(n_ctx - 6, 1), n_ctx), st.integers(1, n_ctx)))
    prompt = [2 + i % 7 for i in range(length)]
    sampling = SamplingParams(temperature=temperature, ignore_eos=True, seed=3)
    wish = request(prompt, sampling=sampling, spec=spec)
    target = fake(n_ctx=n_ctx, sequences=2)
    got = alone(target, wish, MIXES[mix](target, 0, 0.5))
    assert got.told == alone(fake(n_ctx=n_ctx), plain(wish)).told
    assert got.finished.reason == "length"
    assert len(got.ids) == n_ctx - length + 1


@pytest.mark.parametrize(
    ("n_ctx", "drafted"), [(24, (6, 6, 0)), (22, (6, 5)), (18, (6, 1)), (17, (6, 0)), (16, (6,)), (12, (2,))]
)
def test_guesses_shrink_with_the_room(n_ctx: int, drafted: tuple[int, ...]) -> None:
    """E01: as many as there are cells for, not all or none."""
    prompt = tuple(2 + i % 7 for i in range(10))
    wish = request(prompt, sampling=SamplingParams(temperature=0, ignore_eos=True), spec=SpecParams(depth=6))
    wanted = alone(fake(n_ctx=n_ctx), plain(wish))
    got = alone(fake(n_ctx=n_ctx), wish, [Scripted(oracle((*prompt, *wanted.ids, 2, 2, 2)))])
    assert got.told == wanted.told
    assert tuple(step.draft_n for step in got.steps) == drafted


def scripted_answers(script: Callable[[tuple[int, ...]], Scripted], spec: SpecParams) -> None:
    for temperature, seed in ((0.0, 1), (0.8, 2), (1.5, 3)):
        sampling = SamplingParams(temperature=temperature, seed=seed)
        wish = request([3, 4, 5, 3], sampling=sampling, spec=spec, n=40, logprobs=2)
        wanted = alone(fake(9), plain(wish))
        got = alone(fake(9), wish, [script((3, 4, 5, 3, *wanted.ids))])
        assert got.told == wanted.told


@pytest.mark.parametrize("wrong_after", [None, 0, 1, 2, 5])
@pytest.mark.parametrize("depth", [1, 5, 30])
def test_scripted_chains(wrong_after: int | None, depth: int) -> None:
    def script(text: tuple[int, ...]) -> Scripted:
        return Scripted(oracle(text, wrong_after=wrong_after, n_vocab=9))

    scripted_answers(script, SpecParams(depth=depth, nodes=60))


def test_a_perfect_guess_stands_whole() -> None:
    wish = request([3, 4, 5, 3], sampling=SamplingParams(temperature=0, ignore_eos=True), n=41)
    ids = alone(fake(9), plain(wish)).ids
    spec = SpecParams(depth=5, nodes=60)
    guided = request([3, 4, 5, 3], sampling=wish.sampling, spec=spec, n=41)
    got = alone(fake(9), guided, [Scripted(oracle((3, 4, 5, 3, *ids)))])
    assert got.ids == ids
    assert got.stats.alpha == 1.0
    assert got.stats.steps == 7  # 6 tokens a step
    assert {info.source for info in got.infos} == {"scripted", ""}


def full_tree(ask: Ask) -> TokenTree:
    """Every token below every node, as deep as the limits allow."""
    limits = ask.price.limits
    tokens, parents = [ask.tokens[-1]], [-1]
    depths = [0]
    for node in range(limits.nodes):
        if node >= len(tokens) or depths[node] >= limits.depth:
            break
        for token in range(9):
            if len(tokens) <= limits.nodes and token < limits.width:
                tokens.append(8 - token)
                parents.append(node)
                depths.append(depths[node] + 1)
    n = len(tokens)
    return TokenTree(tuple(tokens), tuple(parents), (1.0,) * n, ("",) + ("scripted",) * (n - 1))


@pytest.mark.parametrize("width", [2, 9])
def test_trees_of_every_token(width: int) -> None:
    scripted_answers(lambda text: Scripted(full_tree), SpecParams(depth=3, nodes=31, width=width))


def greedy_for_more(ask: Ask) -> TokenTree:
    """Takes no notice of limits: 8 children a node, 3 levels."""
    tokens, parents = [ask.tokens[-1]], [-1]
    for node in range(73):
        for token in range(1, 9):
            tokens.append(token)
            parents.append(node)
    n = len(tokens)
    return TokenTree(tuple(tokens), tuple(parents), (1.0,) + (0.1,) * (n - 1), ("",) + ("scripted",) * (n - 1))


@pytest.mark.parametrize(("width", "nodes", "depth"), [(1, 3, 3), (2, 16, 2), (9, 31, 3), (3, 16, 1)])
def test_limits_hold_for_a_drafter_that_ignores_them(width: int, nodes: int, depth: int) -> None:
    spec = SpecParams(depth=depth, nodes=nodes, width=width)
    scripted_answers(lambda text: Scripted(greedy_for_more), spec)
    drafter = Scripted(greedy_for_more)
    alone(fake(9), request([3, 4], spec=spec, n=20), [drafter])
    for tree, _ in drafter.seen:
        assert tree.draft_n <= nodes
        assert max(tree.depths) <= depth
        assert max(len(kids) for kids in tree.children) <= width


def test_a_chain_is_asked_for_and_two_drafters_disagree() -> None:
    """A target without trees gets none, even where two chains are merged."""
    one = Scripted(lambda ask: TokenTree.chain([ask.tokens[-1], 3, 4], source="one"), name="one")
    two = Scripted(lambda ask: TokenTree.chain([ask.tokens[-1], 5, 6], source="two"), name="two")
    for spec in (SpecParams(), SpecParams(width=4)):
        wish = request([3, 4, 5], n=30, spec=spec)
        assert alone(fake(trees=False), wish, [one, two]).told == alone(fake(), plain(wish)).told
    assert all(tree.is_chain for tree, _ in one.seen)


@pytest.mark.parametrize("at", range(6))
def test_an_end_token_in_the_middle_of_a_guess(at: int) -> None:
    """Guesses behind an end token are dropped, those in front of it stand (B01)."""

    def script(text: tuple[int, ...]) -> Scripted:
        def guess(ask: Ask) -> TokenTree:
            tokens = list(text[len(ask.tokens) :][:5])
            tokens[at:at] = [END]
            return TokenTree.chain([ask.tokens[-1], *tokens], source="scripted")

        return Scripted(guess)

    scripted_answers(script, SpecParams(depth=6, nodes=16))


@few
@given(n_vocab=st.integers(4, 40), seed=st.integers(0, 99), spec=SPECS)
def test_rule_ratio_is_exact_at_temperature_zero(n_vocab: int, seed: int, spec: SpecParams) -> None:
    spec = SpecParams(spec.depth, spec.min_depth, spec.p_min, spec.nodes, spec.width, accept="ratio")
    wish = request([2, 3, 2], spec=spec, n=30, logprobs=1)
    target = fake(n_vocab, seed=seed)
    got = alone(target, wish, [draft_model(target, seed=seed, noise=1.0), ngrams()])
    assert got.told == alone(fake(n_vocab, seed=seed), plain(wish)).told


def test_every_depth_zero_is_plain_decoding() -> None:
    """F06: ``depth=0`` asks no drafter."""

    def never(ask: Ask) -> TokenTree:
        raise AssertionError("asked")

    drafter = Scripted(never)
    for spec in (SpecParams(depth=0), SpecParams(nodes=0), SpecParams(types=("none",)), SpecParams(types=())):
        got = answer(Engine(fake(), [drafter]), request([3, 4], sampling=GREEDY, spec=spec, n=10))
        assert got.stats.draft_n == 0
        assert not got.notices


def test_idle_conversations_hold_branches_too() -> None:
    """A tree as wide as the model allows, beside conversations that only wait."""

    class Counting(FakeTarget):
        def forward(self, work: Sequence[Work]) -> list[Rows]:
            branches = sum(len(item.tree.leaves) - 1 for item in work) + len(self._cells)
            assert branches <= self.caps.max_leaves
            return super().forward(work)

    engine = Engine(Counting(FakeVocab(9), spread=2.0, leaves=8), [Scripted(greedy_for_more)])
    for token in (3, 4, 5, 6):
        wish = request([token] * 4, spec=SpecParams(depth=2, nodes=60, width=60), n=10)
        assert answer(engine, wish).told == alone(fake(9), plain(wish)).told


def test_few_branches_shorten_no_chain() -> None:
    """Many at once share the sequence ids of branches; what is left is one branch each, as deep as asked for."""
    spec = SpecParams(depth=4, nodes=12, width=3)
    target = fake(9, sequences=8, leaves=8)
    engine = Engine(target, [draft_model(target)])
    handles = [engine.submit(request([3 + i], sampling=GREEDY, spec=spec, n=20)) for i in range(6)]
    for got in drain(engine, handles):
        assert max(got.stats.lengths) > 0
        assert len(got.stats.lengths) == 5, "four guesses accepted in one step"
