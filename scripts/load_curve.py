"""What the controller does as load grows: ``python -m scripts.load_curve [--curve GPU|F16|Q4_1] [--share A]``.

One to 128 sequences at a time, on a recorded cost curve with a clock that only costs advance (no model runs): a draft
model whose guesses hold with a chance of ``--share``, or n-grams that are there half of the time. A row says how many
guesses a sequence got in a step, and the speed with the controller, with chains of fixed depths, and without guesses.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from localspec.control import AutoController, Controller, FixedController
from localspec.types import SpecParams
from tests.control.simulation import CURVES, Run, alike, measured, run_many

STEPS, DEPTHS = 160, (1, 3, 5)
AUTO = SpecParams(depth=12, nodes=16)


def speeds(curve: str, kind: str, sequences: int, share: float) -> tuple[Run, dict[str, float]]:
    """The controller's run, and tokens a second (in passes of one row) of every way."""
    cost, mine = CURVES[curve], alike(sequences, [share] * STEPS * (AUTO.depth + 1), passes=kind == "draft")

    def go(controller: Controller, spec: SpecParams) -> Run:
        return run_many(controller, mine, cost, STEPS, spec=spec)

    ways = {f"chain {depth}": SpecParams(depth=depth, nodes=depth, mode="fixed") for depth in DEPTHS}
    auto = go(AutoController(measured(cost)), AUTO)
    others = {name: go(FixedController(), spec).speed for name, spec in ways.items()}
    return auto, {"auto": auto.speed, **others, "off": go(FixedController(), SpecParams(mode="off")).speed}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="scripts/load_curve.py")
    parser.add_argument("--curve", choices=CURVES, default="GPU")
    parser.add_argument("--share", type=float, default=0.75)
    parser.add_argument("--sequences", default="1,2,4,8,16,32,48,64,96,128", help="a comma list")
    given = parser.parse_args(arguments)
    for kind in ("draft", "ngram"):
        print(f"\n{kind}, {100 * given.share:.0f} % of its guesses hold: tokens in the time of a pass of one row")
        for n in map(int, given.sequences.split(",")):
            auto, found = speeds(given.curve, kind, n, given.share)
            told = "  ".join(f"{name} {speed:7.2f}" for name, speed in found.items())
            best = found["auto"] / max(speed for name, speed in found.items() if name != "auto")
            print(
                f"{n:4} at a time: {auto.guesses / STEPS / n:5.2f} guesses each  {told}  auto is {best:.3f} of the best"
            )


if __name__ == "__main__":
    main()
