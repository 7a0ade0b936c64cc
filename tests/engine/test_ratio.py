"""The rule ``ratio`` through the whole engine: exact in distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.drafters.base import Drafter
from localspec.drafters.translated import TranslatedModel
from localspec.drafters.translation import Translation
from localspec.engine import Engine
from localspec.types import Finished, SamplingParams, SpecParams
from tests.engine.support import draft_model, ngrams, request

RUNS = 400
PROMPT = (2, 3, 2, 3)
SHAPES = {
    "chain": SpecParams(depth=2, accept="ratio"),
    "tree": SpecParams(depth=2, width=2, nodes=5, accept="ratio"),
    "cut short": SpecParams(depth=2, p_min=0.45, min_depth=2, accept="ratio"),
}


def little() -> FakeTarget:
    return FakeTarget(FakeVocab(4), seed=5, spread=1.0)


def law_of_answers(n: int) -> dict[tuple[int, ...], float]:
    """Probability of every answer of up to ``n`` tokens; an end token ends one."""
    target = little()
    laws: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(n):
        longer: dict[tuple[int, ...], float] = {}
        for text, p in laws.items():
            if 0 in text:
                longer[text] = p
                continue
            row = np.exp(target.scores(PROMPT + text).astype(float))
            for token, share in enumerate(row / row.sum()):
                longer[(*text, token)] = p * float(share)
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


def answers_of(drafters: Sequence[Drafter], spec: SpecParams) -> Counter[tuple[int, ...]]:
    engine = Engine(little(), drafters)
    counts: Counter[tuple[int, ...]] = Counter()
    accepted = 0
    for seed in range(RUNS):
        sampling = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
        *_, last = engine.submit(request(PROMPT, sampling=sampling, spec=spec, n=3))
        assert isinstance(last, Finished)
        counts[(*last.ids, 0) if last.reason == "stop" else last.ids] += 1
        accepted += last.stats.accepted
    assert accepted > RUNS / 20
    return counts


def assert_fits(counts: Counter[tuple[int, ...]], laws: dict[tuple[int, ...], float]) -> None:
    assert counts.keys() <= laws.keys()
    rare = [text for text, p in laws.items() if p * RUNS < 5]
    common = [text for text in laws if text not in rare]
    seen = [*(counts[text] for text in common), sum(counts[text] for text in rare)]
    wanted = [*(laws[text] * RUNS for text in common), sum(laws[text] for text in rare) * RUNS]
    assert stats.chisquare(seen, wanted).pvalue > 1e-3
