"""Where a model in torch lies, and what it is computed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localspec.backends.options import CPU_ONLY, ModelOptions
from localspec.backends.torch.kernels.planes import Planes, repacked


@dataclass(frozen=True, slots=True)
class Place:
    """``dtype`` is that of weights and caches. ``threads``: fixed by the user; ``None``: as `set_threads` says.
    ``card``: what the card is called, if it is one."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    threads: int | None = None
    card: str = ""

    @classmethod
    def of(cls, options: ModelOptions, gpu: Gpu | None) -> Place:
        """The card where some layers are to be offloaded and there is one, else the CPU."""
        if gpu is not None and options.gpu_layers != 0 and options.devices != (CPU_ONLY,):
            return replace(gpu.place, threads=options.threads)
        return cls(threads=options.threads)

    @property
    def name(self) -> str:
        """In records of a load."""
        return self.card or "CPU"

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """For the record of the load."""
        kind = "bf16" if self.dtype == torch.bfloat16 else f"f{8 * self.dtype.itemsize}"
        return ("device", self.device.type), ("weights", kind)

    def warnings(self, options: ModelOptions, flag: str) -> tuple[str, ...]:
        """What was asked for by ``flag``, and is not."""
        ignored = bool(options.gpu_layers) and not self.card
        return (f"{flag} ignored: torch sees no CUDA device for {options.path.name}",) * ignored

    def put(self, numbers: Tensor) -> Tensor:
        """Weights, or states that were computed elsewhere."""
        return numbers.to(self.device, self.dtype)

    def pack(self, raw: Tensor, kind: str) -> Planes:
        """Planes of the bytes of a quantised matrix."""
        return repacked(raw.to(self.device), kind)

    def put_array(self, numbers: NDArray[np.float32]) -> Tensor:
        return self.put(torch.from_numpy(numbers))

    def start(self) -> None:
        if self.threads is not None:
            torch.set_num_threads(self.threads)

    def set_threads(self, n: int) -> None:
        if self.threads is None:
            torch.set_num_threads(n)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A card that models may lie on, all in the same way, and how many of its bytes are ``free``."""

    place: Place
    free: Callable[[], int]

    @classmethod
    def seen(cls) -> Gpu | None:
        """The one that torch sees."""
        if not torch.cuda.is_available():
            return None
        device = torch.device("cuda")
        return cls(Place(device, torch.bfloat16, card="CUDA0"), lambda: int(torch.cuda.mem_get_info(device)[0]))


def array(numbers: Tensor) -> NDArray[np.float32]:
    """In float32, in this machine's memory."""
    found: NDArray[np.float32] = arrays((numbers,))[0]
    return found


def arrays(found: Sequence[Tensor]) -> list[NDArray[Any]]:
    """As `array`, whole numbers as they are; a card is waited for once."""
    told = [one.float() if one.is_floating_point() else one for one in found]
    far = next((one.device for one in told if one.device.type != "cpu"), None)
    if far is None:
        return [one.numpy() for one in told]
    here = [torch.empty(one.shape, dtype=one.dtype, pin_memory=True).copy_(one, non_blocking=True) for one in told]
    torch.cuda.current_stream(far).synchronize()
    return [one.numpy() for one in here]


def read_speed_of_card() -> tuple[int, float] | None:
    """Free bytes of the card, and bytes a second that it reads; ``None`` where torch sees none."""
    if not torch.cuda.is_available():
        return None
    free, _ = torch.cuda.mem_get_info()
    row = torch.ones(2**26, device="cuda")
    row.sum()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    row.sum()
    end.record()
    torch.cuda.synchronize()
    return free, 4 * len(row) / (1e-3 * max(start.elapsed_time(end), 1e-6))
