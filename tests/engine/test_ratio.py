"""The rule ``ratio`` through the whole engine: exact in distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
from scipy import stats

from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.drafters.base import Drafter
from localspec.drafters.draft_model import DraftModel
from localspec.drafters.translated import TranslatedModel
from localspec.drafters.translation import Translation
from localspec.engine import Engine
from localspec.sampling import SamplerState
from localspec.types import Finished, SamplingParams, SpecParams
from localspec.vocab import pair
from tests.engine.support import draft_model, ngrams, request
from tests.sampling import reference

RUNS = 400
PROMPT = (2, 3, 2, 3)
PLAIN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
SAMPLINGS = {
    "filters": SamplingParams(temperature=0.7, top_k=3, top_p=0.9, min_p=0.05),
    "xtc": replace(PLAIN, xtc_probability=0.5, xtc_threshold=0.15),
    "dynatemp": replace(PLAIN, dynatemp_range=0.7, dynatemp_exponent=2.0),
    "dry": replace(PLAIN, dry_multiplier=1.0, dry_allowed_length=1, dry_sequence_breakers=()),
    "all": replace(
        PLAIN,
        xtc_probability=0.3,
        xtc_threshold=0.3,
        dynatemp_range=0.5,
        dry_multiplier=0.5,
        dry_allowed_length=0,
        dry_sequence_breakers=(),
        top_n_sigma=2.2,
    ),
}
MIROSTAT = replace(PLAIN, mirostat=2, mirostat_tau=0.8, mirostat_eta=3.0)
ADAPTIVE = replace(PLAIN, adaptive_target=0.5, adaptive_decay=0.2, samplers=("adaptive_p",))
SHAPES = {
    "chain": SpecParams(depth=2, accept="ratio"),
    "tree": SpecParams(depth=2, width=2, nodes=5, accept="ratio"),
    "cut short": SpecParams(depth=2, p_min=0.45, min_depth=2, accept="ratio"),
}


def little() -> FakeTarget:
    return FakeTarget(FakeVocab(4), seed=5, spread=1.0)


def law_of_answers(n: int, sampling: SamplingParams = PLAIN) -> dict[tuple[int, ...], float]:
    """Probability of every answer of up to ``n`` tokens; an end token ends one."""
    target = little()
    laws: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(n):
        longer: dict[tuple[int, ...], float] = {}
        for text, p in laws.items():
            if 0 in text:
                longer[text] = p
                continue
            row = target.scores(PROMPT + text)
            shares = reference.law(row, sampling, prompt=PROMPT, output=text, end_tokens=(0,), n_ctx=512)
            for token, share in shares.items():
                longer[(*text, token)] = p * share
        laws = longer
    return laws


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("noise", [0.0, 1.5])
def test_answers_have_the_target_s_distribution(shape: str, noise: float) -> None:
    """The first three tokens, an early end included, over many seeds; a draft that is the target's twin would show
    any guess that is judged in another way than it was drawn."""
    counts = answers_of([draft_model(little(), seed=5, spread=1.0, noise=noise)], SHAPES[shape])
    assert_fits(counts, law_of_answers(3))


def test_certain_guesses_have_the_target_s_distribution() -> None:
    assert_fits(answers_of([ngrams(1)], SHAPES["chain"]), law_of_answers(3))


@pytest.mark.parametrize("shape", SHAPES)
def test_translated_guesses_have_the_target_s_distribution(shape: str) -> None:
    """A draft model that calls the same two letters by other ids, and has letters of its own."""
    vocab = FakeVocab(6, renamed={2: "x", 3: "b", 4: "y", 5: "a"})
    model = FakeTarget(vocab, seed=5, spread=1.0)
    drafter = TranslatedModel(model, Translation(little().vocab, vocab))
    assert_fits(answers_of([drafter], SHAPES[shape]), law_of_answers(3))


@pytest.mark.parametrize("n_vocab", [3, 6])
@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_guesses_from_fewer_or_more_tokens_have_the_target_s_distribution(shape: str, n_vocab: int) -> None:
    """A04: what the draft model does not know has no chance with it; what only the draft model knows is not drawn."""
    vocab = FakeVocab(n_vocab)
    pairing = pair(little().vocab, vocab)
    assert pairing is not None
    drafter = DraftModel(FakeTarget(vocab, seed=8, spread=1.0), pairing)
    assert_fits(answers_of([drafter], SHAPES[shape]), law_of_answers(3))


@pytest.mark.parametrize(("name", "noise"), [("filters", 0.0), *((name, 1.0) for name in SAMPLINGS)])
@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_answers_have_the_distribution_of_their_sampler(name: str, noise: float, shape: str) -> None:
    """XTC's coins are part of it: over many seeds they fall either way. Guesses judged by another law than they were
    drawn from show in a twin where it gives them more than theirs did, else in one that errs (A04)."""
    drafter = draft_model(little(), seed=5, spread=1.0, noise=noise)
    counts = answers_of([drafter], SHAPES[shape], SAMPLINGS[name])
    assert_fits(counts, law_of_answers(3, SAMPLINGS[name]))


@pytest.mark.parametrize("params", [MIROSTAT, ADAPTIVE], ids=["mirostat", "adaptive-p"])
def test_what_was_learnt_is_the_target_s(params: SamplingParams) -> None:
    """The law after each text is that of a plain walk that learns from the target's rows."""
    drafter = draft_model(little(), seed=5, spread=1.0, noise=1.0)
    assert_fits(answers_of([drafter], SHAPES["tree"], params), learnt_law(3, params))


def learnt_law(n: int, sampling: SamplingParams) -> dict[tuple[int, ...], float]:
    target = little()
    start = SamplerState.start(sampling, seed=0, prompt=PROMPT, end_tokens=(0,), n_ctx=512)
    laws: dict[tuple[int, ...], tuple[float, SamplerState]] = {(): (1.0, start)}
    for _ in range(n):
        longer = {}
        for text, (p, state) in laws.items():
            if 0 in text:
                longer[text] = (p, state)
                continue
            row = target.scores(PROMPT + text)
            law = state.law(row)
            for token in law.ids.tolist():
                longer[(*text, token)] = p * law.p(token), state.advance(token, partial(target.scores, PROMPT + text))
        laws = longer
    return {text: p for text, (p, _) in laws.items()}


def answers_of(
    drafters: Sequence[Drafter], spec: SpecParams, sampling: SamplingParams = PLAIN
) -> Counter[tuple[int, ...]]:
    engine = Engine(little(), drafters)
    counts: Counter[tuple[int, ...]] = Counter()
    accepted = 0
    for seed in range(RUNS):
        *_, last = engine.submit(request(PROMPT, sampling=replace(sampling, seed=seed), spec=spec, n=3))
        assert isinstance(last, Finished)
        counts[(*last.ids, 0) if last.reason == "stop" else last.ids] += 1
        accepted += last.stats.accepted
    assert accepted > RUNS / 20
    return counts


def assert_fits(counts: Counter[tuple[int, ...]], laws: dict[tuple[int, ...], float]) -> None:
    laws = {text: p for text, p in laws.items() if p > 0}
    assert counts.keys() <= laws.keys()
    rare = [text for text, p in laws.items() if p * RUNS < 5]
    groups = [[text] for text in laws if text not in rare] + [rare] * bool(rare)
    seen = [sum(counts[text] for text in group) for group in groups]
    wanted = [sum(laws[text] for text in group) * RUNS for group in groups]
    assert stats.chisquare(seen, wanted).pvalue > 1e-3
