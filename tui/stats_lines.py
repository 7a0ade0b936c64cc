"""What the statistics panel says of an answer, as lines of styled text. The words are those of /stats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap

from textual.content import Content

from localspec.talk.totals import share
from localspec.talk.trace import AnswerTrace, Step
from localspec.text.layout import flow
from localspec.text.printable import one_line
from localspec.tui.bars import bar, spark, split
from localspec.tui.marks import marks_of
from localspec.tui.step_words import headline
from localspec.tui.tree_view import DRAWN, SIGNS, tree_lines
from localspec.tui.visible import visible
from localspec.types import SourceStats, SpecStats

#: Lines that the tree may take, however low the panel is; it scrolls then.
LEAST_TREE = 12
#: Lines from which on blank ones part the sections; lower, the tree has their room.
ROOMY = 50
_OVER_TIME = "over time "
_TIME_SIGNS = {"draft": ("█", "$text-primary"), "verify": ("▒", "$text-success"), "host": ("░", "$text-warning")}


def stats_lines(trace: AnswerTrace, standings: Sequence[tuple[str, str]], width: int, height: int = 0) -> list[Content]:
    """All there is to say, in lines of at most ``width`` cells.

    Args:
        standings: drafters and how each stands, in words.
        height: lines that can be seen at once; the tree makes itself fit, if that leaves it `LEAST_TREE`.
    """
    stats = trace.stats
    marks = marks_of(trace.drafters) if len(trace.drafters) > 1 else {}
    lines = [
        *(_newest_step(trace, marks, width, height or LEAST_TREE) if trace.paced else []),
        *_guesses(trace, stats, width),
        *_by_depth(stats, width),
        *_lengths(stats, width),
        *_time(trace.times, width),
        *_speed_up(trace, stats, width),
        *_drafters(stats.by_source, standings, marks, width),
    ]
    if 0 < height < ROOMY:
        lines = [line for line in lines if line.plain]
    if trace.paced:
        return lines
    return lines + _last_guesses(trace, marks, width, max(height - len(lines), LEAST_TREE))


def _section(title: str, body: Iterable[Content]) -> list[Content]:
    return [Content.styled(title, "bold"), *body, Content.empty()]


def _plain(lines: Iterable[str], style: str = "") -> list[Content]:
    return [Content.styled(line, style) for line in lines]


def _guesses(trace: AnswerTrace, stats: SpecStats, width: int) -> list[Content]:
    body = _plain(flow("", _rates(stats), width))
    if stats.draft_n:
        blocks = spark(trace.acceptance(width - len(_OVER_TIME)))
        body.append(Content.assemble(_OVER_TIME, (blocks, "$text-success")))
    if stats.tokens_per_step is not None:
        steps = [f"{stats.steps} steps, {stats.drafted_steps} with guesses", f"{stats.tokens_per_step:.2f} tok each"]
        body += _plain(flow("", steps, width))
    return _section("Guesses", body)


def _rates(stats: SpecStats) -> list[str]:
    if stats.alpha is None or stats.mean_length is None:
        return ["nothing was drafted"]
    accepted = f"accepted {share(stats.accepted, stats.draft_n)} ({stats.accepted}/{stats.draft_n})"
    return [f"α {stats.alpha:.2f}", accepted, f"length {stats.mean_length:.1f}"]


def _by_depth(stats: SpecStats, width: int) -> list[Content]:
    rows = [
        (str(depth), accepted / tested, share(accepted, tested), f"{accepted}/{tested}")
        for depth, (accepted, tested) in enumerate(zip(stats.accepted_at, stats.tested_at, strict=False), start=1)
        if tested
    ]
    return _section("By depth: held of tested", _bars(rows, width, "$text-success")) if rows else []


def _lengths(stats: SpecStats, width: int) -> list[Content]:
    most = max(stats.lengths, default=0)
    rows = [
        (str(length), count / most, share(count, stats.drafted_steps), str(count))
        for length, count in enumerate(stats.lengths)
    ]
    return _section("Accepted lengths: steps", _bars(rows, width, "$text-primary")) if most else []


def _bars(rows: Sequence[tuple[str, float, str, str]], width: int, style: str) -> list[Content]:
    """A row each of label, bar, share and numbers; all but the bar aligned on the right."""
    labels, _, shares, counts = zip(*rows, strict=True)
    left, middle, right = (max(map(len, column)) for column in (labels, shares, counts))
    room = max(width - left - middle - right - 3, 0)
    return [
        Content.assemble(f"{label:>{left}} ", (bar(size, room), style), f" {part:>{middle}} {numbers:>{right}}")
        for label, size, part, numbers in rows
    ]


def _time(times: Mapping[str, float], width: int) -> list[Content]:
    total = sum(times.values())
    if not total:
        return []
    blocks, words = [], []
    for (name, seconds), cells in zip(times.items(), split(list(times.values()), width), strict=True):
        sign, style = _TIME_SIGNS[name]
        blocks.append((sign * cells, style))
        words.append(f"{sign} {name} {share(seconds, total)}")
    return _section(f"Time: {total:.2f} s", [Content.assemble(*blocks), *_plain(flow("", words, width))])


def _speed_up(trace: AnswerTrace, stats: SpecStats, width: int) -> list[Content]:
    saved = trace.saved
    if stats.speedup is None or saved is None:
        why = "plain decoding was not measured" if stats.draft_n else "nothing was drafted"
        return _section("Speed-up", _plain(wrap(f"n/a: {why}", width)))
    parts = [
        f"{stats.speedup:.2f}× plain decoding, as measured",
        f"plain {stats.t_plain:.2f} s",
        f"taken {stats.t_judged:.2f} s",
        f"saved {saved:.2f} s" if saved >= 0 else f"lost {-saved:.2f} s",
    ]
    return _section("Speed-up", _plain(flow("", parts, width)))


def _drafters(
    by_source: Sequence[SourceStats], standings: Sequence[tuple[str, str]], marks: Mapping[str, str], width: int
) -> list[Content]:
    """Those that stand somehow first, then others that guessed."""
    numbers = {one.name: one for one in by_source}
    words = dict(standings)
    body: list[Content] = []
    for name in dict.fromkeys([*words, *numbers]):
        sign = f"{marks[name]} " if name in marks else ""
        body += _plain(wrap(f"{sign}{one_line(name)}{_fared(numbers.get(name))}", width))
        body += _plain((f"  {line}" for line in wrap(one_line(words.get(name, "")), width - 2)), "dim")
    return _section("Drafters", body) if body else []


def _fared(one: SourceStats | None) -> str:
    return "" if one is None else f": {share(one.accepted, one.draft_n)} ({one.accepted}/{one.draft_n})"


def _newest_step(trace: AnswerTrace, marks: Mapping[str, str], width: int, height: int) -> list[Content]:
    """What the last key brought, before all else; of a tree so much as can be seen at once."""
    if not trace.steps:
        return _section("No step was made yet", [])
    step = trace.steps[-1]
    drawn = trace.drawn(step)
    plain = [] if drawn is None else [f"{DRAWN} {visible(drawn.piece, width - 2)}"]
    body = _tree(trace, step, marks, width, height - 1) if step.stats.draft_n else _plain(plain)
    return _section(headline(step).capitalize(), body)


def _last_guesses(trace: AnswerTrace, marks: Mapping[str, str], width: int, height: int) -> list[Content]:
    step = trace.last_draft
    if step is None:
        return []
    head = [
        Content.styled(f"Last guesses: step {step.number}", "bold"),
        *_plain(flow("", [f"{step.stats.draft_n} guessed", f"{step.stats.accepted} held"], width)),
    ]
    return head + _tree(trace, step, marks, width, height - len(head))


def _tree(trace: AnswerTrace, step: Step, marks: Mapping[str, str], width: int, height: int) -> list[Content]:
    tree = trace.tree(step)
    if tree is None:
        return _plain(wrap("the tree was not asked for", width), "dim")
    legend = _plain(flow("", [*SIGNS, "p of draft, target"], width), "dim")
    return [*legend, *tree_lines(tree, width, max(height - len(legend), 1), drawn=trace.drawn(step), marks=marks)]
