"""llama.cpp through llama-cpp-python's low-level API: CPU, and offload to GPUs and RPC servers.

The high-level ``Llama`` class is not used: its ``draft_model`` hook is linear and breaks past ``n_batch`` tokens.
"""

from __future__ import annotations

from localspec.backends.llamacpp.block import LlamaBlock
from localspec.backends.llamacpp.head import EagleHead, LlamaHead
from localspec.backends.llamacpp.lone_vocab import LoneVocab
from localspec.backends.llamacpp.model import LlamaModel
from localspec.backends.llamacpp.mtp import MtpHead, as_one, predictors
from localspec.backends.llamacpp.native import InterruptFlag, Native
from localspec.backends.llamacpp.options import LlamaOptions
from localspec.backends.llamacpp.selftest import extra_buffers_are_safe
from localspec.backends.llamacpp.target import LlamaTarget

__all__ = [
    "EagleHead",
    "InterruptFlag",
    "LlamaBlock",
    "LlamaHead",
    "LlamaModel",
    "LlamaOptions",
    "LlamaTarget",
    "LoneVocab",
    "MtpHead",
    "Native",
    "as_one",
    "extra_buffers_are_safe",
    "predictors",
]
