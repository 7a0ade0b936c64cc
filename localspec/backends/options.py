"""What a front end may ask of one model: where it lies and how it is read. Loads nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from localspec.errors import UsageError

ROPE_SCALINGS = ("none", "linear", "yarn")
SPLIT_MODES = ("none", "layer", "row")
#: As the only name in ``ModelOptions.devices``: nothing leaves the CPU.
CPU_ONLY = "none"


@dataclass(frozen=True, slots=True)
class RopeOptions:
    """How positions are turned into angles; ``None`` is the model's own. ``scaling`` is none, linear or yarn.

    ``freq_scale`` is llama.cpp's factor on positions: 1 / N for a context N times as long.

    Raises:
        UsageError: values that no model can use, or that contradict each other.
    """

    scaling: str | None = None
    freq_base: float | None = None
    freq_scale: float | None = None
    yarn_orig_ctx: int | None = None
    yarn_ext_factor: float | None = None
    yarn_attn_factor: float | None = None
    yarn_beta_slow: float | None = None
    yarn_beta_fast: float | None = None

    def __post_init__(self) -> None:
        if self.scaling not in (None, *ROPE_SCALINGS):
            raise UsageError(f"--rope-scaling {self.scaling} is not known", hint=f"Use {', '.join(ROPE_SCALINGS)}.")
        for flag, value in (("--rope-freq-base", self.freq_base), ("--rope-freq-scale", self.freq_scale)):
            if value is not None and not value > 0:
                raise UsageError(f"{flag} {value} is not above 0", hint="Leave it out for the model's own.")
        if self.scaling == "none" and self.freq_scale not in (None, 1.0):
            raise UsageError(
                "--rope-scaling none with a scale: nothing would be scaled",
                hint="Use linear or yarn, or leave --rope-scale and --rope-freq-scale out.",
            )


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """One model and its context; ``None`` leaves the choice to us or to llama.cpp.

    ``devices`` are llama.cpp's names, ``("none",)`` is the CPU alone. ``tensor_overrides`` are pairs of a pattern
    (searched in tensor names; the first that matches counts) and a buffer type. ``cpu_moe`` keeps the experts of the
    first so many layers on the CPU, -1 those of all. ``tensor_split`` are shares of the devices, in their order.
    ``lora`` are adapter files with their scales; a draft model takes none.

    Another set of these options is another engine: nothing that was read under the old ones is reused.

    Raises:
        UsageError: values that make no sense on any machine.
    """

    path: Path
    gpu_layers: int | None = None
    threads: int | None = None
    threads_batch: int | None = None
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    devices: tuple[str, ...] | None = None
    tensor_overrides: tuple[tuple[str, str], ...] = ()
    cpu_moe: int = 0
    mmap: bool = True
    mlock: bool = False
    repack: bool = True
    check_tensors: bool = False
    kv_offload: bool = True
    main_gpu: int | None = None
    split_mode: str | None = None
    tensor_split: tuple[float, ...] = ()
    rope: RopeOptions = field(default_factory=RopeOptions)
    lora: tuple[tuple[Path, float], ...] = ()

    def __post_init__(self) -> None:
        if self.split_mode not in (None, *SPLIT_MODES):
            raise UsageError(f"-sm {self.split_mode} is not known", hint=f"Use {', '.join(SPLIT_MODES)}.")
        if self.tensor_split and not (min(self.tensor_split) >= 0 and max(self.tensor_split) > 0):
            raise UsageError(
                f"-ts {','.join(f'{share:g}' for share in self.tensor_split)} shares out nothing",
                hint="Give a share of 0 or more for each device, e.g. -ts 3,1.",
            )
        if self.cpu_moe < -1:
            raise UsageError(
                f"-ncmoe {self.cpu_moe} is negative", hint="Give a number of layers, or use -cmoe for all."
            )
