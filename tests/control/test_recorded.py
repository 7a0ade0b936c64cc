"""The controller on recorded texts, with a clock that only costs advance: as good as the best fixed setting, never
slower than plain decoding."""

from __future__ import annotations

from functools import cache

import pytest

from localspec.control import AutoController, CostCurve, FixedController
from localspec.drafters.ngram import NgramSimple
from localspec.drafters.suffix import Suffix
from localspec.types import SpecParams
from tests.control.recorded import ByModel, ByText, Trace, traces
from tests.control.simulation import CURVES, Guesser, run

KINDS = ("prose", "code", "copy", "list", "switching", "again", "always wrong")
SETS = (("suffix",), ("ngram-simple",), ("draft",), ("draft", "suffix"))
#: Seconds of a draft model's pass, where the target's takes one: of a small one, and on a GPU.
DRAFT_PASS = {"Q4_1": 0.25, "F16": 0.25, "GPU": 0.08}
ASK = 0.01  # as measured: a look into the past beside a pass of SmolLM2
MARGIN = 20  # tokens that the last step may bring beyond the end


def trace(kind: str) -> Trace:
    return traces()["prose" if kind == "always wrong" else kind]


def guesser(name: str, kind: str, curve: str) -> Guesser:
    match name:
        case "draft":
            return ByModel(trace(kind), DRAFT_PASS[curve], always_wrong=kind == "always wrong")
        case "suffix":
            return ByText(trace(kind), Suffix(), ASK)
        case _:
            return ByText(trace(kind), NgramSimple(), ASK)


def seconds(kind: str, curve: str, names: tuple[str, ...], spec: SpecParams) -> float:
    text = trace(kind)
    sources = {name: guesser(name, kind, curve) for name in names}
    n = len(text.ids) - MARGIN
    return run(FixedController(), sources, CURVES[curve], n, spec=spec, text=text.text).seconds


@cache
def plainly(kind: str, curve: str) -> float:
    return seconds(kind, curve, (), SpecParams(depth=0))


@cache
def best_fixed(kind: str, curve: str, name: str) -> float:
    return min(
        seconds(kind, curve, (name,), SpecParams(depth=depth, nodes=16, mode="fixed")) for depth in (1, 2, 4, 8, 12)
    )


@pytest.mark.parametrize("names", SETS, ids="+".join)
@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("kind", KINDS)
def test_as_good_as_the_best_setting_and_never_slower(kind: str, curve: str, names: tuple[str, ...]) -> None:
    text, cost = trace(kind), CURVES[curve]
    n = len(text.ids) - MARGIN
    plain = plainly(kind, curve)
    sources = {name: guesser(name, kind, curve) for name in names}
    controller = AutoController(CostCurve({rows: cost(rows) for rows in (1, 2, 4, 8, 16)}))
    auto = run(controller, sources, cost, n, spec=SpecParams(depth=12, nodes=16, width=2), text=text.text, noise=0.03)
    assert auto.seconds <= min(plain, *(best_fixed(kind, curve, name) for name in names)) / 0.95
    assert auto.worst_window(plain / n, span=256, start=64) >= 0.98
