"""The chat without a terminal: turns, what stays of them, and what fits."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from localspec.backends.fake import FakeVocab
from localspec.chat.conversation import Conversation
from localspec.errors import UsageError
from localspec.talk.chat import Chat
from localspec.talk.running import Handle
from localspec.talk.turn import LeftOut, Turn
from localspec.text.thinking import Piece
from localspec.types import Finished, GenerationRequest, Message, Notice, Prefill, SpecStats
from tests.cli.repl.support import chat, contents, engine, messages, run
from tests.cli.scripted import TEMPLATE, Scripted


def test_a_turn_becomes_part_of_the_conversation() -> None:
    one = chat(system="sys")
    text, last = run(one.ask("abc"))
    assert len(text) >= 12
    assert isinstance(last, Finished)
    assert contents(one) == ["abc", text]
    assert one.last is last
    assert one.totals.answers == 1


def test_later_turns_reuse_the_prefix() -> None:
    one = chat()
    run(one.ask("abc"))
    _, last = run(one.ask("def"))
    assert isinstance(last, Finished)
    assert last.timings.cache_n > 0


@pytest.mark.parametrize("shown", [0, 1, 3])
def test_a_stopped_answer_keeps_exactly_what_was_shown(shown: int) -> None:
    one = chat(n_predict=200)
    seen = ""
    turn = one.ask("abc")
    pieces = 0
    for event in turn:
        if isinstance(event, Piece):
            seen += event.text
            pieces += 1
        if pieces >= shown:
            one.stop()
    assert one.last is None or one.last.reason == "cancelled"
    assert contents(one) == (["abc", seen] if seen else [])


def test_a_stop_before_the_question_is_submitted_counts() -> None:
    one = chat()
    turn = one.ask("abc")
    one.stop()
    text, last = run(turn)
    assert text == ""
    assert isinstance(last, Finished)
    assert last.reason == "cancelled"
    assert contents(one) == []


def test_the_consumer_may_fail_and_what_it_saw_stays() -> None:
    """Whatever happens between two events: conversation and engine agree, and the next turn is as if cold."""
    one = chat(n_predict=200)

    def read_one(turn: Turn) -> None:
        with closing(turn):
            for event in turn:
                if isinstance(event, Piece):
                    raise ZeroDivisionError(event.text)

    with pytest.raises(ZeroDivisionError) as raised:
        read_one(one.ask("abc"))
    assert contents(one) == ["abc", str(raised.value)]
    cold = chat(n_predict=12)
    cold.start(Conversation(messages=one.conversation.messages))
    one.values["n_predict"] = 12
    assert run(one.ask("def"))[0] == run(cold.ask("def"))[0]


def test_stops_at_any_event_leave_the_next_answer_as_a_cold_one() -> None:
    for steps in range(0, 20, 3):
        one = chat(n_predict=100, ctx_size=512)
        for n, _ in enumerate(one.ask("abcdefgh" * 9)):
            if n >= steps:
                one.stop()
        cold = chat(n_predict=100)
        cold.start(Conversation(messages=one.conversation.messages))
        assert run(one.ask("probe"))[0] == run(cold.ask("probe"))[0]


def test_regenerate_replaces_the_answer_and_keeps_the_question() -> None:
    one = chat(temp=0.8, seed=7)
    first, _ = run(one.ask("abc"))
    second, _ = run(one.regenerate())
    third, _ = run(one.regenerate())
    assert contents(one) == ["abc", third]
    assert len({first, second, third}) == 3  # a fixed seed moves on
    again = chat(temp=0.8, seed=7)
    assert run(again.ask("abc"))[0] == first
    assert run(again.regenerate())[0] == second


def test_regenerate_stopped_at_once_keeps_the_old_answer() -> None:
    one = chat()
    first, _ = run(one.ask("abc"))
    turn = one.regenerate()
    one.stop()
    run(turn)
    assert contents(one) == ["abc", first]


def test_there_is_nothing_to_regenerate_at_first() -> None:
    with pytest.raises(UsageError, match="has no question"):
        chat().regenerate()


def test_an_edited_question_takes_the_place_of_its_exchange_and_later_ones() -> None:
    one = chat()
    one.start(Conversation("sys", messages("a", "b", "c", "d")))
    text, _ = run(one.ask("new", replacing=2))
    assert contents(one) == ["new", text]


def test_an_edit_that_cannot_be_asked_changes_nothing() -> None:
    one = chat()
    one.start(Conversation("sys", messages("a", "b", "c", "d")))
    with pytest.raises(UsageError, match=r"\d+ tokens"):
        run(one.ask("x" * 600, replacing=2))
    assert contents(one) == ["a", "b", "c", "d"]


# What fits


def test_oldest_exchanges_are_left_out_and_said_and_the_system_message_stays() -> None:
    asked: list[tuple[Message, ...]] = []
    one = chat(system="CODE", n_predict=4)
    one.start(Conversation("CODE", messages(*("q" * 60, "a" * 60) * 4)))
    original = one.engine.submit

    def submit(request: object) -> object:
        asked.append(request.messages)  # type: ignore[attr-defined]
        return original(request)  # type: ignore[arg-type]

    one.engine.submit = submit  # type: ignore[method-assign, assignment]
    events = list(one.ask("last" * 10))
    (left,) = [event for event in events if isinstance(event, LeftOut)]
    assert 0 < left.count < left.of == 5
    (sent,) = asked
    assert sent[0] == Message("system", "CODE")
    assert len(sent) == 1 + 2 * (4 - left.count) + 1
    assert isinstance(events[-1], Finished)
    # Said once; nothing of the conversation itself is lost.
    assert not [event for event in one.ask("b") if isinstance(event, LeftOut)]
    assert len(contents(one)) == 12


def test_what_is_left_out_may_be_longer_than_the_context() -> None:
    one = chat(n_predict=4)
    one.start(Conversation(None, messages(*("q" * 300, "a" * 300) * 3)))
    events = list(one.ask("b"))
    assert LeftOut(3, 4) in events
    assert isinstance(events[-1], Finished)
    assert one.used() < 512


def test_after_an_answer_up_to_the_brim_the_chat_goes_on() -> None:
    one = chat(n_predict=-1)
    run(one.ask("abc"))
    assert one.used() >= 500
    text, last = run(one.ask("def"))
    assert text
    assert isinstance(last, Finished)


def test_a_question_that_cannot_fit_is_refused_with_both_numbers() -> None:
    one = chat()
    with pytest.raises(UsageError, match=r"60\d tokens.* 511 fit"):
        run(one.ask("x" * 600))
    assert contents(one) == []
    assert run(one.ask("abc"))[0]


# Speculation and settings of a request


def test_speculation_off_is_the_same_text_without_a_guess() -> None:
    one, other = chat(n_predict=60), chat(n_predict=60, spec="off")
    text, _ = run(one.ask("abcabc"))
    plain, last = run(other.ask("abcabc"))
    assert text == plain
    assert isinstance(last, Finished)
    assert last.stats.draft_n == 0
    assert (one.guesses, other.guesses) == (True, False)


def test_types_are_chosen_among_what_is_loaded() -> None:
    one = chat()
    one.types = ("ngram-simple",)
    assert one.request(()).spec.types == ("ngram-simple",)


# Thinking


def test_thinking_is_told_apart_and_not_sent_again() -> None:
    one = chat(engine(Scripted(["<think>", "hmm", "</think>", "yes"])), ignore_eos=False, n_predict=-1)
    pieces = [event for event in one.ask("abc") if isinstance(event, Piece)]
    assert [(piece.kind, piece.text) for piece in pieces] == [("thinking", "hmm"), ("answer", "yes")]
    assert contents(one) == ["abc", "yes"]
    assert one.conversation.turns[-1].thinking == "hmm"


# Characters of several tokens


class Bytes(FakeVocab):
    """One more token for every byte of a text."""

    def __init__(self, text: str) -> None:
        self._bytes = text.encode()
        super().__init__(40 + len(self._bytes))

    def piece(self, token: int, *, special: bool = False) -> bytes:
        return self._bytes[token - 40 : token - 39] if token >= 40 else super().piece(token, special=special)


class Bytewise(Scripted):
    """Says a text one byte a token."""

    def __init__(self, text: str) -> None:
        super().__init__(["one byte"] * len(text.encode()))
        self._vocab = Bytes(text)


@pytest.mark.parametrize("limit", [*range(1, 10), -1])
def test_characters_that_are_several_tokens_come_whole(limit: int) -> None:
    said = "é😀한"
    one = chat(engine(Bytewise(said)), ignore_eos=False, n_predict=limit)
    pieces = [event.text for event in one.ask("abc") if isinstance(event, Piece)]
    whole = said if limit < 0 else said.encode()[:limit].decode(errors="ignore")
    assert "".join(pieces) == whole
    assert "\ufffd" not in "".join(pieces)
    assert contents(one) == ["abc", whole]


# Files and tokens


def test_files_go_before_the_next_message_once() -> None:
    one = chat()
    (file,) = one.attach([("notes.txt", "hello")])
    assert file.tokens == len(file.block())
    free = one.free()
    run(one.ask("abc"))
    assert contents(one)[0] == "notes.txt:\n```\nhello\n```\n\nabc"
    assert one.attachments == []
    assert free == 512 - file.tokens
    run(one.ask("def"))
    assert contents(one)[2] == "def"


def test_a_file_that_does_not_fit_is_refused_with_the_numbers() -> None:
    one = chat()
    one.attach([("a", "x" * 300)])
    with pytest.raises(UsageError, match=r"big\.txt: 3\d\d tokens, 19\d of 512 are free"):
        one.attach([("big.txt", "y" * 300)])
    assert [file.name for file in one.attachments] == ["a"]


def test_files_wait_while_a_question_brings_nothing() -> None:
    one = chat()
    one.attach([("a", "x")])
    turn = one.ask("abc")
    one.stop()
    run(turn)
    assert [file.name for file in one.attachments] == ["a"]


def test_used_counts_the_conversation() -> None:
    one = chat(system="sys")
    assert one.used() == 3
    one.start(Conversation("sys", messages("ab", "cd")))
    assert len("sysabcd") < one.used() <= len("sys\nab\ncd\n")


def test_totals_add_up() -> None:
    one = chat(n_predict=40)
    finished = [last for last in (run(one.ask(text))[1] for text in ("abcabc", "defdef")) if isinstance(last, Finished)]
    totals = one.totals
    assert totals.tokens == sum(len(last.ids) for last in finished) == 80
    for name in ("steps", "draft_n", "tested", "accepted", "emitted"):
        assert getattr(totals.stats, name) == sum(getattr(last.stats, name) for last in finished)
    longest = max(len(last.stats.tested_at) for last in finished)
    assert len(totals.stats.tested_at) == longest
    assert sum(source.draft_n for source in totals.stats.by_source) == totals.stats.draft_n
    assert replace(totals.stats) != SpecStats()


def test_prefill_is_reported() -> None:
    assert [event for event in chat().ask("a" * 200) if isinstance(event, Prefill)]


def test_what_the_template_does_is_said_once_a_conversation() -> None:
    refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + TEMPLATE
    one = chat(engine(template=refuses), system="sys")

    def told(question: str) -> list[str]:
        return [event.text for event in one.ask(question) if isinstance(event, Notice)]

    assert len(told("a")) == 1
    assert told("b") == []
    one.clear()
    assert "system message" in told("c")[0]


@pytest.mark.parametrize("stop", [True, False])
def test_a_stopped_answer_is_marked(stop: bool) -> None:
    one = chat(n_predict=20)
    for event in one.ask("abc"):
        if stop and isinstance(event, Piece):
            one.stop()
    assert [turn.stopped for turn in one.conversation.turns] == [False, stop]


def test_the_answer_that_is_replaced_is_a_source() -> None:
    """What it thought too; and not the answers that stay."""
    one = chat()
    one.start(Conversation("sys", messages("a", "b", "c", "d")))
    one.conversation.add("user", "e")
    one.conversation.add("assistant", "f", thinking="g")
    asked = spied(one)
    run(one.regenerate())
    assert asked[-1].draft_from == ("g", "f")
    again = contents(one)[-1]
    run(one.ask("new", replacing=2))
    assert asked[-1].draft_from == ("d", again)
    run(one.ask("next"))
    assert not asked[-1].draft_from


def spied(one: Chat) -> list[GenerationRequest]:
    """The requests that reach the engine."""
    asked: list[GenerationRequest] = []
    submit = one.engine.submit

    def spy(request: GenerationRequest) -> Handle:
        asked.append(request)
        return submit(request)

    one.engine.submit = spy  # type: ignore[method-assign]
    return asked
