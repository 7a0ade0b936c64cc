"""What is free, on the machine and in a container."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.backends import memory
from localspec.backends.container import ContainerLimits, container_limits
from localspec.backends.memory import CacheShape, available_bytes


def write(root: Path, **files: str) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name.replace("__", ".")).write_text(text + "\n")


def limits(tmp_path: Path, groups: str) -> ContainerLimits:
    file = tmp_path / "groups"
    file.write_text(groups)
    return container_limits(file, tmp_path / "cgroup")


def test_the_tightest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    write(root / "a", cpu__max="200000 100000", memory__max="1000", memory__current="900")
    write(root / "a/b", cpu__max="max 100000", memory__max="5000", memory__current="700")
    write(root / "a", memory__stat="anon 300\ninactive_file 600")
    assert limits(tmp_path, "0::/a/b\n") == ContainerLimits(2.0, 1000, 700)


def test_no_limits(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    write(root, cpu__max="max 100000", memory__max="max", memory__current="5")
    write(root / "memory", memory__limit_in_bytes=str(2**63 - 4096), memory__usage_in_bytes="7")
    write(root / "cpu", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert limits(tmp_path, "4:memory:/\n1:cpu:/\n0::/\n") == ContainerLimits()
    assert container_limits(tmp_path / "none") == ContainerLimits()


def test_version_1_where_the_group_has_another_path_inside(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    write(root / "memory", memory__limit_in_bytes="4096", memory__usage_in_bytes="6000", memory__stat="x 1")
    write(root / "cpu", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    assert limits(tmp_path, "4:memory:/docker/1\n2:cpu,cpuacct:/docker/1\n") == ContainerLimits(0.5, 4096, 0)


def test_files_of_another_form(tmp_path: Path) -> None:
    write(tmp_path / "cgroup", cpu__max="", memory__max="many", memory__current="1")
    assert limits(tmp_path, "0::/\n") == ContainerLimits()


def test_a_container_leaves_no_more_than_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    free = available_bytes()
    assert free is None or free > 1
    monkeypatch.setattr(memory, "container_limits", lambda: ContainerLimits(free=1))
    assert available_bytes() == 1


def test_the_shape_of_a_cache() -> None:
    assert CacheShape.of(30, 576, 9, 3, None, None) == CacheShape(30, 192, 192)
    assert CacheShape.of(18, 640, 4, 1, 256, 128) == CacheShape(18, 256, 128)
    assert CacheShape(2, 32, 32).size(10, "f16", "q8_0") == 10 * 2 * (64 + 34)
