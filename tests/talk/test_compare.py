"""One question answered twice, with guesses and without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.errors import EngineError, UsageError
from localspec.talk.chat import Chat
from localspec.talk.compare import Answer, Comparison, Outcome, Said, Step
from localspec.types import Failed, Finished, GenerationRequest, SpecStats, Timings
from tests.cli.repl.support import chat, engine, run


def asked(**changes: object) -> Chat:
    """A chat that has answered a question."""
    one = chat(**changes)  # type: ignore[arg-type]
    run(one.ask("what?"))
    return one


def outcome(steps: list[Step]) -> Outcome:
    (last,) = (step for step in steps if isinstance(step, Outcome))
    return last


@pytest.mark.parametrize("settings", [{}, {"temp": 1.0, "seed": 3}, {"temp": 1.0}, {"spec": "auto"}])
def test_both_say_what_the_chat_said(settings: dict[str, object]) -> None:
    one = asked(**settings)
    answer, turns = one.conversation.last_answer(), len(one.conversation.turns)
    steps = list(Comparison(one).run())
    found = outcome(steps)
    texts = {
        way: "".join(s.text for s in steps if isinstance(s, Said) and s.way == way) for way in ("speculative", "plain")
    }
    assert texts == {"speculative": answer, "plain": answer}
    assert found.same
    assert (found.verdict, found.why, found.equal) == ("same tokens: all 12", "", 12)
    assert found.plain.finished.stats.draft_n == 0
    assert [type(step) for step in steps if not isinstance(step, Said)] == [Answer, Answer, Outcome]
    assert len(one.conversation.turns) == turns


def test_guesses_are_made_in_one_of_the_two() -> None:
    loaded = engine(FakeTarget(FakeVocab(40), seed=5, spread=9.0, n_ctx=512))  # repeats itself
    one = chat(loaded, n_predict=60)
    run(one.ask("what?"))
    found = outcome(list(Comparison(one).run()))
    assert found.speculative.finished.stats.draft_n > 0
    assert "guesses held" in found.speculative.line
    assert "guesses" not in found.plain.line


def test_a_question_that_brought_nothing_can_be_compared() -> None:
    one = chat()
    events = one.ask("what?")
    one.stop()
    next(events)
    events.close()
    assert one.conversation.last_question() is None
    assert one.unanswered is not None
    assert outcome(list(Comparison(one).run())).same


@pytest.mark.parametrize("settings", [{"spec": "off"}, {"draft_n_max": 0}, {"tree_nodes": 0}])
def test_nothing_to_compare_where_nothing_guesses(settings: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="nothing guesses ahead"):
        list(Comparison(asked(**settings)).run())


def test_nothing_to_compare_without_a_question() -> None:
    with pytest.raises(UsageError, match="has no question"):
        list(Comparison(chat()).run())


def test_a_stop_ends_it_all() -> None:
    comparison = Comparison(asked(n_predict=200))
    steps = comparison.run()
    assert isinstance(next(steps), Said)
    comparison.stop()
    rest = list(steps)
    assert not any(isinstance(step, Outcome) for step in rest)
    (answer,) = (step for step in rest if isinstance(step, Answer))
    assert (answer.way, answer.finished.reason) == ("speculative", "cancelled")


def test_a_failure_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    one = asked()
    failed = Failed.of(1, EngineError("it broke", hint="Mend it."))

    class Broken:
        def __iter__(self) -> object:
            return iter([failed])

        def cancel(self) -> None:
            pass

    def submit(request: GenerationRequest) -> Broken:
        return Broken()

    monkeypatch.setattr(one.engine, "submit", submit)
    with pytest.raises(EngineError, match="the speculative answer failed: it broke") as raised:
        list(Comparison(one).run())
    assert raised.value.hint == "Mend it."


# What is said of a pair


def answer(way: str, ids: tuple[int, ...], *, seconds: float = 2.0, reason: str = "stop") -> Answer:
    timings = Timings(5, 0, 0.1, 0.1, len(ids), seconds)
    stats = SpecStats(draft_n=9, accepted=4) if way == "speculative" else SpecStats()
    finished = Finished(1, reason, ids, None, timings, stats)  # type: ignore[arg-type]
    return Answer(way, finished, tuple(b" %d" % one for one in ids))  # type: ignore[arg-type]


PLAIN = answer("plain", (1, 2, 3, 4))


def test_speeds_side_by_side() -> None:
    found = Outcome(answer("speculative", (1, 2, 3, 4), seconds=1.0), PLAIN, "draw", exact=False)
    assert found.ratio == pytest.approx(2)
    assert found.speculative.line == "4 tok · 3 tok/s · 4/9 guesses held"
    assert found.plain.line == "4 tok · 1.5 tok/s"
    assert found.lines(60) == ["2.00× plain decoding", "same tokens: all 4"]


@pytest.mark.parametrize(
    ("ids", "reason", "equal", "verdict"),
    [
        ((1, 2, 9, 4), "stop", 2, "2 tokens are the same, then position 2 has ' 9' for ' 3'"),
        ((1, 2), "stop", 2, "2 tokens are the same, then position 2 has (stop) for ' 3'"),
        ((1, 2, 3, 4, 5), "length", 4, "4 tokens are the same, then position 4 has ' 5' for (stop)"),
        ((1, 2, 3, 4), "length", 4, "4 tokens are the same, then position 4 has (length) for (stop)"),
        ((), "stop", 0, "0 tokens are the same, then position 0 has (stop) for ' 1'"),
    ],
)
def test_where_they_part(ids: tuple[int, ...], reason: str, equal: int, verdict: str) -> None:
    found = Outcome(answer("speculative", ids, reason=reason), PLAIN, "draw", exact=False)
    assert (found.equal, found.verdict, found.same) == (equal, verdict, False)
    assert "rounding" in found.why
    assert "near-tie" in found.why


def test_why_they_may_part() -> None:
    parted = Outcome(answer("speculative", (7,)), PLAIN, "draw", exact=False)
    assert "as likely a text" in replace(parted, rule="ratio").why
    assert "nothing may differ" in replace(parted, exact=True).why
    assert max(map(len, parted.lines(30))) <= 30
    assert Outcome(answer("speculative", (1,)), PLAIN, "draw", exact=False).ratio is None


def test_a_token_cannot_steer_the_terminal() -> None:
    evil = replace(answer("speculative", (7,)), pieces=(b"\x1b[31m\xff",))
    assert evil.token(0).isprintable()
