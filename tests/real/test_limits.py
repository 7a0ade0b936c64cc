"""Where batch, cells or sequence ids run out: the same text to the last token, and no abort."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from localspec.types import GenerationRequest, Message, SamplingParams, SpecParams
from tests.real.support import CHAIN, GREEDY, PLAIN, TREE, answer, running, together

DEEP = SpecParams(depth=16, nodes=16, mode="fixed")
SQUARE = SpecParams(depth=4, nodes=16, width=4, mode="fixed")
IGNORE_EOS = SamplingParams(temperature=0.0, seed=1, ignore_eos=True)


def tokens(n: int) -> tuple[int, ...]:
    """A text with repetitions, for n-grams to find."""
    return tuple(500 + i * i % 37 for i in range(n))


@pytest.mark.parametrize("spec", [DEEP, SQUARE], ids=["chain", "tree"])
@pytest.mark.parametrize("length", [200, 245, 250, 254, 255, 256])
def test_to_the_last_cell(random_draft: Path, length: int, spec: SpecParams) -> None:
    wish = GenerationRequest(tokens=tokens(length), sampling=IGNORE_EOS, spec=spec)
    types = ("draft-simple", "ngram-simple")
    with running(random_draft, random_draft, spec_types=types, n_ctx=256, tree_nodes=16) as engine:
        ours = answer(engine, wish)
        plain = answer(engine, replace(wish, spec=PLAIN))
    assert ours.ids == plain.ids
    assert len(ours.ids) == 256 - length + 1
    assert ours.finished.reason == plain.finished.reason == "length"
    if length < 254:
        assert ours.stats.accepted > 0


def test_to_the_last_cell_of_a_real_model(beginning_f32: Path, beginning: Path) -> None:
    wish = GenerationRequest(prompt="one two three four five " * 48, sampling=IGNORE_EOS, spec=DEEP)
    with running(beginning_f32, beginning, n_ctx=256, tree_nodes=16) as engine:
        assert 230 < len(engine.encode(wish)) < 250
        ours, plain = answer(engine, wish), answer(engine, replace(wish, spec=PLAIN))
    assert (ours.ids, ours.finished.reason) == (plain.ids, "length")
    assert ours.stats.accepted > 0


def test_a_batch_smaller_than_the_tree(random_draft: Path) -> None:
    wish = GenerationRequest(
        tokens=tokens(200),
        sampling=GREEDY,
        spec=SpecParams(depth=8, nodes=80, width=10, mode="fixed"),
        max_tokens=24,
        trace=True,
    )
    with running(random_draft, random_draft, n_ctx=512, n_batch=64, n_ubatch=64, tree_nodes=80) as engine:
        ours, plain = answer(engine, wish), answer(engine, replace(wish, spec=PLAIN))
    assert ours.ids == plain.ids
    assert max(one.draft_n for one in ours.steps) > 60


def test_physical_batches_smaller_than_the_tree(random_draft: Path) -> None:
    wish = GenerationRequest(
        tokens=tokens(50), sampling=GREEDY, spec=SpecParams(depth=8, nodes=40, width=8, mode="fixed"), max_tokens=24
    )
    with running(random_draft, random_draft, n_ubatch=16, tree_nodes=40) as engine:
        ours, plain = answer(engine, wish), answer(engine, replace(wish, spec=PLAIN))
    assert ours.ids == plain.ids
    assert max(one.draft_n for one in ours.steps) == 40


def test_more_tree_nodes_than_there_is_context(random_draft: Path) -> None:
    wish = GenerationRequest(tokens=tokens(20), sampling=GREEDY, spec=SQUARE, max_tokens=8)
    with running(random_draft, random_draft, n_ctx=256, tree_nodes=300) as engine:
        ours, plain = answer(engine, wish), answer(engine, replace(wish, spec=PLAIN))
    assert ours.ids == plain.ids


def test_a_prompt_longer_than_the_batch(beginning: Path) -> None:
    text = ("word " * 200).strip()
    wish = GenerationRequest(prompt=text, sampling=GREEDY, max_tokens=8, spec=CHAIN)
    with running(beginning, spec_types=("ngram-simple",), n_batch=128, n_ubatch=128) as engine:
        assert len(engine.encode(wish)) >= 200
        ours, plain = answer(engine, wish), answer(engine, replace(wish, spec=PLAIN))
    assert ours.ids == plain.ids
    assert ours.stats.draft_n > 0


def test_as_many_leaves_as_there_are_ids(random_draft: Path) -> None:
    wish = GenerationRequest(
        tokens=tokens(60),
        sampling=SamplingParams(temperature=5.0, top_k=0, top_p=1.0, min_p=0.0, seed=1),
        spec=SpecParams(depth=1, nodes=255, width=255, mode="fixed"),
        max_tokens=6,
        trace=True,
    )
    with running(random_draft, random_draft, n_ctx=1024, n_batch=512, tree_nodes=300) as engine:
        ours, plain = answer(engine, wish), answer(engine, replace(wish, spec=PLAIN))
    assert ours.ids == plain.ids
    assert max(one.draft_n for one in ours.steps) == 255


@pytest.mark.parametrize("sequences", [2, 3])
def test_several_answers_share_the_cells(random_draft: Path, sequences: int) -> None:
    asked = [
        GenerationRequest(tokens=tokens(n), sampling=IGNORE_EOS, spec=SQUARE, max_tokens=60)
        for n in (40, 57, 73)[:sequences]
    ]
    with running(random_draft, random_draft, n_ctx=512, sequences=sequences) as engine:
        ours = together(engine, asked)
    with running(random_draft, spec_types=("none",)) as engine:
        alone = [answer(engine, replace(wish, spec=PLAIN)) for wish in asked]
    assert [one.ids for one in ours] == [one.ids for one in alone]


def test_the_second_turn_reads_only_what_is_new(smol_f32: Path, smol: Path) -> None:
    first = (Message("user", "Name one colour."),)
    with running(smol_f32, smol, sequences=2) as engine:
        wish = GenerationRequest(messages=first, sampling=GREEDY, spec=TREE, max_tokens=12)
        one = answer(engine, wish)
        second = replace(wish, messages=(*first, Message("assistant", one.text), Message("user", "And another?")))
        two = answer(engine, second)
        prompt = engine.encode(second)
        known = len(engine.encode(wish)) + len(one.ids)
        # All but what the template puts around the answer's end.
        assert known - 3 <= two.started.cache_n <= known
        # A fork: the first turn again beside the second, sharing its beginning.
        three = answer(engine, replace(wish, max_tokens=6))
        assert three.started.cache_n == len(engine.encode(wish)) - 1
        assert three.ids == one.ids[:6]
    with running(smol_f32, spec_types=("none",)) as engine:
        cold = answer(engine, replace(second, spec=PLAIN))
        assert cold.started.cache_n == 0
        assert engine.encode(second) == prompt
    assert two.ids == cold.ids
