from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chat.window import fit, room_for_prompt
from localspec.errors import UsageError
from localspec.types import Message

SYSTEM = Message("system", "s" * 10)


class Counter:
    """A token a character and three a message, as a template would add; counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, messages: Sequence[Message]) -> int:
        self.calls += 1
        return tokens(messages)


def tokens(messages: Sequence[Message]) -> int:
    return sum(len(message.content) + 3 for message in messages)


def talk(*lengths: int) -> list[Message]:
    """Answered questions of these lengths, the last one not answered."""
    messages = []
    for i, length in enumerate(lengths):
        messages += [Message("user", "q" * length), Message("assistant", f"{i}")]
    return messages[:-1]


def test_what_fits_is_left_alone_and_counted_once() -> None:
    count, messages = Counter(), [SYSTEM, *talk(5, 5, 5)]
    fitted = fit(messages, count, tokens(messages))
    assert (fitted.messages, fitted.dropped, count.calls) == (tuple(messages), (), 1)


def test_whole_oldest_exchanges_go_and_the_system_message_stays() -> None:
    messages = [SYSTEM, *talk(5, 6, 7)]
    fitted = fit(messages, tokens, tokens(messages) - 1)
    assert fitted.dropped == ((messages[1], messages[2]),)
    assert fitted.messages == (SYSTEM, *messages[3:])
    fitted = fit(messages, tokens, tokens([SYSTEM, messages[-1]]))
    assert fitted.dropped == ((messages[1], messages[2]), (messages[3], messages[4]))
    assert fitted.messages == (SYSTEM, messages[-1])


def test_a_code_word_in_the_system_message_survives_forty_turns() -> None:
    messages = [Message("system", "The word is mango."), *talk(*[40] * 40)]
    fitted = fit(messages, tokens, room_for_prompt(512, -1))
    assert fitted.messages[0] == messages[0]
    assert fitted.messages[-1] == messages[-1]
    assert tokens(fitted.messages) <= 384
    assert sum(map(len, fitted.dropped)) + len(fitted.messages) == len(messages)


def test_a_question_too_long_by_itself_is_refused_with_both_numbers() -> None:
    with pytest.raises(UsageError, match=r"the question has 513 tokens with the system message, 400 fit") as caught:
        fit([SYSTEM, *talk(5, 497)], tokens, 400)
    assert "-c" in caught.value.hint
    with pytest.raises(UsageError, match=r"the question has 500 tokens, 400 fit"):
        fit(talk(5, 497), tokens, 400)


def test_a_long_question_may_use_up_the_limit() -> None:
    messages = talk(5, 497)
    assert fit(messages, tokens, 400, limit=500).messages == (messages[-1],)
    with pytest.raises(UsageError, match="500 tokens, 499 fit"):
        fit(messages, tokens, 400, limit=499)


def test_what_was_left_out_stays_out_until_more_must_go() -> None:
    messages = talk(*[10] * 10)
    fitted = fit(messages, tokens, 1000, left_out=2)
    assert len(fitted.dropped) == 2
    assert fitted.messages == tuple(messages[4:])
    assert fit(messages, tokens, 1000, left_out=99).messages == (messages[-1],)


def test_spare_room_is_made_only_when_something_must_go() -> None:
    messages = talk(*[10] * 10)
    all_of_it = tokens(messages)
    assert fit(messages, tokens, all_of_it, spare=60).dropped == ()
    fitted = fit(messages, tokens, all_of_it - 1, spare=60)
    assert tokens(fitted.messages) <= all_of_it - 61
    # The next turns have room without anything else going.
    longer = [*messages, Message("assistant", "a" * 20), Message("user", "q" * 20)]
    assert len(fit(longer, tokens, all_of_it - 1, left_out=len(fitted.dropped), spare=60).dropped) == len(
        fitted.dropped
    )


def test_spare_room_never_costs_the_last_question() -> None:
    messages = talk(10, 90)
    fitted = fit(messages, tokens, 100, spare=50)
    assert fitted.messages == (messages[-1],)


def test_an_opening_answer_goes_with_the_first_question() -> None:
    messages = [Message("assistant", "hello"), *talk(5, 5)]
    fitted = fit(messages, tokens, tokens(messages) - 1)
    assert fitted.dropped == (tuple(messages[:3]),)


def test_nothing_to_fit() -> None:
    assert fit([], tokens, 10).messages == ()
    assert fit([SYSTEM], tokens, 13).messages == (SYSTEM,)
    with pytest.raises(UsageError, match="13 tokens"):
        fit([SYSTEM], tokens, 12)


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=60),
    st.booleans(),
    st.integers(0, 8000),
    st.integers(0, 3),
)
def test_as_few_exchanges_go_as_must(lengths: list[int], system: bool, room: int, left_out: int) -> None:
    head = [SYSTEM] if system else []
    messages = [*head, *talk(*lengths)]
    starts = [i for i, message in enumerate(messages) if message.role == "user"]
    cuts = [[*head, *messages[start:]] for start in starts[min(left_out, len(starts) - 1) :]]
    want = next((cut for cut in cuts if tokens(cut) <= room), None)
    count = Counter()
    if want is None:
        with pytest.raises(UsageError):
            fit(messages, count, room, left_out=left_out)
    else:
        fitted = fit(messages, count, room, left_out=left_out)
        assert list(fitted.messages) == want
        assert [*head, *(m for exchange in fitted.dropped for m in exchange), *want[len(head) :]] == messages
    assert count.calls <= 12


def test_few_calls_on_a_long_conversation() -> None:
    messages = [SYSTEM, *talk(*(20 + i * 7 % 50 for i in range(2000)))]
    count = Counter()
    fit(messages, count, 3000)
    assert count.calls <= 6


def test_few_calls_where_lengths_of_texts_mean_nothing() -> None:
    """One short exchange holds nearly all tokens; guesses by length creep towards it."""
    messages = talk(400, 1, *[400] * 1000)
    calls = 0

    def count(some: Sequence[Message]) -> int:
        nonlocal calls
        calls += 1
        return sum(10**6 if len(message.content) == 1 and message.role == "user" else 1 for message in some)

    assert len(fit(messages, count, 10**5).dropped) == 2
    assert calls <= 40


@pytest.mark.parametrize(
    ("n_ctx", "max_tokens", "room"),
    [(512, -1, 384), (512, 100, 412), (512, 1000, 384), (512, 0, 512), (3, -1, 3)],
)
def test_room_is_left_for_the_answer(n_ctx: int, max_tokens: int, room: int) -> None:
    assert room_for_prompt(n_ctx, max_tokens) == room
