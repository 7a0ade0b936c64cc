"""What perfect guesses would bring: the ceiling of a setting on this machine."""

from __future__ import annotations

from collections.abc import Callable

from localspec.types import SpecParams


def perfect(
    spec: SpecParams, seconds: Callable[[int], float], host_s: float = 0.0, *, guess_s: float = 0.0
) -> float | None:
    """Speed-up of a drafter that is always right. A chain of d guesses brings d + 1 tokens for a pass of d + 1 rows, so
    it is ``(d + 1) (t(1) + h) / (t(d + 1) + h + d g)``, with h the host's seconds a step and g those of a guess: at the
    depth that ``fixed`` always uses, else at the best one within the limits.

    Args:
        seconds: rows → seconds of a pass, as `localspec.control.CostCurve.seconds`.
        guess_s: seconds of a guess; 0 where it costs no pass of a model.

    Returns:
        ``None`` where nothing is guessed or no pass was measured.
    """
    deepest = min(spec.depth, spec.nodes)
    if deepest < 1 or spec.mode == "off" or seconds(1) <= 0:
        return None
    depths = [deepest] if spec.mode == "fixed" else range(1, deepest + 1)
    return max((d + 1) * (seconds(1) + host_s) / (seconds(d + 1) + host_s + d * guess_s) for d in depths)
