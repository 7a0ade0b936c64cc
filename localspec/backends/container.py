"""What a container (a control group of Linux) leaves of the machine to this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Without a limit version 1 has one near 2^63 bytes.
_NO_LIMIT = 1 << 60


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """``cpus``: cores' worth of time; ``memory``: bytes it may take, ``free``: those it may still take, with what its
    file cache would give back. ``None`` where nothing is limited."""

    cpus: float | None = None
    memory: int | None = None
    free: int | None = None


def container_limits(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> ContainerLimits:
    """The tightest limits on the way from this process's group to the top, versions 1 and 2.

    Args:
        groups: the list of groups this process is in; ``root``: where their files are.
    """
    try:
        lines = groups.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ContainerLimits()
    cpus, memories, frees = list[float](), list[int](), list[int]()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for folder in _folders(root, controllers, path):
            cpus += _cpus(folder)
            for limit, used in _memory(folder):
                memories.append(limit)
                frees.append(max(limit - used, 0))
    return ContainerLimits(min(cpus, default=None), min(memories, default=None), min(frees, default=None))


def _folders(root: Path, controllers: str, path: str) -> Iterator[Path]:
    """Those of a group and of all above it; within a container the path may be that of the machine, and only the top
    is there."""
    for top in [root / name for name in controllers.split(",")] if controllers else [root, root / "unified"]:
        group = top / path.lstrip("/")
        yield from (one for one in (group, *group.parents) if one.is_relative_to(top) and one.is_dir())


def _cpus(folder: Path) -> Iterator[float]:
    quota, period = _word(folder / "cpu.max", 0), _word(folder / "cpu.max", 1)
    if period is None:
        quota, period = _word(folder / "cpu.cfs_quota_us", 0), _word(folder / "cpu.cfs_period_us", 0)
    if quota is not None and period and quota > 0:
        yield quota / period


def _memory(folder: Path) -> Iterator[tuple[int, int]]:
    """Limit and what is used of it."""
    for limit_file, used_file, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, used = _word(folder / limit_file, 0), _word(folder / used_file, 0)
        if limit is not None and used is not None and limit < _NO_LIMIT:
            yield limit, used - _entry(folder / "memory.stat", cache)


def _word(file: Path, at: int) -> int | None:
    """A number among the words of a file; ``None`` if it is not there, or no number (``max``)."""
    with suppress(OSError, ValueError, IndexError):
        return int(file.read_text(encoding="ascii").split()[at])
    return None


def _entry(file: Path, name: str) -> int:
    with suppress(OSError, ValueError, StopIteration):
        lines = file.read_text(encoding="ascii").splitlines()
        return int(next(line.split()[1] for line in lines if line.split()[:1] == [name]))
    return 0
