"""Numbers of bytes for people."""

from __future__ import annotations


def human(count: float) -> str:
    """Bytes in the unit that fits, powers of 1000 as the hub counts: ``98 MB``, ``1.2 GB``."""
    units = iter(("B", "kB", "MB", "GB"))
    unit = next(units)
    while abs(count) >= 999.5 and unit != "TB":
        count /= 1000
        unit = next(units, "TB")
    return f"{count:.0f} {unit}" if unit == "B" or abs(count) >= 9.95 else f"{count:.1f} {unit}"
