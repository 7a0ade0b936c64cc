"""Bench without a clock: the order of runs, budgets, settings, tables."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.backends.base import Rows, Work
from localspec.control import AutoController
from localspec.errors import UsageError
from localspec.loading import EngineOptions, ModelOptions
from localspec.options import COMMANDS
from localspec.tools.bench import table
from localspec.tools.bench.grid import settings, to_load
from localspec.tools.bench.summary import Report, record, result
from localspec.tools.local import PLAIN, LocalRunner, Setting
from localspec.tools.machine import peak_memory
from localspec.tools.oracle import perfect
from localspec.tools.pairs import Measured, Order, Pair, Run, Several, measure
from localspec.tools.prompts import Prompt, built_in, read_prompts
from localspec.types import SamplingParams, SpecParams, SpecStats
from tests.tools import factories

PROMPTS = (Prompt("1", "edit", "abcabcabc"), Prompt("2", "chat", "hello"), Prompt("3", "chat", "abab"))
BASE = {option.name: option.default for option in COMMANDS["bench"].options}


class Recorder:
    """Answers at once; ``speeds`` are those of the settings, by turn."""

    def __init__(self, said: str = "x") -> None:
        self.runs: list[tuple[str | None, str, int]] = []
        self.said = said

    def run(self, way: str | None, prompt: Prompt, tokens: int) -> Run:
        self.runs.append((way, prompt.id, tokens))
        return Run(tokens, 10.0 if way is None else 20.0, "x" if way is None else self.said, 4.0, None, SpecStats())


def order(**changes: object) -> Order:
    return replace(Order(("a", "b"), PROMPTS, rounds=2, tokens=40), **changes)  # type: ignore[arg-type]


# The order of runs


def test_every_run_of_a_setting_stands_beside_a_plain_one() -> None:
    recorder = Recorder()
    measured = measure(recorder, order())
    warm_up, runs = recorder.runs[:6], recorder.runs[6:]
    assert warm_up == [(way, prompt, 8) for prompt in ("2", "1") for way in (None, "a", "b")]
    half = len(runs) // 2
    assert runs[:half] == [(way, prompt.id, 40) for prompt in PROMPTS for mine in ("a", "b") for way in (None, mine)]
    assert runs[half:] == [(way, prompt.id, 40) for prompt in PROMPTS for mine in ("a", "b") for way in (mine, None)]
    assert measured.rounds == 2
    assert {way: len(pairs) for way, pairs in measured.pairs.items()} == {"a": 6, "b": 6}
    assert all(pair.ratio == 2.0 and pair.equal for pairs in measured.pairs.values() for pair in pairs)


def test_without_a_baseline_there_is_no_ratio() -> None:
    recorder = Recorder()
    measured = measure(recorder, order(baseline=None))
    assert None not in {way for way, _, _ in recorder.runs}
    assert all(pair.ratio is None and pair.equal is None for pair in measured.pairs["a"])
    text = table.markdown(report(measured))
    assert "×" not in text
    assert "no baseline in this run" in text


def test_runners_share_a_measurement() -> None:
    one, other = Recorder(), Recorder("y")
    measured = measure(Several({None: one, "a": one, "b": other}), order(baseline="server"))
    assert {way for way, _, _ in one.runs} == {None, "a"}
    assert {way for way, _, _ in other.runs} == {"b"}
    assert {pair.equal for pair in measured.of("a")} == {True}
    assert {pair.equal for pair in measured.of("b")} == {False}
    text = table.markdown(report(measured))
    assert "| server | 10.0 tok/s" in text
    assert "b: 6 of 6 texts differ from the server ones.\n" in text


def test_tokens_are_compared_where_both_tell_them() -> None:
    def equal(plain: Run, mine: Run) -> bool | None:
        return Pair(PROMPTS[0], plain, mine).equal

    here, other, there = (Run(2, 1.0, "ab", 1.0, ids) for ids in ((1, 2), (3, 4), None))
    assert equal(here, here)
    assert not equal(here, other)
    assert equal(here, there)
    assert not equal(there, replace(there, text="a"))


def test_whole_answers_have_a_ratio_of_their_own() -> None:
    plain, mine, silent = Run(40, 10.0, "x", 4.0), Run(20, 20.0, "x", 1.0), Run(0, None, "", 0.0)
    assert Pair(PROMPTS[0], plain, mine).whole == pytest.approx(2.0)
    assert Pair(PROMPTS[0], plain, silent).whole is None
    assert Pair(PROMPTS[0], silent, mine).whole is None
    assert Pair(PROMPTS[0], None, mine).whole is None
    made = report(measured())
    assert "with the prompt" not in table.markdown(made)
    lines = table.markdown(replace(made, afresh=True)).splitlines()
    assert "| with the prompt | edit | chat | all |" in lines
    assert "| chain | ×1.25 [1.25–1.25] | ×1.25 [1.25–1.25] | ×1.25 [1.25–1.25] |" in lines


def ticks(step: float) -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += step


@pytest.mark.parametrize(("budget", "rounds"), [(0.0, 2), (4.0, 2), (6.0, 3), (100.0, 5), (None, 5)])
def test_a_budget_bounds_the_rounds_but_two_are_made(budget: float | None, rounds: int) -> None:
    """Each look at the clock is a second later, and a round is two looks."""
    clock = ticks(1.0)
    measured = measure(Recorder(), order(rounds=5, budget_s=budget), clock=lambda: next(clock))
    assert (measured.rounds, measured.cut_short) == (rounds, rounds < 5)
    assert ("Only" in table.markdown(report(measured))) == (rounds < 5)


def test_progress_ends_at_one() -> None:
    shares: list[float] = []
    measure(Recorder(), order(), progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


# A real loop over an engine without weights


def test_texts_are_equal_and_as_long_as_asked_for() -> None:
    asked = (
        Setting("chain", SpecParams(depth=4, nodes=4, mode="fixed", types=("suffix",))),
        Setting("none", SpecParams(types=("none",))),
    )
    with factories.engine(factory_options()) as engine:
        runner = LocalRunner(engine, asked, SamplingParams(temperature=0, seed=1))
        measured = measure(runner, order(ways=("chain", "none"), tokens=30))
    found = [result(measured, way) for way in ("chain", "none")]
    assert [(one.overall.equal, one.overall.compared) for one in found] == [(6, 6), (6, 6)]
    assert all(pair.mine.tokens == 30 for pair in measured.of("chain"))
    assert found[0].stats.accepted > 0
    assert found[1].stats.draft_n == 0
    assert {(pair.mine.text, pair.mine.seconds > 0) for pair in measured.of("chain", "edit")} == {
        (pair.plain.text, True) for pair in measured.of("none", "edit") if pair.plain is not None
    }
    assert found[0].shares is not None
    assert sum(found[0].shares) == pytest.approx(1)


def test_settings_learn_apart_from_each_other() -> None:
    """What one loses or may try is none of the others' business."""
    asked = (Setting("a", SpecParams(depth=4, nodes=4)), Setting("b", SpecParams(depth=4, nodes=4)))
    with factories.engine(factory_options()) as engine:
        engine.controller = first = AutoController()
        runner = LocalRunner(engine, asked, SamplingParams(temperature=0, seed=1))
        used = []
        for way in ("a", "b", None, "a"):
            runner.run(way, PROMPTS[0], 16)
            used.append(engine.controller)
    assert used[0] is used[3]
    assert len({id(one) for one in (first, *used)}) == 4


@pytest.mark.parametrize("afresh", [True, False])
def test_afresh_reads_every_prompt_from_its_start(monkeypatch: pytest.MonkeyPatch, *, afresh: bool) -> None:
    rows: list[int] = []
    with factories.engine(factory_options()) as engine:
        forward = engine.target.forward

        def counted(work: Sequence[Work]) -> list[Rows]:
            rows[-1] += sum(len(item.tree) for item in work)
            return forward(work)

        monkeypatch.setattr(engine.target, "forward", counted)
        runner = LocalRunner(engine, (), SamplingParams(temperature=0, seed=1), afresh=afresh)
        for _ in range(2):
            rows.append(0)
            runner.run(None, PROMPTS[0], 4)
    assert (rows[1] == rows[0]) == afresh


def factory_options() -> EngineOptions:
    return EngineOptions(ModelOptions(Path("fake.gguf")))


# Perfect guesses


def test_perfect_guesses_cost_what_their_rows_cost() -> None:
    def seconds(rows: int) -> float:
        return 1.0 + 0.25 * (rows - 1)

    chain = SpecParams(depth=3, nodes=8, mode="fixed")
    assert perfect(chain, seconds, 0.0) == pytest.approx(4 / 1.75)
    assert perfect(chain, seconds, 1.0) == pytest.approx(4 * 2 / 2.75)
    assert perfect(replace(chain, nodes=1), seconds, 0.0) == pytest.approx(2 / 1.25)
    # Left free, the best depth: here passes get dear beyond four rows.
    auto = SpecParams(depth=16, nodes=16)
    assert perfect(auto, lambda rows: 1.0 if rows <= 4 else 10.0, 0.0) == pytest.approx(4.0)
    assert perfect(PLAIN, seconds, 0.0) is None
    assert perfect(chain, lambda rows: 0.0, 0.0) is None


# Settings


def test_the_flags_alone_are_one_setting() -> None:
    (one,) = settings((), BASE, ("suffix",))
    assert (one.name, one.spec.types, one.spec.mode, one.spec.depth) == ("suffix, auto", ("suffix",), "auto", 16)
    (one,) = settings((), {**BASE, "spec_type": "ngram-simple", "spec": "fixed"}, ("suffix",))
    assert (one.name, one.spec.types, one.spec.depth) == ("ngram-simple, fixed", ("ngram-simple",), 3)


def test_comma_lists_make_a_grid() -> None:
    found = settings(
        ("chain of=--spec fixed --spec-draft-n-max 2,4", "--spec-tree-width 2 --spec-type suffix --spec-type none"),
        {**BASE, "draft_n_min": 1},
        ("suffix", "draft-simple"),
    )
    wide = "--spec-tree-width 2 --spec-type suffix --spec-type none"
    assert [one.name for one in found] == ["chain of 2", "chain of 4", f"{wide} suffix", f"{wide} none"]
    assert [one.spec.depth for one in found] == [2, 4, 16, 16]
    assert [one.spec.width for one in found] == [1, 1, 2, 2]
    assert [one.spec.types for one in found] == [("suffix", "draft-simple")] * 2 + [("suffix",), ("none",)]
    assert {one.spec.min_depth for one in found} == {1}
    assert to_load(found, ("suffix",)) == (("suffix", "draft-simple"), 16)
    assert to_load(found[-1:], ("suffix",)) == (("none",), 16)
    assert settings(("both=--spec-type suffix,ngram-simple",), BASE, ())[0].spec.types == ("suffix", "ngram-simple")


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (("a=--temp 1",), ["--setting a", "no such option: --temp"]),
        (("a=--spec-ngram-simple-size-n 2",), ["--setting a", "no such option"]),
        (("a=--spec-draft-n-max 2,x",), ["--setting a", "'--spec-draft-n-max x' is not an integer"]),
        (("a=--spec-draft-n-max 2 --spec-draft-n-min 3",), ["--setting a", "3 is more than"]),
        (("a=--spec 'auto",), ["--setting a", "quotation"]),
        (("a=", "a=--spec off"), ["two settings are named a"]),
        (("a=more",), ["--setting a", "'more' belongs to no flag"]),
    ],
)
def test_settings_that_are_none(texts: tuple[str, ...], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        settings(texts, BASE, ("suffix",))
    line = f"{caught.value.message}. {caught.value.hint}"
    assert [word for word in words if word.replace("'", "") not in line.replace("'", "")] == []
    assert caught.value.hint.endswith(".")


# Tables


def report(measured: Measured, stats: SpecStats | None = None) -> Report:
    results = tuple(result(measured, way, oracle=2.5) for way in measured.order.ways)
    if stats is not None:
        results = tuple(replace(one, stats=stats) for one in results)
    return Report(results, measured, "`fake`: a test", {"kind": "localspec bench"}, {1: 0.01, 2: 0.015}, 10**8)


STATS = SpecStats(
    steps=10,
    drafted_steps=5,
    draft_n=20,
    tested=8,
    accepted=6,
    emitted=16,
    t_draft=1.0,
    t_verify=2.0,
    t_host=1.0,
    plain_worth=7.5,
    judged_drafts=5,
    accepted_at=(5, 1),
    tested_at=(5, 2),
)


def measured(said: str = "x") -> Measured:
    """A machine that slows down: each pair says ×2, medians of the columns would say less."""
    made = Measured(Order(("chain",), PROMPTS[:2], 3, 40), {"chain": []}, 3)
    for prompt in PROMPTS[:2]:
        for plain, mine in ((10.0, 20.0), (5.0, 10.0), (1.0, 3.0)):
            made.pairs["chain"].append(Pair(prompt, Run(40, plain, "x", 4.0), Run(40, mine, said, 3.2, stats=STATS)))
    return made


def test_markdown_takes_medians_of_ratios() -> None:
    lines = table.markdown(report(measured(), STATS)).splitlines()
    assert lines[0] == "`fake`: a test"
    assert lines[2] == "|  | edit | chat | all | same text |"
    assert lines[4] == "| plain | 5.0 tok/s | 5.0 tok/s | 5.0 tok/s |  |"
    assert lines[5].startswith("| chain | ×2.00 [2.00–3.00], 2.2, 0.75 | ×2.00")
    assert lines[5].endswith("| 6/6 |")
    assert lines[9] == "| chain | 25% / 50% / 25% | 1.00 0.50 | 1.50 tokens | ×2.50 |"
    assert lines[-1] == "Peak memory: 100 MB."


def test_texts_that_differ_are_told() -> None:
    text = table.markdown(report(measured("y")))
    assert "| 0/6 |" in text
    assert "6 of 6 texts differ from the plain ones; localspec verify" in text
    ratio = replace(report(measured("y")).results[0], same_text=False)
    text = table.markdown(replace(report(measured("y")), results=(ratio,)))
    assert "| not promised |" in text
    assert "differ" not in text


@pytest.mark.parametrize("width", [20, 60, 120])
def test_the_terminal_s_table_fits(width: int) -> None:
    lines = table.terminal(report(measured(), STATS), width).splitlines()
    assert max(map(len, lines)) <= max(width, 48)
    assert any(line.startswith("chain  ████") for line in lines)
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(
    ("share", "text"), [(0, ""), (1, "████"), (0.5, "██"), (0.125, "▌"), (0.28125, "█▏"), (-1, "")]
)
def test_bars(share: float, text: str) -> None:
    assert table.bar(share, 4) == text


def test_csv_and_json_hold_all() -> None:
    made = report(measured(), STATS)
    rows = list(csv.DictReader(io.StringIO(table.comma_separated(made))))
    assert [(row["category"], row["ratio"], row["whole_ratio"], row["pairs"]) for row in rows] == [
        ("edit", "2.0", "1.25", "3"),
        ("chat", "2.0", "1.25", "3"),
        ("all", "2.0", "1.25", "6"),
    ]
    data = json.loads(json.dumps(record(made)))
    (setting,) = data["settings"]
    assert [pair["ratio"] for pair in setting["pairs"]] == [2.0, 2.0, 3.0] * 2
    assert setting["time_shares"] == {"draft": 0.25, "verify": 0.5, "host": 0.25}
    assert (setting["oracle"], data["pass_ms"]) == (2.5, {"1": 10.0, "2": 15.0})
    assert data["plain_tokens_per_second"] == {"all": 5.0, "edit": 5.0, "chat": 5.0}


# Prompts


def test_thirty_prompts_in_six_categories_come_along() -> None:
    found = built_in("localspec.tools.bench")
    by_category = {one.category: [p.text for p in found if p.category == one.category] for one in found}
    assert list(by_category) == ["code", "edit", "json", "summarise", "translate", "chat"]
    assert {len(set(texts)) for texts in by_category.values()} == {5}


def test_prompts_of_a_file(tmp_path: Path) -> None:
    lines = tmp_path / "p.txt"
    lines.write_text("\ufeffone\n\n two \n", "utf-8")
    assert [(p.id, p.category, p.text) for p in read_prompts(lines)] == [
        ("1", "prompts", "one"),
        ("3", "prompts", "two"),
    ]
    objects = tmp_path / "p.jsonl"
    objects.write_text('{"prompt": "a\\nb", "category": "c", "id": 7}\n\n{"prompt": "d"}\n')
    assert [(p.id, p.category, p.text) for p in read_prompts(objects)] == [("7", "c", "a\nb"), ("3", "prompts", "d")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no prompt"),
        ("{", "line 1 is no JSON"),
        ('{"prompt": "a"}\n{"text": "b"}', "line 2 has no prompt"),
        ('{"prompt": 3}', "line 1 has no prompt"),
        ("[1]", "line 1 has no prompt"),
        ('{"prompt": "a", "id": 1}\n{"prompt": "b", "id": 1}', "line 2: the id '1' is there twice"),
    ],
)
def test_prompts_that_are_none(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_prompts(path)
    assert words in caught.value.message


def test_prompts_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_prompts(tmp_path / "nothing")
    (tmp_path / "latin.txt").write_bytes(b"\xe4")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_prompts(tmp_path / "latin.txt")


def test_peak_memory_is_that_of_this_process() -> None:
    found = peak_memory()
    assert found is None or 10**7 < found < 10**11
