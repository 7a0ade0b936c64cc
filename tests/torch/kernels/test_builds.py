"""Kernels compiled for cards that are not there: registers spill to no memory, and the instructions that make them
quick are in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: Compiled are some eighty builds, unless they are in Triton's cache.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs Triton")

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """In another process, since in this one kernels are interpreted."""
    path = tmp_path_factory.mktemp("builds") / "builds.json"
    command = [sys.executable, "-m", "scripts.kernel_builds", "--fast", "--json", str(path)]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def of_kernels(builds: list[dict[str, Any]], *beginnings: str) -> list[dict[str, Any]]:
    found = [build for build in builds if build["name"].startswith(beginnings)]
    assert len(found) >= 6
    return found


def lacking(builds: list[dict[str, Any]], word: str) -> list[tuple[str, int]]:
    """Builds without an instruction."""
    return [(build["name"], build["capability"]) for build in builds if not build["found"][word]]


def test_every_kernel_is_there_for_every_card(builds: list[dict[str, Any]]) -> None:
    names = {build["name"] for build in builds}
    assert len(names) >= 13
    cards = {name: {build["capability"] for build in builds if build["name"] == name} for name in names}
    assert all(found == {80, 86, 89, 90, 100, 120} for found in cards.values())


def test_registers_spill_nowhere(builds: list[dict[str, Any]]) -> None:
    assert [(build["name"], build["capability"]) for build in builds if build["spilled"]] == []


def test_programs_fit_into_shared_memory(builds: list[dict[str, Any]]) -> None:
    room = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
    assert [build for build in builds if build["shared"] > room[build["capability"]] << 10] == []


def test_products_run_on_tensor_cores(builds: list[dict[str, Any]]) -> None:
    products = of_kernels(builds, "attention, 64", "attention, 1 node", "Q")
    assert lacking(products, "mma") == []
    large = of_kernels(builds, "attention, 64", "Q")
    assert lacking([build for build in large if build["capability"] == 90], "wgmma") == []


def test_loads_of_products_go_past_registers_in_16_bytes(builds: list[dict[str, Any]]) -> None:
    assert lacking(of_kernels(builds, "attention, 64", "attention, 1 node", "Q"), "wide async copy") == []


def test_rows_are_read_and_written_in_16_bytes(builds: list[dict[str, Any]]) -> None:
    plain = of_kernels(builds, "sum and norm", "gate", "move of rows")
    assert lacking(plain, "wide load") == []
    assert lacking(plain, "wide store") == []
