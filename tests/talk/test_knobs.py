"""Settings that can be turned between two turns."""

from __future__ import annotations

import pytest

from localspec.errors import LocalspecError, UsageError
from localspec.options import GENERATION_OPTIONS, Option
from localspec.talk import knobs
from localspec.talk.knobs import Knob
from tests.cli.repl.support import chat, loads, values


def option(name: str) -> Option:
    return next(one for one in GENERATION_OPTIONS if one.name == name)


def test_knobs_are_what_needs_no_loading() -> None:
    found = knobs.knobs(values())
    names = [one.name for one in knobs.all_knobs(values())]
    assert list(found) == ["Generation", "Speculation", "Sampling"]
    assert {"n_predict", "stop", "spec", "draft_n_max", "tree_width", "spec_accept", "temp", "seed"} <= {*names}
    assert {"tree_nodes", "ngram_size_n", "spec_type", "ctx_size", "prompt", "model"}.isdisjoint(names)


def test_no_knob_loads_an_engine() -> None:
    """Each is turned to another value than its own, where one is easily found."""
    other = {bool: "on", int: "1", float: "0.5", str: "abc"}
    one = chat()
    for knob in knobs.all_knobs(one.values):
        text = Knob.of(one, knob).after(Knob.of(one, knob).value) if knob.choices else other[knob.kind]
        try:
            knobs.turn(one, knob, text)
        except LocalspecError:
            continue  # a grammar has rules of its own
    assert one.values != one.given
    assert loads(one).loads == []


def test_a_knob_says_what_differs_and_goes_back() -> None:
    one = chat(temp=0.8)
    assert not Knob.of(one, option("temp")).changed
    knobs.turn(one, option("temp"), " 0.2 ")
    knob = Knob.of(one, option("temp"))
    assert (knob.label, knob.value, knob.note) == ("temp", "0.2", "* was 0.8")
    knobs.reset(one, [option("temp")])
    assert one.values["temp"] == 0.8
    assert Knob.of(one, option("temp")).note == ""


def test_no_text_is_no_value_where_there_may_be_none() -> None:
    one = chat()
    knobs.turn(one, option("draft_n_max"), "5")
    assert Knob.of(one, option("draft_n_max")).note == "* was (none)"
    knobs.turn(one, option("draft_n_max"), "")
    assert one.values["draft_n_max"] is None
    knobs.turn(one, option("stop"), "'the end' END")
    assert one.values["stop"] == ("the end", "END")
    knobs.turn(one, option("stop"), "")
    assert one.values["stop"] == ()
    with pytest.raises(UsageError, match="--temp  is not a number"):
        knobs.turn(one, option("temp"), "")


@pytest.mark.parametrize(("mode", "most"), [("fixed", "3 (default)"), ("auto", "16 (default)"), ("off", "0 (default)")])
def test_what_counts_without_a_value_is_known(mode: str, most: str) -> None:
    one = chat(spec=mode)
    assert Knob.of(one, option("draft_n_max")).unset == most
    assert Knob.of(one, option("stop")).unset == "(none)"


def test_mistakes_are_those_of_set_and_change_nothing() -> None:
    one = chat()
    before = dict(one.values)
    for name, text, message in (
        ("temp", "warm", "--temp warm is not a number"),
        ("top_p", "2", "--top-p 2.0 is out of range"),
        ("spec", "maybe", "--spec maybe is not possible"),
        ("draft_n_min", "9", "spec-draft-n-min is more than spec-draft-n-max"),
    ):
        with pytest.raises(UsageError, match=message):
            knobs.turn(one, option(name), text)
    assert one.values == before


def test_what_becomes_idle_is_told() -> None:
    one = chat()
    knobs.turn(one, option("top_k"), "7")
    assert knobs.turn(one, option("mirostat"), "2") == (
        "--top-k does nothing: --mirostat draws without other samplers",
    )


def test_choices_go_round() -> None:
    one = chat(spec="auto")
    knob = Knob.of(one, option("spec"))
    assert [knob.after(text) for text in ("auto", "fixed", "off", "nonsense")] == ["fixed", "off", "auto", "auto"]
    assert Knob.of(one, option("ignore_eos")).choices == ("on", "off")


def test_speculation_is_turned_by_steps() -> None:
    one = chat(spec="auto")
    assert [knobs.next_mode(one) for _ in range(3)] == ["spec = fixed", "spec = off", "spec = auto"]
    assert knobs.deeper(one, 1) == "n-max = 17"  # 16 are the default of auto
    assert knobs.deeper(one, -20) == "n-max = 0"
    assert knobs.deeper(one, 999) == "n-max = 256"
    assert loads(one).loads == []


def test_what_fits_on_no_line_is_not_edited() -> None:
    one = chat(grammar='root ::= "a"\n')
    assert not Knob.of(one, option("grammar")).editable
    assert Knob.of(one, option("temp")).editable
