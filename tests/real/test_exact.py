"""Speculation changes no token: F32 weights and caches, where rounding is far below what a fault would show.

Here each of the ten prompts comes once with a draft model, and those that tell most with the others, so that with every
drafter there are greedy and seeded answers, as chains and as trees. Most of it is told of the model's first layers: a
fault would show there too. ``scripts/equality.py`` runs the whole: the whole model, every drafter, both shapes, every
sampler option, all prompts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.backends.llamacpp import LlamaTarget
from localspec.drafters.registry import MAKERS
from localspec.engine import Engine
from localspec.types import GenerationRequest, Message, SamplingParams, SpecParams
from tests.engine.support import Outcome
from tests.real.support import CHAIN, GREEDY, PLAIN, running, ties, together

#: Small, since every row has its price in F32; test_trees.py has large ones.
TREE = SpecParams(depth=4, nodes=7, width=3, mode="fixed")
SEEDED = SamplingParams(temperature=0.8, seed=7)


def chat(text: str) -> GenerationRequest:
    return GenerationRequest(messages=(Message("user", text),))


def raw(text: str) -> GenerationRequest:
    return GenerationRequest(prompt=text)


PROMPTS = (
    chat("What is the capital of France?"),
    chat("Write a Python function that returns the n-th Fibonacci number."),
    raw("The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the"),
    chat("List five fruits, one a line."),
    raw("Once upon a time, in a village by the sea, there lived"),
    chat("Repeat this text three times: the rain in Spain stays mainly in the plain."),
    raw("1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,"),
    chat("Erkläre auf Deutsch, was ein Baum ist. 😀"),
    raw("def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n"),
    raw('{"name": "Ada", "age": 36}\n{"name": "Bob", "age": 41}\n{"name": "'),
)


def wishes(
    prompts: tuple[GenerationRequest, ...], n: int, samplings: tuple[SamplingParams, ...] = (GREEDY, SEEDED)
) -> list[GenerationRequest]:
    return [replace(prompt, max_tokens=n, sampling=sampling) for sampling in samplings for prompt in prompts]


def alternating(asked: list[GenerationRequest]) -> list[GenerationRequest]:
    """Chains and trees by turns: where there are two prompts, every sampling gets both."""
    return [replace(wish, spec=(CHAIN, TREE)[i % 2]) for i, wish in enumerate(asked)]


#: Those whose answers say again what stands there, for drafters that look there.
REPEATING = (2, 5, 6, 8, 9)


def once_each(n: int) -> list[GenerationRequest]:
    """All prompts, chains and trees by turns; greedy where guesses by repetition shall hold, seeded elsewhere."""
    return [
        replace(prompt, max_tokens=n, sampling=GREEDY if i in REPEATING else SEEDED, spec=(CHAIN, TREE)[i % 2])
        for i, prompt in enumerate(PROMPTS)
    ]


ASKED = once_each(64)
#: Greedy and seeded, as chains and as trees, for drafters that look back; ``test_a_good_draft_model`` has all ten.
LOOKING_BACK = [ASKED[i] for i in (2, 4, 5, 7, 8)]


class Plain:
    """Answers of the target alone, each made once."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._known: dict[GenerationRequest, Outcome] = {}

    def answers(self, asked: list[GenerationRequest]) -> list[Outcome]:
        asked = [replace(wish, spec=PLAIN) for wish in asked]
        new = [wish for wish in asked if wish not in self._known]
        self._known.update(zip(new, together(self.engine, new), strict=True))
        return [self._known[wish] for wish in asked]

    def same(self, engine: Engine, asked: list[GenerationRequest]) -> list[Outcome]:
        """The answers of ``engine``, after comparing each with the target's own."""
        target = self.engine.target
        assert isinstance(target, LlamaTarget)
        outcomes = together(engine, asked)
        parted = 0
        for wish, ours, plain in zip(asked, outcomes, self.answers(asked), strict=True):
            parted += ties(target, wish, self.engine.encode(wish), ours, plain)
        stats = [one.stats for one in outcomes]
        tokens, steps = sum(one.emitted for one in stats), sum(one.steps for one in stats)
        print(f"{tokens} tokens in {steps} steps, alpha {acceptance(outcomes):.3f}, parted at near-ties: {parted}")
        assert parted <= 1, "near-ties are rare"
        return outcomes


@pytest.fixture(scope="module")
def whole(smol_f32: Path) -> Iterator[Plain]:
    # One sequence is left free for the rows that near-ties are judged by.
    with running(smol_f32, spec_types=("none",), sequences=6, n_ctx=1536) as engine:
        yield Plain(engine)


@pytest.fixture(scope="module")
def plain(beginning_f32: Path) -> Iterator[Plain]:
    """Of the first layers alone."""
    with running(beginning_f32, spec_types=("none",), sequences=6, n_ctx=1536) as engine:
        yield Plain(engine)


def acceptance(outcomes: list[Outcome]) -> float:
    tested = sum(one.stats.tested for one in outcomes)
    return sum(one.stats.accepted for one in outcomes) / max(tested, 1)


@pytest.mark.timeout(400)
def test_a_good_draft_model(plain: Plain, beginning_f32: Path, beginning: Path) -> None:
    with running(beginning_f32, beginning, sequences=5, n_ctx=1280) as engine:
        outcomes = plain.same(engine, ASKED)
    assert acceptance(outcomes) > 0.6


@pytest.mark.timeout(400)
def test_a_whole_model(whole: Plain, smol_f32: Path, smol: Path) -> None:
    with running(smol_f32, smol, sequences=4, n_ctx=1024) as engine:
        outcomes = whole.same(engine, once_each(24)[1:5])
    assert acceptance(outcomes) > 0.6


@pytest.mark.timeout(400)
def test_a_draft_model_that_is_always_wrong(plain: Plain, beginning_f32: Path, random_draft: Path) -> None:
    with running(beginning_f32, random_draft, sequences=5, n_ctx=1280) as engine:
        outcomes = plain.same(engine, once_each(10)[1:6])
    assert acceptance(outcomes) < 0.05
    assert all(one.stats.draft_n > 0 for one in outcomes)


@pytest.mark.timeout(400)
def test_ngrams(plain: Plain, beginning_f32: Path) -> None:
    with running(beginning_f32, spec_types=("ngram-simple",), sequences=5, n_ctx=1280) as engine:
        outcomes = plain.same(engine, LOOKING_BACK)
    assert sum(one.stats.accepted for one in outcomes) > 20


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", sorted({*MAKERS} - {"suffix", "ngram-simple"}))
def test_others_that_need_no_model(plain: Plain, beginning_f32: Path, name: str) -> None:
    with running(beginning_f32, spec_types=(name,), sequences=5, n_ctx=1280) as engine:
        outcomes = plain.same(engine, [ASKED[i] for i in (7, 8, 9)])
    assert sum(one.stats.accepted for one in outcomes) > 0


@pytest.mark.timeout(400)
def test_suffixes(plain: Plain, beginning_f32: Path) -> None:
    with running(beginning_f32, spec_types=("suffix",), sequences=5, n_ctx=1280) as engine:
        outcomes = plain.same(engine, LOOKING_BACK)
    assert sum(one.stats.accepted for one in outcomes) > 20


@pytest.mark.timeout(400)
def test_draft_model_and_ngrams_merged(plain: Plain, beginning_f32: Path, beginning: Path) -> None:
    types = ("draft-simple", "ngram-simple")
    with running(beginning_f32, beginning, spec_types=types, sequences=5, n_ctx=1280) as engine:
        outcomes = plain.same(engine, ASKED[1:6])
    sources = {by.name for one in outcomes for by in one.stats.by_source if by.accepted}
    assert sources == set(types)


OPTIONS = {
    "penalties": SamplingParams(temperature=0, seed=1, repeat_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.2),
    "short-window": SamplingParams(temperature=0, seed=1, repeat_penalty=1.3, repeat_last_n=8),
    # " the", " France" and a bias that raises a word.
    "bias": SamplingParams(temperature=0, seed=1, logit_bias=((260, -float("inf")), (4649, -100.0), (216, 3.0))),
    "typical": SamplingParams(temperature=1.1, seed=3, typical_p=0.7, top_k=0),
    "min-p": SamplingParams(temperature=1.2, seed=4, min_p=0.1, top_p=0.8, top_k=20),
}


@pytest.mark.timeout(400)
def test_sampler_options(plain: Plain, beginning_f32: Path, beginning: Path) -> None:
    asked = alternating(wishes((PROMPTS[0], PROMPTS[2]), 24, tuple(OPTIONS.values())))
    with running(beginning_f32, beginning, sequences=5, n_ctx=1280) as engine:
        outcomes = dict(zip(asked, plain.same(engine, asked), strict=True))
    for wish, one in outcomes.items():
        assert not {token for token, bias in wish.sampling.logit_bias if bias < 0} & set(one.ids)


ENDS = (GREEDY, replace(GREEDY, min_tokens=20), replace(GREEDY, ignore_eos=True))


@pytest.mark.timeout(400)
def test_ends_that_are_put_off(whole: Plain, smol_f32: Path, smol: Path) -> None:
    """Only the whole model finds an end."""
    asked = alternating(wishes(PROMPTS[:1], 24, ENDS))
    with running(smol_f32, smol, sequences=3, n_ctx=768) as engine:
        ended, put_off, ignored = whole.same(engine, asked)
    assert (ended.finished.reason, ignored.finished.reason) == ("stop", "length")
    assert len(ended.ids) < 20 <= len(put_off.ids)


DRY = SamplingParams(temperature=0, seed=1, dry_multiplier=0.8, dry_allowed_length=4, dry_penalty_last_n=-1)
LEARNING = (
    DRY,
    SamplingParams(seed=15, temperature=0.9, mirostat=2, mirostat_tau=2, mirostat_eta=0.3),
    SamplingParams(seed=13, temperature=0.6, xtc_probability=0.3, xtc_threshold=0.2),
)


@pytest.mark.timeout(400)
def test_samplers_that_look_back_learn_or_toss_coins(plain: Plain, beginning_f32: Path) -> None:
    asked = alternating(wishes((PROMPTS[2], PROMPTS[8]), 32, LEARNING))
    with running(beginning_f32, spec_types=("suffix", "ngram-simple"), sequences=5, n_ctx=1280) as engine:
        outcomes = plain.same(engine, asked)
    for sampling in LEARNING:
        ours = [one for wish, one in zip(asked, outcomes, strict=True) if wish.sampling == sampling]
        assert sum(one.stats.accepted for one in ours) > 0, sampling
    without = plain.answers([replace(wish, sampling=replace(DRY, dry_multiplier=0)) for wish in asked[:2]])
    assert [one.ids for one in outcomes[:2]] != [one.ids for one in without]


@pytest.mark.timeout(400)
def test_log_probabilities(plain: Plain, beginning_f32: Path, beginning: Path) -> None:
    asked = [replace(wish, logprobs=5, spec=TREE) for wish in wishes(PROMPTS[1:3], 20)]
    with running(beginning_f32, beginning, sequences=4, n_ctx=1024) as engine:
        outcomes = plain.same(engine, asked)
    for ours, theirs in zip(outcomes, plain.answers(asked), strict=True):
        assert len(ours.infos) == len(ours.ids)
        for one, other in zip(ours.infos, theirs.infos, strict=True):
            assert (one.id, one.piece) == (other.id, other.piece)
            assert one.logprob == pytest.approx(other.logprob, abs=1e-3)
            assert one.target_p == pytest.approx(other.target_p, abs=1e-3)
            assert [a.logprob for a in one.top] == pytest.approx([a.logprob for a in other.top], abs=1e-3)
            assert one.logprob is not None
            assert one.logprob <= one.top[0].logprob
    assert len({info.logprob for one in outcomes for info in one.infos}) > 50


@pytest.mark.parametrize("spec", [CHAIN, TREE], ids=["chain", "tree"])
def test_three_at_once_are_each_as_alone(
    plain: Plain, beginning_f32: Path, random_draft: Path, spec: SpecParams
) -> None:
    asked = [replace(wish, spec=spec) for wish in wishes(PROMPTS[2:5], 12, (GREEDY,))]
    target = plain.engine.target
    assert isinstance(target, LlamaTarget)
    with running(beginning_f32, random_draft, sequences=3) as engine:
        for wish, ours in zip(asked, together(engine, asked), strict=True):
            with_nobody = together(plain.engine, [replace(wish, spec=PLAIN)])[0]
            assert ties(target, wish, plain.engine.encode(wish), ours, with_nobody) == 0
