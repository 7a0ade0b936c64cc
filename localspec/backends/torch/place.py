"""Where a model in torch lies, and what it is computed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localspec.backends.options import CPU_ONLY, ModelOptions
from localspec.backends.torch.kernels.planes import Planes, repacked


@dataclass(frozen=True, slots=True)
class Place:
    """``dtype`` is that of weights and caches. ``threads``: fixed by the user; ``None``: as `set_threads` says."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32
    threads: int | None = None

    @classmethod
    def of(cls, options: ModelOptions) -> Place:
        """CUDA where some layers are to be offloaded and torch has it."""
        if options.gpu_layers != 0 and options.devices != (CPU_ONLY,) and torch.cuda.is_available():
            return cls(torch.device("cuda"), torch.bfloat16, options.threads)
        return cls(threads=options.threads)

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """For the record of the load."""
        return ("device", self.device.type), ("weights", "bf16" if self.dtype == torch.bfloat16 else "f32")

    def warnings(self, options: ModelOptions, flag: str) -> tuple[str, ...]:
        """What was asked for by ``flag``, and is not."""
        ignored = bool(options.gpu_layers) and self.device.type == "cpu"
        return (f"{flag} ignored: torch sees no CUDA device for {options.path.name}",) * ignored

    def put(self, weights: Tensor) -> Tensor:
        return weights.to(self.device, self.dtype)

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


def free_bytes(device: torch.device) -> int | None:
    """Of a card; ``None`` of anything else."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else None


def array(numbers: Tensor) -> NDArray[np.float32]:
    """In float32, in this machine's memory."""
    found: NDArray[np.float32] = arrays((numbers,))[0]
    return found


def arrays(found: Sequence[Tensor]) -> list[NDArray[Any]]:
    """As `array`, whole numbers as they are; a card is waited for once."""
    told = [one.float() if one.is_floating_point() else one for one in found]
    if all(one.device.type == "cpu" for one in told):
        return [one.numpy() for one in told]
    here = [torch.empty(one.shape, dtype=one.dtype, pin_memory=True).copy_(one, non_blocking=True) for one in told]
    torch.cuda.current_stream(found[0].device).synchronize()
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
