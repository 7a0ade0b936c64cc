"""What --dump-load says of a sliding window's cache: the price of --swa-full in cells and bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from localspec.loading import EngineOptions, ModelOptions, load
from localspec.report import load_lines


def window(path: Path, *, whole: bool) -> tuple[str, float, float]:
    """Its row, without the bytes; its bytes and those of the whole cache, in MB."""
    options = EngineOptions(ModelOptions(path, threads=1), n_ctx=4096, swa_full=whole, measure=False)
    with load(options) as engine:
        lines = "\n".join(load_lines(engine.info))
    row = re.search(r"^  swa_full +(.*?)(?:, ([\d.]+) MB\))?$", lines, re.MULTILINE)
    cache = re.search(r"([\d.]+) MB cache\b", lines, re.MULTILINE)
    assert row
    assert cache
    return row[1], float(row[2] or 0), float(cache[1])


def test_the_price_of_a_whole_window_is_shown(gemma: Path) -> None:
    (whole, whole_mb, whole_cache), (part, part_mb, part_cache) = (window(gemma, whole=on) for on in (True, False))
    assert whole == "on (15 layers of 4096 cells"
    cells = int(part.removeprefix("off (15 layers of ").removesuffix(" cells"))
    assert 512 <= cells < 4096
    # 15 layers, keys and values of 256 numbers each, 2 bytes a number.
    for mb, n in ((whole_mb, 4096), (part_mb, cells)):
        assert mb == pytest.approx(15 * 2 * 256 * 2 * n / 1e6, abs=0.1)
    assert whole_cache - part_cache == pytest.approx(whole_mb - part_mb, abs=0.2)


def test_a_model_without_a_window_has_no_price(random_draft: Path) -> None:
    assert window(random_draft, whole=True)[:2] == ("on", 0.0)
