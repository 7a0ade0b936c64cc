"""How drafters stand, in words: from what the engine says of them and from what they guessed."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from localspec.cli.chat import banner
from localspec.talk.standing import Remarks, guessers, standings
from localspec.types import Notice, SourceStats, SpecMode, SpecStats, Standing
from tests.cli.repl.support import chat, engine, repl

NOTHING = SpecStats()
BOTH = ("draft-simple", "suffix")


def stats(**drafted: int) -> SpecStats:
    """Guesses by drafter, one of each held."""
    return SpecStats(by_source=tuple(SourceStats(name.replace("_", "-"), n, 1) for name, n in drafted.items()))


def notice(drafter: str, state: Literal["in use", "left alone", "paused"], why: str) -> Notice:
    standing = Standing(drafter, state, why)
    return Notice(0, standing.text, standing)


def test_the_banner_names_every_drafter_and_the_file_of_the_draft_model() -> None:
    info = replace(engine().info, target="/m/big.gguf", draft="/m/small.gguf", drafters=BOTH)
    assert "\nguesses from draft-simple (small.gguf), suffix · context 512\n" in banner(info)
    assert guessers(replace(info, draft=None, drafters=("suffix",))) == "suffix"
    assert guessers(replace(info, draft=None, drafters=())) == "nothing"
    assert guessers(info, ("suffix",)) == "suffix"


@pytest.mark.parametrize(
    ("mode", "last", "session", "texts"),
    [
        ("auto", NOTHING, NOTHING, ["left alone: it costs.", "on trial: no guess of it was tested yet"]),
        ("auto", NOTHING, stats(suffix=3), ["left alone: it costs.", "in use: no guess in the last answer"]),
        (
            "auto",
            stats(draft_simple=4, suffix=3),
            stats(draft_simple=4, suffix=3),
            [
                "left alone: it costs.; tried in the last answer: 1 of 4 guesses held",
                "in use: in the last answer 1 of 3 guesses held",
            ],
        ),
        ("fixed", NOTHING, NOTHING, ["in use: no guess in the last answer"] * 2),
    ],
)
def test_in_use_on_trial_or_left_alone(mode: SpecMode, last: SpecStats, session: SpecStats, texts: list[str]) -> None:
    remarks = Remarks()
    remarks.hear(notice("draft-simple", "left alone", "it costs."))
    remarks.hear(Notice(1, "suffix is left alone, says this chat template"))
    alone = remarks.alone(BOTH, mode)
    assert standings(BOTH, alone, mode, last, session) == list(zip(BOTH, texts, strict=True))


def test_one_that_is_back_is_in_use_and_a_paused_one_is_not() -> None:
    remarks = Remarks()
    remarks.hear(notice("draft-simple", "left alone", "it costs."))
    remarks.hear(notice("suffix", "paused", "it failed"))
    assert list(remarks.alone(BOTH, "auto")) == ["draft-simple", "suffix"]
    assert list(remarks.alone(BOTH, "fixed")) == ["suffix"]
    remarks.hear(notice("draft-simple", "in use", "it pays again"))
    assert remarks.alone(BOTH, "auto") == {"suffix": "paused: it failed"}


def test_commands_and_status_line_tell_who_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    one = chat(spec="auto")
    original = one.engine.submit

    class Told:
        """The answer, with a notice in it."""

        def __init__(self, request: object) -> None:
            self._events = original(request)  # type: ignore[arg-type]

        def __iter__(self):  # type: ignore[no-untyped-def]
            yield notice("ngram-simple", "left alone", "it costs more than it saves")
            yield from self._events

        def cancel(self) -> None:
            self._events.cancel()

        def grant(self, steps: int | None) -> None:
            self._events.grant(steps)

    one.engine.submit = Told  # type: ignore[method-assign]
    front = repl(one)
    front.take("abc")
    assert "ngram-simple left alone" in capsys.readouterr().err.splitlines()[-1]
    for command in ("/spec", "/stats"):
        front.take(command)
        assert "left alone: it costs more than it saves" in capsys.readouterr().err
    front.take("/spec fixed")
    assert "left alone" not in capsys.readouterr().err
    front.take("/spec off")
    front.take("/stats")
    assert "drafters" not in capsys.readouterr().err
    one.engine_changed()
    one.values["spec"] = "auto"
    assert one.alone == {}
