"""Triton, where it is installed: the modules of kernels can be imported, and their references run, without it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

triton: Any
tl: Any
try:
    triton = importlib.import_module("triton")
    tl = importlib.import_module("triton.language")
except ImportError:
    triton = tl = None


def kernel(function: Any) -> Any:
    """Marks a function as a kernel, or as a part of one."""
    return function if triton is None else triton.jit(function)


def kernel_for_any(*numbers: str) -> Callable[[Any], Any]:
    """As `kernel`, of which the arguments ``numbers`` change from pass to pass: it is not compiled anew for those that
    16 divides."""
    return kernel if triton is None else triton.jit(do_not_specialize=numbers)


@dataclass(frozen=True, slots=True)
class Launch:
    """One run of a kernel, so that what is compiled ahead of time in the tests is what would run.

    Args:
        kernel: the kernel.
        grid: how many programs.
        args: tensors and numbers, in the kernel's order; its other arguments are ``constants``.
        constants: known when it is compiled, by name.
        warps: of a program.
        stages: how many iterations ahead the loads of a loop may be.
    """

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    constants: Mapping[str, Any] = field(default_factory=dict)
    warps: int = 4
    stages: int = 2

    def run(self) -> None:
        if all(self.grid):
            self.kernel[self.grid](*self.args, **self.constants, num_warps=self.warps, num_stages=self.stages)


@dataclass(frozen=True, slots=True)
class Card:
    """What the shape of a launch depends on.

    Args:
        processors: each runs some programs at once.
        generation: the first number of the compute capability.
    """

    processors: int = 132
    generation: int = 9

    @classmethod
    def of(cls, device: torch.device) -> Card:
        """That of ``device``; an H100's where it is none."""
        if device.type != "cuda":
            return cls()
        facts = torch.cuda.get_device_properties(device)
        return cls(facts.multi_processor_count, facts.major)


def power_of_two(n: int, least: int = 1) -> int:
    """The smallest one that is neither below ``n`` nor below ``least``."""
    return max(least, 1 << (n - 1).bit_length())


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)
