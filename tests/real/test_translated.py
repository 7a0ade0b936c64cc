"""A draft model of another tokenizer: SmolLM2 (BPE) and Gemma (SentencePiece) guess for each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.backends.llamacpp import LlamaTarget
from localspec.drafters.translated import TranslatedModel
from localspec.engine import Engine
from localspec.types import GenerationRequest, Message, SamplingParams, SpecParams
from tests.engine.support import Outcome
from tests.real.support import CHAIN, GREEDY, PLAIN, TREE, answer, fresh_row, running, ties, together

CODE = "def fibonacci(n):\n    if n <= 1:\n        return n\n    "
PROSE = "The capital of France is"
SIGNS = "Ein Gruß aus Köln — «çà et là», 東京で ☕ 10 €:\n"
WARM = SamplingParams(temperature=0.8, seed=4)
IN_RATIO = replace(CHAIN, accept="ratio")


@pytest.fixture(scope="module")
def exact(smol_f32: Path, gemma: Path) -> Iterator[Engine]:
    # Conversations that no test takes are there for `ties`.
    with running(smol_f32, gemma, sequences=12) as engine:
        yield engine


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("prompt", "spec", "sampling"),
    [(CODE, CHAIN, GREEDY), (SIGNS, TREE, WARM), (PROSE, IN_RATIO, GREEDY)],
    ids=["chain", "warm tree", "ratio"],
)
def test_the_text_is_the_target_s_own(exact: Engine, prompt: str, spec: SpecParams, sampling: SamplingParams) -> None:
    wish = GenerationRequest(prompt=prompt, sampling=sampling, spec=spec, max_tokens=20)
    ours, plain = answer(exact, wish), answer(exact, replace(wish, spec=PLAIN))
    assert ties(exact.target, wish, exact.encode(wish), ours, plain) <= 1  # type: ignore[arg-type]
    assert ours.stats.accepted > 0
    assert not ours.notices


def test_a_conversation_goes_on(exact: Engine) -> None:
    """A template's control tokens, a second turn over the first, and the first again."""
    first = (Message("user", "Name one colour."),)
    wish = GenerationRequest(messages=first, sampling=GREEDY, spec=CHAIN, max_tokens=8)
    one = answer(exact, wish)
    second = replace(wish, messages=(*first, Message("assistant", one.text), Message("user", "And another?")))
    for asked in (second, wish):
        got, plain = answer(exact, asked), answer(exact, replace(asked, spec=PLAIN))
        assert ties(exact.target, asked, exact.encode(asked), got, plain) <= 1  # type: ignore[arg-type]
    (drafter,) = [one for one in exact._panel._drafters if isinstance(one, TranslatedModel)]
    assert all(len(drafter._read[seq].cells) == drafter._model.n_past(lane) for seq, lane in drafter._lanes.items())


#: How far logits of Gemma's Q4_K_M weights move with the grouping of rows, at most (tests/real/test_quantised.py).
ROUNDING = 1.5


@pytest.mark.timeout(300)
def test_smol_guesses_for_gemma(smol: Path, gemma: Path) -> None:
    """Quantised weights round: texts may part, where two tokens are nearly as likely."""
    with running(gemma, smol, sequences=8) as engine:
        assert dict(engine.info.loads[1].settings)["vocabulary"] == "translated, 46145 tokens are the target's"
        asked = [
            GenerationRequest(prompt=prompt, sampling=GREEDY, spec=CHAIN, max_tokens=24)
            for prompt in (CODE, PROSE, SIGNS)
        ]
        answers = together(engine, asked)
        plainly = together(engine, [replace(one, spec=PLAIN) for one in asked])
        for wish, ours, plain in zip(asked, answers, plainly, strict=True):
            gap = gap_where_they_part(engine, wish, ours, plain)
            print(f"{wish.prompt!r}: alpha {ours.stats.alpha:.2f}, parted by {gap:.3f}")
            assert gap < ROUNDING
    assert sum(one.stats.accepted for one in answers) > 12


def gap_where_they_part(engine: Engine, wish: GenerationRequest, ours: Outcome, plain: Outcome) -> float:
    """How far apart (logits) the target finds the first two tokens that differ; 0 if none does."""
    at = next((i for i, (one, other) in enumerate(zip(ours.ids, plain.ids, strict=False)) if one != other), None)
    if at is None:
        assert ours.ids == plain.ids
        return 0.0
    assert isinstance(engine.target, LlamaTarget)
    row = fresh_row(engine.target, [*engine.encode(wish), *plain.ids[:at]])
    return float(row.max() - min(row[ours.ids[at]], row[plain.ids[at]]))
