"""Several conversations at once and one after the other: prefixes, forks, room."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.engine import Engine
from localspec.types import GenerationRequest, SamplingParams, SpecParams
from tests.engine.support import (
    Outcome,
    alone,
    answer,
    check,
    draft_model,
    drain,
    fake,
    ngrams,
    plain,
    request,
    together,
)

NO_END = SamplingParams(temperature=0.0, ignore_eos=True)


def cold(wish: GenerationRequest) -> Outcome:
    return alone(fake(), plain(wish))


def full_engine(n_ctx: int = 512, sequences: int = 4, rollback: int | None = None) -> Engine:
    target = fake(n_ctx=n_ctx, sequences=sequences, rollback=rollback)
    return Engine(target, [draft_model(target, noise=1.0), ngrams()], prompt_chunk=8)


WISHES = st.builds(
    request,
    st.lists(st.integers(2, 5), min_size=1, max_size=24),
    sampling=st.builds(SamplingParams, temperature=st.sampled_from([0.0, 0.9]), seed=st.integers(0, 50)),
    spec=st.builds(
        SpecParams,
        depth=st.integers(0, 5),
        width=st.integers(1, 3),
        types=st.sampled_from([None, ("draft-simple",), ("ngram-simple",), ("none",), ()]),
    ),
    n=st.integers(0, 20),
    logprobs=st.sampled_from([None, 2]),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(WISHES, min_size=1, max_size=7), st.integers(1, 4))
def test_answers_together_are_the_answers_alone(wishes: list[GenerationRequest], sequences: int) -> None:
    """H03: more requests than sequences wait for their turn; nobody reads another's words."""
    engine = full_engine(sequences=sequences)
    for wish, got in zip(wishes, together(engine, wishes), strict=True):
        assert got.told == cold(wish).told
        assert not got.notices


def test_rules_side_by_side() -> None:
    wishes = [
        request([2, 3], sampling=SamplingParams(temperature=t, seed=5), spec=SpecParams(accept=rule), n=20)
        for t in (0.0, 1.0)
        for rule in ("draw", "ratio")
    ]
    got = together(full_engine(), wishes)
    for one, wish in zip(got, wishes, strict=True):
        if wish.spec.accept == "draw" or wish.sampling.temperature == 0:
            assert one.told == cold(wish).told
        # A drawn answer depends on nothing but its own sequence, under either rule.
        assert one.told == answer(full_engine(), wish).told


@settings(max_examples=30, deadline=None)
@given(st.lists(WISHES, min_size=1, max_size=8), st.integers(1, 3), st.sampled_from([None, 0, 3]))
def test_turns_on_each_other_s_prefixes(wishes: list[GenerationRequest], sequences: int, rollback: int | None) -> None:
    """Continued, forked, cut back or evicted: every answer equals a cold one. ``rollback=0`` is E04."""
    engine = full_engine(n_ctx=64, sequences=sequences, rollback=rollback)
    text: tuple[int, ...] = ()
    for i, wish in enumerate(wishes):
        assert wish.tokens is not None
        prompt = (text + wish.tokens)[:40] if i % 2 else wish.tokens
        turn = request(prompt, sampling=wish.sampling, spec=wish.spec, n=wish.max_tokens)
        got = answer(engine, turn)
        assert got.told == cold(turn).told
        if rollback is not None:
            assert got.stats.draft_n == 0
        text = prompt + got.ids


def test_a_fork_from_a_running_answer() -> None:
    engine = full_engine()
    head = [2, 3, 4, 5, 2, 3]
    first = request(head, sampling=NO_END, n=30)
    running = engine.submit(first)
    for _ in range(5):
        engine.step()
        check(engine)
    second = request([*head, 3, 3], sampling=NO_END, n=30)
    one, two = drain(engine, [running, engine.submit(second)])
    assert one.ids[-5:] == cold(first).ids[-5:]
    assert two.told == cold(second).told
    assert two.started.cache_n == len(head)


def test_the_next_turn_reads_only_what_is_new() -> None:
    engine = full_engine()
    first = answer(engine, request([2, 3, 4], sampling=NO_END, n=10))
    turn = request([2, 3, 4, *first.ids, 5, 5], sampling=NO_END, n=10)
    second = answer(engine, turn)
    assert second.started.cache_n >= 3 + 10 - 1
    assert second.told == cold(turn).told
    again = answer(engine, request([2, 3, 4], sampling=NO_END, n=10))  # regenerate
    assert again.told == first.told
    assert again.started.cache_n == 2


def test_the_longest_unused_conversation_makes_room() -> None:
    """Not the one just left, though all share their first token."""
    engine = full_engine(n_ctx=512, sequences=3)
    heads = [[2, token, token, token] for token in (3, 4, 5, 6)]
    for head in heads:
        answer(engine, request(head, sampling=NO_END, n=4))
    assert answer(engine, request([*heads[2], 7], n=1)).started.cache_n == 4
    assert answer(engine, request([*heads[1], 7], n=1)).started.cache_n == 4
    assert answer(engine, request([*heads[0], 7], n=1)).started.cache_n == 1


def test_idle_conversations_make_room_for_cells() -> None:
    engine = full_engine(n_ctx=64, sequences=4)
    for token in (3, 4, 5, 6, 7):
        wish = request([token] * 20, sampling=NO_END, n=20)
        assert answer(engine, wish).told == cold(wish).told


def test_prompts_that_do_not_fit_together_wait() -> None:
    """Both are long: the second is not read before there is room for it."""
    engine = full_engine(n_ctx=64, sequences=4)
    wishes = [request([token] * 40, sampling=NO_END, n=10) for token in (3, 4, 5)]
    for wish, got in zip(wishes, together(engine, wishes), strict=True):
        assert got.told == cold(wish).told


def test_an_answer_that_fills_the_context_beside_others() -> None:
    """All grow until the cells run out; the last to come make room and go on afterwards: neighbours change nothing."""
    engine = full_engine(n_ctx=64, sequences=3)
    wishes = [request([token] * 10, sampling=NO_END) for token in (3, 4, 5)]
    outcomes = together(engine, wishes)
    for got, wish in zip(outcomes, wishes, strict=True):
        alone = cold(request(wish.tokens or (), sampling=NO_END, n=55))
        assert got.finished.reason == "length"
        assert got.ids == alone.ids
        assert got.text == alone.text
        assert len(got.ids) == 64 - 10 + 1


def test_a_long_prompt_next_to_a_running_answer_shares_passes() -> None:
    engine = full_engine()
    short = request([2, 3], sampling=NO_END, n=25)
    long = request([2 + i % 5 for i in range(100)], sampling=NO_END, n=5)
    one, two = together(engine, [short, long])
    assert (one.told, two.told) == (cold(short).told, cold(long).told)


@pytest.mark.parametrize("seed", range(3))
def test_a_hundred_rounds_with_code_words(seed: int) -> None:
    """H03: many clients, each with prompts of its own letters, prefixes shared and not."""
    rng = random.Random(seed)
    engine = full_engine(n_ctx=128, sequences=3)
    for _ in range(12):
        wishes = [
            request(
                [2] * rng.randint(1, 6) + [word] * rng.randint(1, 20),
                sampling=SamplingParams(temperature=rng.choice((0.0, 1.0)), seed=rng.randrange(99)),
                spec=SpecParams(depth=rng.randint(0, 4), width=rng.randint(1, 2)),
                n=rng.randint(1, 8),
            )
            for word in rng.sample(range(3, 12), 4)
        ]
        for wish, got in zip(wishes, together(engine, wishes), strict=True):
            assert got.told == cold(wish).told


def test_what_is_forgotten_is_read_again_and_running_answers_stay() -> None:
    engine = Engine(fake(), [ngrams()], prompt_chunk=16)
    wish = request([2, 3, 4, 5, 6, 7], n=5)
    first = answer(engine, wish)
    assert answer(engine, wish).started.cache_n == 5
    engine.forget()
    assert not engine._slots._slots
    running = engine.submit(request([2, 3, 4], n=8))
    engine.step()
    engine.forget()
    (outcome,) = drain(engine, [running])
    assert len(outcome.ids) == 8
    engine.forget()
    again = answer(engine, wish)
    assert (again.started.cache_n, again.ids) == (0, first.ids)
