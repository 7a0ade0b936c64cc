"""Tune without weights: the race, who takes part, what is made of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.backends.fake import FakeTarget
from localspec.control import CostCurve
from localspec.engine import Engine
from localspec.errors import LocalspecError, ModelLoadError, OutOfMemory
from localspec.hub.shelf import Entry
from localspec.tools.local import Setting
from localspec.tools.pairs import Pair, Run
from localspec.tools.prompts import Prompt
from localspec.tools.tune import study as module
from localspec.tools.tune.choice import choices
from localspec.tools.tune.costs import Costs, costs, counts
from localspec.tools.tune.field import draft_models, draft_ways, text_ways
from localspec.tools.tune.race import Race, by_turns, halved, race, stages
from localspec.tools.tune.study import Row, Setup, Study, Wish, study
from localspec.tools.tune.table import advice, noted, ranking, record
from localspec.tools.tune.why import MOST, why
from localspec.types import SamplingParams, SpecParams, SpecStats
from tests.tools import factories

PROMPTS = (
    Prompt("1", "edit", "a"),
    Prompt("2", "edit", "b"),
    Prompt("3", "chat", "c"),
    Prompt("4", "chat", "d"),
    Prompt("5", "chat", "e"),
)
BASE = SpecParams(depth=16, nodes=16)
TARGET, DRAFT = Path("big.gguf"), Path("small.gguf")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Track:
    """Answers take a second; ``speeds`` are ratios to plain decoding. ``stop_at``: ctrl-c at that answer."""

    clock: Clock
    speeds: Mapping[str, float] = field(default_factory=dict)
    stop_at: int | None = None
    runs: list[tuple[str | None, str, int]] = field(default_factory=list)

    def run(self, way: str | None, prompt: Prompt, tokens: int) -> Run:
        if len(self.runs) == self.stop_at:
            raise KeyboardInterrupt
        self.runs.append((way, prompt.id, tokens))
        self.clock.now += 1.0
        speed = 10.0 * (1.0 if way is None else self.speeds.get(way, 1.0))
        stats = SpecStats(steps=10, drafted_steps=5, tested=8, accepted=6, draft_n=8)
        return Run(tokens, speed, "x", tokens / speed, stats=None if way is None else stats)


SPEEDS = {"a": 1.1, "b": 1.5, "c": 0.8, "d": 1.2}


def raced(seconds: float, ways: str = "abcd", **changes: object) -> tuple[Race, Track]:
    clock = Clock()
    track = Track(clock, SPEEDS, **changes)  # type: ignore[arg-type]
    return race(track, list(ways), PROMPTS, 40, seconds, clock=clock), track


# The race


def test_the_slower_half_leaves_and_the_fastest_wins() -> None:
    found, _ = raced(100.0)
    assert found.running == ["b", "d"]
    assert {way: len(pairs) for way, pairs in found.pairs.items()} == {"a": 6, "b": 19, "c": 6, "d": 19}
    assert (found.prompts, found.stopped, found.speedup("b")) == (19, False, 1.5)


def test_who_is_to_be_compared_with_stays() -> None:
    clock = Clock()
    found = race(Track(clock, SPEEDS), list("abcd"), PROMPTS, 40, 100.0, keep=["c"], clock=clock)
    assert found.running == ["b", "d", "c"]
    assert len({len(found.pairs[way]) for way in "bcd"}) == 1
    assert len(found.pairs["a"]) < len(found.pairs["c"])


def test_every_answer_stands_beside_a_plain_one_that_two_share() -> None:
    _, track = raced(0.0)
    answers = [way for way, _, _ in track.runs]
    assert answers[:5] == [None, "a", "b", "c", "d"]  # the warm-up
    assert answers[5:12] == [None, "a", "b", None, "c", "d", None]
    assert answers[12:] == [None, "d", "b", None]  # the order turns round
    assert [tokens for _, _, tokens in track.runs] == [8] * 5 + [40] * 11


def test_without_time_each_stage_has_one_prompt() -> None:
    found, _ = raced(0.0)
    assert [len(found.pairs[way]) for way in "abcd"] == [1, 2, 1, 2]


def test_time_is_shared_by_the_stages_and_kept() -> None:
    found, track = raced(100.0)
    in_the_first = 7 * len(found.pairs["a"])
    assert 40 <= 5 + in_the_first <= 50
    assert 90 <= track.clock.now <= 100


@pytest.mark.parametrize(("stop_at", "answered"), [(2, 0), (8, 0), (13, 1)])
def test_ctrl_c_keeps_what_all_have_answered(stop_at: int, answered: int) -> None:
    found, _ = raced(100.0, stop_at=stop_at)
    assert found.stopped
    assert {len(pairs) for pairs in found.pairs.values()} == {answered}
    assert found.prompts == answered


@given(st.integers(1, 200))
def test_stages_end_with_the_finalists(runners: int) -> None:
    left = runners
    for _ in range(stages(runners) - 1):
        left = halved(left)
    assert left == min(runners, 2)


def test_prompts_come_by_turns() -> None:
    coming = by_turns(PROMPTS)
    assert [next(coming).id for _ in range(7)] == ["1", "3", "2", "4", "5", "1", "3"]


# Costs


class Timed(FakeTarget):
    """Passes take what the thread count says."""

    def __init__(self, clock: Clock, seconds: Mapping[int, float]) -> None:
        super().__init__()
        self._clock, self._seconds, self._count = clock, seconds, max(seconds)

    def set_threads(self, n: int) -> None:
        self._count = n

    @property
    def count(self) -> int:
        return self._count

    def forward(self, work):  # type: ignore[no-untyped-def]
        self._clock.now += self._seconds[self._count]
        return super().forward(work)


@pytest.mark.parametrize(
    ("seconds", "threads"),
    [({4: 1.0, 2: 1.3, 1: 2.0}, None), ({4: 1.0, 2: 0.96, 1: 2.0}, None), ({4: 1.0, 2: 0.7, 1: 0.8}, 2)],
)
def test_threads_are_fixed_where_another_count_is_clearly_faster(
    seconds: dict[int, float], threads: int | None
) -> None:
    clock = Clock()
    target = Timed(clock, seconds)
    found = costs(target, (4, 2, 1), 4, budget_s=10.0, clock=clock, cpu_clock=lambda: 4 * clock.now)
    assert (found.threads, found.busy) == (threads, False)
    assert target.count == (threads or 4)
    assert {count: times[1] for count, times in found.by_threads.items()} == pytest.approx(seconds)
    assert target.open() >= 0


def test_no_count_is_fixed_where_others_take_processor_time() -> None:
    clock = Clock()
    target = Timed(clock, {4: 1.0, 2: 0.7, 1: 0.8})
    found = costs(target, (4, 2, 1), 4, budget_s=10.0, clock=clock, cpu_clock=lambda: 3 * clock.now)
    assert (found.threads, found.busy, target.count) == (None, True, 4)


def test_a_fixed_count_is_not_questioned() -> None:
    found = costs(FakeTarget(), (), 4, budget_s=0.0)
    assert (found.threads, found.by_threads) == (None, {})
    assert found.curve.seconds(1) > 0


@pytest.mark.parametrize(
    ("cores", "tried"), [(1, (1,)), (2, (2, 1)), (6, (6, 5, 4, 3, 2, 1)), (16, (16, 14, 12, 10, 8, 6, 4, 2))]
)
def test_thread_counts(cores: int, tried: tuple[int, ...]) -> None:
    assert counts(cores) == tried


# Who takes part


def test_ways_to_guess() -> None:
    names = ("suffix", "draft-simple", "lookahead")
    assert [way.name for way in text_ways(BASE, names)] == ["suffix", "lookahead"]
    ways = draft_ways(BASE, names)
    assert [way.name for way in ways] == ["suffix,draft-simple", "draft-simple", "suffix,draft-simple, width 2"]
    assert [way.spec.width for way in ways] == [1, 1, 2]
    wide = draft_ways(replace(BASE, width=3), ("draft-simple",))
    assert [(way.name, way.spec.types) for way in wide] == [("draft-simple, width 3", ("draft-simple",))]


def write_model(path: Path, *, tokens: int = 300, pre: str = "gpt-2", size: int = 1000) -> Entry:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([str(i) for i in range(tokens)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with path.open("ab") as file:
        file.truncate(size)
    return Entry(path.stem, path, size, None)


def test_draft_models_are_smaller_and_of_the_vocabulary(tmp_path: Path) -> None:
    target = write_model(tmp_path / "big.gguf", size=1_400_000)
    fitting = write_model(tmp_path / "fitting.gguf", size=100_000)
    large = write_model(tmp_path / "large.gguf", size=1_000_000, tokens=310)
    (tmp_path / "link.gguf").symlink_to(fitting.path)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    others = [
        write_model(tmp_path / "other.gguf", size=100_000, pre="llama-bpe"),
        write_model(tmp_path / "many.gguf", size=100_000, tokens=600),
        write_model(tmp_path / "same-size.gguf", size=1_400_000),
        replace(fitting, path=write_model(tmp_path / "torn.gguf", size=100_000).path, fault="torn"),
        Entry("link", tmp_path / "link.gguf", 100_000, None),
        Entry("broken", broken, 4, None),
    ]
    assert draft_models(target.path, [target, large, fitting, *others]) == [fitting.path, large.path]


# The study


class Engines:
    """Loads engines without weights; ``faults`` by draft model."""

    def __init__(self, faults: Mapping[Path, LocalspecError] | None = None) -> None:
        self.faults = faults or {}
        self.loaded: list[tuple[Path | None, tuple[str, ...], Setup]] = []

    @contextmanager
    def alone(self, draft: Path | None, layers: int | None) -> Iterator[Engine]:
        yield self._engine(draft, ())

    def sizes(self, draft: Path | None) -> tuple[int, ...]:
        return ()

    @contextmanager
    def pair(self, draft: Path | None, types: tuple[str, ...], nodes: int, setup: Setup) -> Iterator[Engine]:
        self.loaded.append((draft, types, setup))
        yield self._engine(draft, types)

    def _engine(self, draft: Path | None, types: tuple[str, ...]) -> Engine:
        if draft is not None and draft in self.faults:
            raise self.faults[draft]
        return Engine(factories.target())


WISH = Wish(
    drafts=(),
    found=True,
    types=("suffix", "lookahead"),
    base=BASE,
    prompts=PROMPTS,
    tokens=40,
    sampling=SamplingParams(),
    counts=(),
    counts_draft=(),
)


@pytest.fixture
def track(monkeypatch: pytest.MonkeyPatch) -> Track:
    """Races are run on it, and passes take: the target 1 s, two rows 1.2 s; a draft model 0.2 s."""
    track = Track(Clock(), {"suffix": 1.2, "lookahead": 1.0, "suffix,draft-simple": 1.4, "draft-simple": 1.1})
    monkeypatch.setattr(module, "LocalRunner", lambda *_: track)
    target, draft = CostCurve({1: 1.0, 2: 1.2, 4: 1.6}), CostCurve({1: 0.2})
    monkeypatch.setattr(module, "costs", lambda _, tried, rows, **__: Costs({}, None, draft if rows == 1 else target))
    return track


def studied(track: Track, wish: Wish, seconds: float = 200.0, engines: Engines | None = None) -> Study:
    return study(engines or Engines(), wish, seconds, clock=track.clock)


def test_a_named_draft_model_races_with_the_others_in_one_engine(track: Track) -> None:
    engines = Engines()
    found = studied(track, replace(WISH, drafts=(DRAFT,), found=False), engines=engines)
    ((draft, types, setup),) = engines.loaded
    assert (draft, types, setup) == (DRAFT, ("suffix", "lookahead", "draft-simple"), Setup())
    assert [(row.setting.name, row.draft, row.last) for row in found.rows[:2]] == [
        ("suffix,draft-simple", DRAFT, True),
        ("suffix", None, True),
    ]
    assert found.ceilings[DRAFT] == pytest.approx(17 / (4.2 + 16 * 0.2))  # a pass of 17 rows, 16 guesses
    (alone, pair) = choices(found, {})
    assert (alone.draft, alone.settings, alone.usual, alone.speedup) == (None, {}, True, 1.2)
    assert (pair.draft, pair.settings, pair.usual, pair.speedup) == (DRAFT, {}, True, 1.4)
    assert 190 <= found.seconds <= 205


def test_found_draft_models_have_an_engine_each_and_may_fail(track: Track) -> None:
    torn, large = Path("torn.gguf"), Path("large.gguf")
    engines = Engines({torn: ModelLoadError("it is torn"), large: OutOfMemory("no room")})
    found = studied(track, replace(WISH, drafts=(DRAFT, torn, large)), engines=engines)
    assert [(draft, types) for draft, types, _ in engines.loaded] == [
        (None, ("suffix", "lookahead")),
        (DRAFT, ("suffix", "draft-simple")),
    ]
    assert found.left_out == {torn: "it is torn", large: "it does not fit into memory"}
    with pytest.raises(ModelLoadError, match="it is torn"):
        studied(track, replace(WISH, drafts=(torn,), found=False), engines=engines)


def test_a_draft_model_that_cannot_pay_is_not_raced(track: Track, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = CostCurve({1: 1.0, 2: 1.9, 4: 3.8})
    monkeypatch.setattr(module, "costs", lambda *_, **__: Costs({}, None, slow))
    engines = Engines()
    found = studied(track, replace(WISH, drafts=(DRAFT,)), engines=engines)
    assert [draft for draft, _, _ in engines.loaded] == [None]
    assert found.left_out[DRAFT].startswith("a guess takes 1.00 of the target's pass: even perfect ones")


def test_found_draft_models_are_left_out_when_the_time_is_over(track: Track) -> None:
    found = studied(track, replace(WISH, drafts=(DRAFT,)), 5.0)
    assert found.left_out[DRAFT].startswith("the time was over")
    assert [row.draft for row in found.rows] == [None, None]


def test_a_slow_model_gives_shorter_answers(track: Track) -> None:
    """Two ways: four answers a prompt, for three prompts in the one stage; a token takes a second."""
    assert studied(track, WISH, 360.0).heats[0].race.tokens == 30
    assert studied(track, WISH, 20.0).heats[0].race.tokens == 24
    assert studied(track, replace(WISH, tokens=8), 2000.0).heats[0].race.tokens == 8


def test_ctrl_c_tells_how_it_stands(track: Track) -> None:
    track.stop_at = 3 + 4 * 3
    found = studied(track, replace(WISH, drafts=(DRAFT,)))
    assert found.stopped
    assert [len(row.pairs) for row in found.rows] == [3, 3]
    assert list(noted(found)) == ["Stopped by ctrl-c: this is how it stood."]


@pytest.mark.parametrize("stop_at", [0, 3, 5])
def test_ctrl_c_before_the_first_answers_ends_it(track: Track, stop_at: int) -> None:
    track.stop_at = stop_at
    with pytest.raises(KeyboardInterrupt):
        studied(track, WISH)


class WithDevices(Engines):
    """Models of ten layers and a thousand bytes, the draft model of two and a hundred."""

    def __init__(self) -> None:
        super().__init__()
        self.alone_with: list[tuple[Path | None, int | None]] = []

    @contextmanager
    def alone(self, draft: Path | None, layers: int | None) -> Iterator[Engine]:
        self.alone_with.append((draft, layers))
        yield Engine(factories.target())

    def sizes(self, draft: Path | None) -> tuple[int, ...]:
        return (100,) * 10 if draft is None else (50, 50)


def test_layers_go_where_they_are_expected_to_bring_most(track: Track, monkeypatch: pytest.MonkeyPatch) -> None:
    """On devices the target is twice as fast with all, the draft model ten times: it goes there first."""
    engines = WithDevices()

    def costs_there(*_: object, **__: object) -> Costs:
        draft, layers = engines.alone_with[-1]
        first, share = (1.0, 0.5) if draft is None else (0.2, 0.9)
        seconds = first * (1 - share * (layers or 0) / (10 if draft is None else 2))
        return Costs({}, None, CostCurve({1: seconds, 2: seconds * 1.1}))

    monkeypatch.setattr(module, "costs", costs_there)
    found = studied(track, replace(WISH, drafts=(DRAFT,), found=False, room=520), engines=engines)
    assert engines.alone_with == [(None, 0), (None, 5), (DRAFT, 0), (DRAFT, 2)]
    assert found.target.curve.seconds(1) == pytest.approx(0.75)
    assert found.guess_s(DRAFT) == pytest.approx(0.02)
    ((_, _, setup),) = engines.loaded
    assert setup == Setup(layers=4, layers_draft=2)
    alone, pair = choices(found, {})
    assert alone.settings == {"gpu-layers": 5}
    assert pair.settings == {"gpu-layers": 4, "gpu-layers-draft": 2}
    assert why(found, [alone, pair])[-1].startswith("-ngl 4 -ngld 2: ")


@pytest.mark.parametrize(
    ("room", "settings", "words"),
    [
        (5000, {}, "-ngl and -ngld: everything fits on devices, and is fastest there"),
        (50, {}, "-ngl and -ngld: no device has room for a layer"),
        (0, {}, "-ngl and -ngld: there is no device beside the CPU"),
        (None, {}, "-ngl and -ngld: as given"),
    ],
)
def test_nothing_is_split_where_all_fits_or_nothing(
    track: Track, monkeypatch: pytest.MonkeyPatch, room: int | None, settings: dict[str, object], words: str
) -> None:
    engines = WithDevices()

    def costs_there(*_: object, **__: object) -> Costs:
        return Costs({}, None, CostCurve({1: 1.0 - 0.05 * (engines.alone_with[-1][1] or 0), 2: 1.5}))

    monkeypatch.setattr(module, "costs", costs_there)
    found = studied(track, replace(WISH, room=room), engines=engines)
    (alone,) = choices(found, {})
    assert alone.settings == settings
    assert why(found, [alone])[-1].startswith(words)


def test_a_real_race_over_engines_without_weights() -> None:
    """The same path without stand-ins: all texts are the plain ones."""

    class Real(Engines):
        def _engine(self, draft: Path | None, types: tuple[str, ...]) -> Engine:
            options = factory_options(draft, types)
            return factories.engine(options)

    wish = replace(WISH, types=("suffix", "ngram-simple"), drafts=(DRAFT,), found=False, tokens=16, counts=(2, 1))
    wish = replace(wish, sampling=SamplingParams(temperature=0, seed=1))
    found = study(Real(), wish, 0.0)
    assert max(row.cell.pairs for row in found.rows) == 3
    assert all(row.cell.equal == row.cell.compared > 0 for row in found.rows)
    assert set(found.target.by_threads) == {2, 1}


def factory_options(draft: Path | None, types: tuple[str, ...]):  # type: ignore[no-untyped-def]
    from localspec.loading import EngineOptions, ModelOptions

    return EngineOptions(
        ModelOptions(TARGET),
        draft=ModelOptions(draft) if draft is not None and types else None,
        spec_types=types,
    )


# What is made of it


def row(
    name: str,
    speedup: float,
    *,
    draft: Path | None = None,
    last: bool = True,
    width: int = 1,
    spread: float = 0.0,
    prompts: int = 3,
) -> Row:
    types = tuple(name.split(","))
    pairs = tuple(
        Pair(prompt, Run(40, 10.0, "x", 4.0, stats=SpecStats()), Run(40, 10.0 * ratio, "x", 4.0, stats=SpecStats()))
        for prompt, ratio in zip(PROMPTS, (speedup - spread, speedup, speedup + spread)[:prompts], strict=False)
    )
    return Row(draft, Setting(name, replace(BASE, types=types, width=width)), pairs, last)


class Told(Study):
    """A study with these rows."""

    def __init__(self, *rows: Row, threads: int | None = None) -> None:
        super().__init__(Costs({}, threads, CostCurve({1: 0.01, 2: 0.012, 4: 0.016})))
        self.rows = sorted(rows, key=lambda one: (not one.last, -one.speedup))
        self.drafts = {DRAFT: Costs({}, threads and 1, CostCurve({1: 0.002}))}
        self.ceilings = {DRAFT: 2.0}


@pytest.mark.parametrize(
    ("rows", "settings", "usual"),
    [
        ([row("suffix", 1.2), row("lookahead", 1.21)], {}, True),
        ([row("suffix", 1.2), row("lookahead", 1.3)], {"spec-type": "lookahead"}, False),
        ([row("suffix", 1.2), row("lookahead", 1.3, spread=0.2)], {}, True),
        ([row("suffix", 1.2), row("lookahead", 1.3, prompts=2)], {}, True),
        ([row("suffix", 1.5, last=False), row("lookahead", 1.3)], {}, True),
        ([row("suffix", 0.99, spread=0.1), row("lookahead", 0.9)], {}, True),
        ([row("suffix", 0.9), row("lookahead", 0.9)], {"spec": "off"}, False),
        ([row("lookahead", 1.0)], {"spec-type": "lookahead"}, False),
        (
            [row("suffix,draft-simple", 1.2, draft=DRAFT), row("suffix,draft-simple", 1.3, draft=DRAFT, width=2)],
            {"spec-tree-width": 2},
            False,
        ),
        ([row("draft-simple", 1.2, draft=DRAFT)], {"spec-type": "draft-simple"}, False),
    ],
)
def test_the_usual_way_stays_unless_it_is_clearly_beaten(
    rows: list[Row], settings: dict[str, object], usual: bool
) -> None:
    (choice,) = choices(Told(*rows), {})
    assert (choice.settings, choice.usual) == (settings, usual)
    assert choice.speedup == (1.0 if choice.row is None else choice.row.speedup)


def test_settings_that_were_asked_for_are_kept_beside_threads() -> None:
    told = Told(row("suffix", 1.2), row("suffix,draft-simple", 1.4, draft=DRAFT), threads=2)
    alone, pair = choices(told, {"spec-draft-n-max": 4})
    assert alone.settings == {"spec-draft-n-max": 4, "threads": 2}
    assert pair.settings == {"spec-draft-n-max": 4, "threads": 2, "threads-draft": 1}
    assert (
        advice(pair)
        == "with -md small.gguf: --spec-draft-n-max 4 --threads 2 --threads-draft 1 (×1.40 of plain decoding's speed)"
    )


@pytest.mark.parametrize("speedup", [0.96, 1.0])
def test_what_is_no_gain_is_not_shown_as_one(speedup: float) -> None:
    (alone,) = choices(Told(row("suffix", speedup, spread=0.1), threads=1), {})
    assert advice(alone) == "without a draft model: --threads 1"


@pytest.mark.parametrize(("speedup", "first"), [(0.97, "plain decoding is first, suffix (×0.97)"), (1.1, "suffix is")])
def test_who_is_first(speedup: float, first: str) -> None:
    told = Told(row("suffix", speedup), row("lookahead", 0.9))
    (line,) = [line for line in why(told, choices(told, {})) if "is first" in line]
    assert line.startswith(first)
    assert line.endswith(": it found nothing worth guessing")


def test_two_answers_have_no_interval() -> None:
    told = Told(row("suffix", 1.2, prompts=2), row("lookahead", 0.9, prompts=2))
    assert "[" not in ranking(told)
    assert any(line.endswith("which may be chance: there are too few answers") for line in why(told, []))


def test_the_ranking_has_plain_decoding_in_its_place() -> None:
    told = Told(row("suffix", 1.2), row("suffix,draft-simple", 0.7, draft=DRAFT), row("lookahead", 0.9, last=False))
    assert ranking(told).splitlines() == [
        "    who guesses          draft model  speed-up           tok/s  prompts",
        "1.  suffix               -            ×1.20 [1.20–1.20]   12.0        3",
        "2.  plain decoding       -            ×1                  10.0        -",
        "3.  suffix,draft-simple  small.gguf   ×0.70 [0.70–0.70]    7.0        3",
        "4.  lookahead            -            ×0.90 [0.90–0.90]    9.0        3",
    ]


def test_ten_lines_say_why(track: Track) -> None:
    found = studied(track, replace(WISH, drafts=(DRAFT, Path("b.gguf"), Path("c.gguf"), Path("d.gguf"))))
    found.target = replace(found.target, by_threads={2: {1: 0.5}, 1: {1: 0.4}}, threads=1)
    chosen = choices(found, {})
    lines = why(found, chosen)
    assert len(lines) <= MOST
    assert lines[0].startswith("a pass of the target takes 1000 ms; with more rows so many times that (2: 1.2, 4: 1.6")
    assert lines[1] == "ms by threads (1: 400, 2: 500): -t 1"
    assert "a single guess pays if more than 20% of its kind hold" in lines[2]
    assert any(line.startswith("small.gguf: a guess takes 200 ms, 0.20 of the target's pass") for line in lines)
    told = json.loads(json.dumps(record(found, chosen, lines)))
    first, *_ = told["ranking"]
    assert (first["setting"], first["predicted_tokens_per_second"]) == ("suffix,draft-simple", pytest.approx(14.0))
    assert told["choices"][0] == {"draft": None, "speedup": 1.2, "usual": True, "settings": {"threads": 1}}


@pytest.mark.parametrize(("with_model", "words"), [(1.5, "small.gguf is worth its memory"), (1.1, "leave -md out")])
def test_whether_the_draft_model_is_worth_naming(with_model: float, words: str) -> None:
    told = Told(row("suffix", 1.2), row("draft-simple", with_model, draft=DRAFT))
    assert [line for line in why(told, choices(told, {})) if words in line]


def test_a_busy_machine_is_named_and_fixes_no_threads() -> None:
    told = Told(row("suffix", 1.2), threads=1)
    told.target = replace(told.target, by_threads={2: {1: 0.5}, 1: {1: 0.4}})
    assert list(noted(told)) == []
    assert choices(told, {})[0].settings == {"threads": 1}
    told.rows = [
        *told.rows,
        replace(told.rows[0], pairs=(Pair(PROMPTS[0], Run(9, 21.0, "x", 1.0), Run(9, 30.0, "x", 1.0)),)),
    ]
    assert next(noted(told)).startswith("Plain decoding ran at 10 to 21 tok/s: the machine was busy.")
    assert choices(told, {})[0].settings == {}
    assert why(told, [])[1] == "ms by threads (1: 400, 2: 500): nothing is fixed, since the machine was busy"
    told = Told(row("suffix", 1.2))
    told.target = replace(told.target, busy=True)
    assert next(noted(told)).endswith("the machine was busy.")


def test_nothing_answered_is_nothing_said() -> None:
    told = Told()
    assert choices(told, {}) == []
    assert len(why(told, [])) >= 1
    assert "plain decoding" in ranking(told)
