"""What one model and its context are made with, native part included."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.backends.options import ModelOptions

#: ggml's numbers of the types a cache can have.
CACHE_TYPES = {
    "f32": 0,
    "f16": 1,
    "bf16": 30,
    "q8_0": 8,
    "q4_0": 2,
    "q4_1": 3,
    "iq4_nl": 20,
    "q5_0": 6,
    "q5_1": 7,
}
FLASH = {"auto": -1, "off": 0, "on": 1}


@dataclass(frozen=True, slots=True)
class LlamaOptions(ModelOptions):
    """A model's own options, and those that target and draft share.

    ``n_ctx = 0`` takes the model's own length; ``threads = None`` is every core. ``sequences`` conversations and
    ``branches`` further tree branches share one cache; ``outputs`` rows of a pass may have logits. ``exact``: rows do
    not depend on what is computed beside them (`localspec.backends.llamacpp.exact`). ``normed``: what comes out of the
    final norm can be asked for. ``predictors``: layers for multi-token prediction are loaded as well.
    """

    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    flash_attn: str = "auto"
    sequences: int = 1
    branches: int = 31
    outputs: int = 32
    swa_full: bool = True
    exact: bool = False
    normed: bool = False
    predictors: bool = False
