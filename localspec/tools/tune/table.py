"""What was found out, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localspec.tools.stats import middle
from localspec.tools.tune.choice import ENOUGH, Choice
from localspec.tools.tune.study import Row, Study

_HEAD = ("", "who guesses", "draft model", "speed-up", "tok/s", "prompts")
#: Columns whose cells end where their head ends.
_RIGHT = ("", "tok/s", "prompts")
#: The least speed-up that two decimals show as one.
_GAIN = 1.005


def plain_speed(study: Study) -> float | None:
    """Tokens a second of plain decoding, the median of all such answers."""
    return middle(study.plain_speeds)


def ranking(study: Study) -> str:
    """A line for each way to guess, the fastest first, and plain decoding where it belongs. ``tok/s`` is what plain
    decoding and the ratio predict: speeds of different minutes are not compared."""
    plain = plain_speed(study) or 0.0
    rows = [_cells(row, plain) for row in study.rows]
    slower = next((at for at, row in enumerate(study.rows) if row.speedup < 1), len(rows))
    rows.insert(slower, ("plain decoding", "-", "×1", f"{plain:.1f}", "-"))
    return _aligned([_HEAD, *((f"{at}.", *cells) for at, cells in enumerate(rows, 1))])


def _cells(row: Row, plain: float) -> tuple[str, ...]:
    ratio = row.cell.ratio
    speedup = "-" if ratio is None else f"×{ratio.median:.2f}"
    if ratio is not None and row.cell.pairs >= ENOUGH:  # of fewer, an interval would look sure
        speedup += f" [{ratio.low:.2f}–{ratio.high:.2f}]"
    draft = "-" if row.draft is None else row.draft.name
    return row.setting.name, draft, speedup, f"{plain * row.speedup:.1f}", str(row.cell.pairs)


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    """Columns that line up, two spaces between them."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join(
        "  ".join(
            f"{cell:>{width}}" if head in _RIGHT else f"{cell:<{width}}"
            for cell, head, width in zip(line, _HEAD, widths, strict=True)
        ).rstrip()
        + "\n"
        for line in lines
    )


def advice(choice: Choice) -> str:
    """One line: what later runs with these models do."""
    who = "without a draft model" if choice.draft is None else f"with -md {choice.draft.name}"
    flags = " ".join(f"--{word} {value}" for word, value in choice.settings.items())
    gain = f" (×{choice.speedup:.2f} of plain decoding's speed)" if choice.speedup >= _GAIN else ""
    return f"{who}: {flags or 'the defaults, which nothing beats clearly'}{gain}"


def record(study: Study, choices: Sequence[Choice], lines: Sequence[str]) -> dict[str, Any]:
    """All of it as one JSON object."""
    plain = plain_speed(study)
    return {
        "seconds": study.seconds,
        "stopped": study.stopped,
        "plain_tokens_per_second": plain,
        "pass_ms_by_threads": _by_threads(study),
        "ranking": [_row(row, plain) for row in study.rows],
        "left_out": {str(path): reason for path, reason in study.left_out.items()},
        "choices": [
            {"draft": _text(one.draft), "speedup": one.speedup, "usual": one.usual, "settings": one.settings}
            for one in choices
        ],
        "why": list(lines),
    }


def _by_threads(study: Study) -> dict[str, Any]:
    found = {"target": study.target, **{str(path): costs for path, costs in study.drafts.items()}}
    return {
        name: {str(count): 1000 * times[1] for count, times in costs.by_threads.items()}
        for name, costs in found.items()
    }


def _row(row: Row, plain: float | None) -> dict[str, Any]:
    return {
        "setting": row.setting.name,
        "draft": _text(row.draft),
        **asdict(row.cell),
        "predicted_tokens_per_second": None if plain is None else plain * row.speedup,
        "to_the_end": row.last,
        "categories": row.by_category,
    }


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def noted(study: Study) -> Iterator[str]:
    """What a reader has to know beside the numbers."""
    if study.stopped:
        yield "Stopped by ctrl-c: this is how it stood."
    if study.uneven:
        speeds = study.plain_speeds
        yield (
            f"Plain decoding ran at {min(speeds):.0f} to {max(speeds):.0f} tok/s: the machine was busy. Run it again"
            " when it is not, or for longer (--seconds)."
        )
    elif study.busy:
        yield "Passes did not get all the processor time their threads could use: the machine was busy."
    differ = sum(row.cell.compared - row.cell.equal for row in study.rows)
    if differ:
        compared = sum(row.cell.compared for row in study.rows)
        yield f"{differ} of {compared} texts differ from the plain ones: localspec verify tells rounding from a fault."
