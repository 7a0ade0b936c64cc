"""A look at a server in lines."""

from __future__ import annotations

from pathlib import PurePath

from localspec.report import speed
from localspec.text.layout import flow
from localspec.text.printable import one_line
from localspec.tools.top.board import Guesses, View
from localspec.tools.top.reading import Slot

#: Columns of a line's head.
_HEAD = 9
#: Depths that are shown.
_DEPTHS = 8
#: Cells of a bar, full and empty.
_BAR = 10


def summary(view: View, width: int, *, plain: bool = False) -> list[str]:
    """All but the slots, no line wider than ``width`` where words allow it; ``plain``: in ASCII."""
    rows = [("server", [view.url, state(view)])]
    if view.model:
        rows.append(("model", [part for part in (PurePath(view.model).name, view.build) if part]))
    if not view.fault and view.ready:
        rows += [("speed", _speeds(view)), ("requests", _requests(view)), ("guesses", _guesses(view))]
    rows += [("missing", [one]) for one in view.missing]
    separator = " | " if plain else " · "
    lines = [
        line
        for name, parts in rows
        if parts
        for line in flow(f"{name:<{_HEAD}}", [one_line(part) for part in parts], width)
    ]
    return [line.replace(" · ", separator).replace("×", "x") if plain else line for line in lines]


def state(view: View) -> str:
    if view.fault:
        return f"unreachable: {view.fault}"
    return "ready" if view.ready else "loading its model"


def _speeds(view: View) -> list[str]:
    rates = {"now": view.speed, "peak": view.peak, "mean": view.mean, "prompts": view.reading}
    return [f"{name} {speed(rate)}" for name, rate in rates.items() if rate or (name == "now" and rate is not None)]


def _requests(view: View) -> list[str]:
    busy = "" if view.busy is None else f"{view.busy} running"
    waiting = "" if view.waiting is None else f"{view.waiting} waiting"
    tokens = "" if view.tokens is None else f"{view.tokens} tok so far"
    reused = f"{view.reused} of prompts reused" if view.reused else ""
    return [part for part in (busy, waiting, tokens, reused) if part]


def _guesses(view: View) -> list[str]:
    found = view.guesses
    if found is None:
        return ["none counted yet"] if view.tokens is not None else []  # else nobody counts
    return [*_acceptance(found), *([] if found.mean_length is None else [f"length {found.mean_length:.1f}"])]


def _acceptance(found: Guesses) -> list[str]:
    parts = []
    if found.acceptance is not None:
        parts.append(f"accepted {_share(found.acceptance)} ({found.accepted}/{found.drafted})")
    if found.lately is not None:
        parts.append(f"lately {_share(found.lately)}")
    return parts


def _share(value: float) -> str:
    return f"{value:.0%}".replace("%", " %")


def depths(view: View, *, plain: bool = False) -> list[str]:
    """A bar for each depth of a guess, down to the last one that ever held, or the first few."""
    shares = () if view.guesses is None else view.guesses.by_depth
    deepest = max((depth for depth, share in enumerate(shares, start=1) if share), default=0)
    rows = list(enumerate(shares[:deepest], start=1))[:_DEPTHS]
    return [f"  depth {depth}  {bar(share, plain=plain)} {_share(share)}" for depth, share in rows]


def bar(share: float, *, plain: bool = False) -> str:
    full, empty = ("#", ".") if plain else ("█", "░")
    cells = min(max(round(share * _BAR), 0), _BAR)
    return full * cells + empty * (_BAR - cells)


def slot_row(slot: Slot) -> tuple[str, str, str, str]:
    """Number, what it does, tokens of its answer, of its context."""
    context = f"{slot.cached}/{slot.n_ctx}" if slot.n_ctx else str(slot.cached)
    doing = "answers" if slot.busy and slot.decoded else "reads" if slot.busy else "idle"
    return str(slot.id), doing, str(slot.decoded), context


SLOT_HEADS = ("slot", "does", "answer", "context")


def lines(view: View, width: int, *, plain: bool = False) -> list[str]:
    """The whole look."""
    rows = [] if view.slots is None else [SLOT_HEADS, *map(slot_row, view.slots)]
    table = ["".join(f"{cell:<{_HEAD}}" for cell in row).rstrip() for row in rows]
    return [*summary(view, width, plain=plain), *depths(view, plain=plain), *table]
