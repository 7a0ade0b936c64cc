"""Which backend runs a target: the one that was named, or the one that is to be expected faster. Loads nothing heavy
where no card of NVIDIA's is there."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from localspec.backends.options import CPU_ONLY
from localspec.engine_options import EngineOptions
from localspec.errors import ModelError, UsageError
from localspec.hub.shelf import parts

AUTO, LLAMACPP, TORCH = "auto", "llamacpp", "torch"
BACKENDS = (AUTO, LLAMACPP, TORCH)
#: On a card, that much beside the weights is asked for: cache, buffers, the libraries.
_BESIDE = 2 * 2**30


@dataclass(frozen=True, slots=True)
class Choice:
    """``reason``: a line for the user, where the choice is not the usual one."""

    backend: str
    reason: str | None = None


class Machine(Protocol):
    """What can be asked of this machine."""

    def has_card(self) -> bool:
        """Whether there is a card that torch could use."""
        ...

    def llamacpp_offloads(self) -> bool:
        """Whether llama.cpp can use a card, too."""
        ...

    def card(self) -> tuple[int, float] | None:
        """Free bytes of the card, and bytes a second that it reads; ``None``: torch cannot use it."""
        ...

    def cpu(self) -> float:
        """Bytes a second that the CPU reads."""
        ...


def choose_backend(options: EngineOptions, machine: Machine | None = None) -> Choice:
    """The backend for these options.

    A step of plain decoding reads all weights once, and takes as long as that takes: ``auto`` compares by this what is
    to be expected of both. On the CPU torch has four bytes a weight, and llama.cpp never more, so that torch is never
    faster. On a card that both can use nothing was measured yet that would speak for torch.

    Raises:
        UsageError: there is no such backend.
    """
    if options.backend not in BACKENDS:
        raise UsageError(f"--backend {options.backend} is not known", hint=f"Use {', '.join(BACKENDS)}.")
    if options.backend != AUTO:
        return Choice(options.backend)
    machine = machine or _ThisMachine()
    wanted = options.target.gpu_layers != 0 and options.target.devices != (CPU_ONLY,)
    if not wanted or not machine.has_card() or machine.llamacpp_offloads():
        return Choice(LLAMACPP)
    return _by_speed(options, machine)


def _by_speed(options: EngineOptions, machine: Machine) -> Choice:
    from localspec.torch_options import check_torch_options, count_weights

    try:
        check_torch_options(options)
        weights = count_weights(options.target.path)
        size = sum(part.stat().st_size for part in parts(options.target.path))
    except (ModelError, UsageError, OSError):  # said by llama.cpp, if it cannot have it either
        return Choice(LLAMACPP)
    card = machine.card()
    if card is None or 2 * weights + _BESIDE > card[0]:
        return Choice(LLAMACPP)
    ours, theirs = 2 * weights / card[1], size / machine.cpu()
    if ours >= theirs:
        return Choice(LLAMACPP)
    expected = f"{1000 * ours:.1f} ms a token are to be expected, {1000 * theirs:.1f} of llama.cpp on the CPU"
    return Choice(TORCH, f"--backend auto: torch, since this llama.cpp cannot use the card: {expected}")


class _ThisMachine:
    def has_card(self) -> bool:
        return find_spec("torch") is not None and (
            shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia").exists()
        )

    def llamacpp_offloads(self) -> bool:
        from localspec.backends.llamacpp import Native

        return Native().can_offload

    def card(self) -> tuple[int, float] | None:
        from localspec.backends.torch.place import read_speed_of_card

        return read_speed_of_card()

    def cpu(self) -> float:
        return read_speed()


def read_speed(size: int = 2**26) -> float:
    """Bytes a second that a core reads of memory: the best of some rounds over ``size`` bytes."""
    import time

    import numpy as np

    row, times = np.ones(size // 8), list[float]()
    for _ in range(3):
        start = time.perf_counter()
        row.sum()
        times.append(time.perf_counter() - start)
    return size / max(min(times), 1e-9)
