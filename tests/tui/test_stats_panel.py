from __future__ import annotations

from collections import Counter

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from localspec.talk.trace import AnswerTrace
from localspec.tui.stats import StatsPanel
from localspec.tui.stats_lines import stats_lines
from localspec.types import SourceStats, SpecStats, StepStats, Tokens
from tests.talk.test_trace import events_of
from tests.tui.hosts import run, screen_lines
from tests.tui.support import until
from tests.tui.traces import example

STANDINGS = [
    ("draft-simple", "in use: in the last answer 3 of 9 guesses held"),
    ("ngram-mod", "left alone: it would make the answer slower, since its guesses seldom hold"),
]


def plain(trace: AnswerTrace, width: int = 44, height: int = 0) -> list[str]:
    return [line.plain.rstrip() for line in stats_lines(trace, STANDINGS, width, height)]


def after(lines: list[str], title: str) -> list[str]:
    """What stands below a title, up to the next blank line."""
    at = next(i for i, line in enumerate(lines) if line.startswith(title))
    below = lines[at + 1 :]
    return below[: below.index("")] if "" in below else below


def hand_made() -> AnswerTrace:
    """Three steps: 2 of 3 held, none of 2, nothing guessed."""
    trace = AnswerTrace()
    for draft_n, tested, accepted, plain_s in ((3, 3, 2, 0.3), (2, 1, 0, 0.1), (0, 0, 0, 0.1)):
        step = StepStats(draft_n, tested, accepted, accepted + 1, 0, 0.02, 0.1, 0.005, t_plain=plain_s)
        trace.hear(Tokens(1, "", (), step))
    return trace


def test_numbers_are_those_of_the_answer() -> None:
    lines = plain(hand_made())
    assert after(lines, "Guesses") == [
        "α 0.50 · accepted 40 % (2/5) · length 2.0",
        "over time ▆▁·",
        "3 steps, 2 with guesses · 1.67 tok each",
    ]
    depths = after(lines, "By depth")
    assert [line.split()[0] for line in depths] == ["1", "2", "3"]
    assert [line.split()[-3:] for line in depths] == [["50", "%", "1/2"], ["100", "%", "1/1"], ["0", "%", "0/1"]]
    assert depths[1].count("█") > depths[0].count("█") > depths[2].count("█") == 0
    lengths = after(lines, "Accepted lengths")
    assert [(line.split()[0], line.split()[-1]) for line in lengths] == [("0", "1"), ("1", "0"), ("2", "1")]
    assert after(lines, "Time: 0.38 s")[1:] == ["█ draft 16 % · ▒ verify 80 % · ░ host 4 %"]
    assert after(lines, "Speed-up") == [
        "1.33× plain decoding, as measured",
        "plain 0.50 s · taken 0.38 s · saved 0.12 s",
    ]
    assert after(lines, "Last guesses: step 2") == ["2 guessed · 0 held", "the tree was not asked for"]


def test_time_that_was_lost_is_called_so() -> None:
    trace = AnswerTrace()
    trace.hear(Tokens(1, "", (), StepStats(3, 1, 0, 1, 0, 0.1, 0.3, 0.0, t_plain=0.2)))
    assert "lost 0.20 s" in " ".join(after(plain(trace), "Speed-up"))


def test_nothing_is_claimed_that_was_not_measured() -> None:
    assert after(plain(example(20, measured=False)), "Speed-up") == ["n/a: plain decoding was not measured"]
    empty = plain(AnswerTrace())
    assert after(empty, "Speed-up") == ["n/a: nothing was drafted"]
    assert after(empty, "Guesses") == ["nothing was drafted"]
    assert not [line for line in empty if line.startswith(("By depth", "Accepted", "Time", "Last"))]


def test_each_drafter_stands_there_with_its_numbers() -> None:
    trace = example(300)
    lines = after(plain(trace), "Drafters")
    by_source: dict[str, SourceStats] = {one.name: one for one in trace.stats.by_source}
    simple, suffix = by_source["draft-simple"], by_source["suffix"]
    assert f"draft-simple: {simple.accepted / simple.draft_n:.0%}".replace("%", " %") in lines[0]
    assert f"({simple.accepted}/{simple.draft_n})" in lines[0]
    assert "in use: in the last answer" in lines[1]
    names = [line for line in lines if not line.startswith("  ")]
    assert "ngram-mod" in names
    assert any(f"({suffix.accepted}/{suffix.draft_n})" in line for line in names)
    assert "seldom hold" in " ".join(lines)


def test_names_and_reasons_steer_no_terminal() -> None:
    standings = [("[red]bad\x1b[31m", "paused:\x07 \x1b]0;title")]
    lines = [line.plain for line in stats_lines(AnswerTrace(), standings, 40)]
    assert all(char.isprintable() for line in lines for char in line)
    assert any(line.startswith("[red]bad") for line in lines)


@pytest.mark.parametrize("width", [35, 50])
def test_no_line_is_wider_than_the_column(width: int) -> None:
    for trace in (AnswerTrace(), hand_made(), example(400)):
        assert all(cell_len(line) <= width for line in plain(trace, width))


def test_the_tree_makes_use_of_the_height() -> None:
    trace = example(200)
    while trace.last_draft is None or trace.last_draft.stats.draft_n < 8:
        trace = example(len(trace.tokens) + 1)
    step = trace.last_draft
    low, high = plain(trace), plain(trace, height=100)
    assert len(high) >= len(low)
    assert sum(" rival" in line or "␣rival" in line for line in high) == step.stats.draft_n // 2


def test_what_a_real_engine_verified_is_drawn_at_every_step() -> None:
    trace, drawn = AnswerTrace(), 0
    for event in events_of(n=40):
        trace.hear(event)
        lines = plain(trace, height=100)
        if (step := trace.last_draft) is not None:
            signs = Counter(line.lstrip("│├")[0] for line in after(lines, "Last guesses")[1:] if line.lstrip("│├"))
            assert signs["✓"] == step.stats.accepted
            assert signs["✗"] == step.stats.draft_n - step.stats.accepted
            assert signs["•"] == 2  # one in the legend
            drawn += 1
    assert drawn > 5


@pytest.mark.parametrize("size", [(50, 60), (36, 60)])
@pytest.mark.parametrize("colour", [True, False])
def test_it_is_shown(size: tuple[int, int], colour: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    panel, trace = StatsPanel(), example(3000)

    async def scenario(pilot: Pilot[None]) -> list[str]:
        panel.show(trace, STANDINGS)
        await pilot.pause()
        return screen_lines(pilot)

    shown = run(panel, scenario, size=size)
    expected = plain(trace, size[0] - 1, size[1])
    assert [line.rstrip(" █▁▂▃▄▅▆▇▔") for line in shown[: len(expected)]][:4] == [
        line.rstrip(" █▁▂▃▄▅▆▇▔") for line in expected
    ][:4]
    for title in ("Guesses", "By depth", "Accepted lengths", "Time", "Speed-up", "Drafters"):
        assert any(line.startswith(title) for line in shown), title


def test_only_what_changed_is_painted(monkeypatch: pytest.MonkeyPatch) -> None:
    panel, trace = StatsPanel(), hand_made()
    painted: list[int] = []

    async def scenario(pilot: Pilot[None]) -> None:
        panel.show(trace, STANDINGS)
        await pilot.pause()
        monkeypatch.setattr(panel, "refresh_lines", painted.append)
        panel.show(trace, STANDINGS)
        assert painted == []
        height = panel.virtual_size
        trace.hear(Tokens(1, "", (), StepStats(0, 0, 0, 1, 0, 0.0, 0.1, 0.0, t_plain=0.1)))
        panel.show(trace, STANDINGS)
        changed = {panel.lines[at].plain.split(":")[0].split(" ")[0] for at in painted}
        assert "over" in changed
        assert "By" not in changed
        assert 0 < len(painted) < len(panel.lines) / 2
        assert panel.virtual_size == height

    run(panel, scenario)


def test_it_never_gets_shorter_within_an_answer_and_starts_anew_with_the_next() -> None:
    panel, long = StatsPanel(), example(400)

    async def scenario(pilot: Pilot[None]) -> tuple[int, int, int]:
        panel.show(long, STANDINGS)
        most = len(panel.lines)
        panel.show(long, [])
        same = len(panel.lines)
        panel.show(AnswerTrace(), [])
        await pilot.pause()
        assert screen_lines(pilot)[1] == "nothing was drafted"
        return most, same, len(panel.lines)

    most, same, fresh = run(panel, scenario)
    assert most == same > fresh


def test_a_panel_that_is_hidden_or_resized_shows_the_newest() -> None:
    panel, trace = StatsPanel(), example(300)

    async def scenario(pilot: Pilot[None]) -> None:
        panel.display = False
        await pilot.pause()
        panel.show(trace, STANDINGS)
        assert not panel.lines
        panel.display = True
        await pilot.pause()
        assert panel.lines
        await pilot.resize_terminal(36, 30)
        await pilot.pause()
        assert max(line.cell_length for line in panel.lines) <= 35
        panel.focus()
        await pilot.press("end")
        await until(pilot, lambda: panel.scroll_offset.y == len(panel.lines) - 30)

    run(panel, scenario)


def test_statistics_of_nothing_divide_by_nothing() -> None:
    trace = AnswerTrace()
    trace.hear(Tokens(1, "", (), StepStats(0, 0, 0, 0, 1, 0.0, 0.0, 0.0)))
    assert trace.stats == SpecStats(steps=1, cut=1)
    assert plain(trace)
