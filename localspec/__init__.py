"""localspec: a local chat runner over a lossless speculative-decoding engine.

    from localspec import GenerationRequest, Tokens, load

    with load("big.gguf", draft="small.gguf") as engine:
        for event in engine.submit(GenerationRequest(prompt="Once upon a time", max_tokens=64)):
            if isinstance(event, Tokens):
                print(event.text, end="", flush=True)

Names are resolved on first use (PEP 562), so that ``import localspec`` loads nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.engine import Engine as Engine
    from localspec.errors import LocalspecError as LocalspecError
    from localspec.loading import EngineOptions as EngineOptions
    from localspec.loading import ModelOptions as ModelOptions
    from localspec.loading import load as load
    from localspec.types import Failed as Failed
    from localspec.types import Finished as Finished
    from localspec.types import GenerationRequest as GenerationRequest
    from localspec.types import Message as Message
    from localspec.types import Notice as Notice
    from localspec.types import Prefill as Prefill
    from localspec.types import SamplingParams as SamplingParams
    from localspec.types import SpecParams as SpecParams
    from localspec.types import Started as Started
    from localspec.types import Tokens as Tokens

__version__ = "0.1.0"

_HOMES = {
    "Engine": "localspec.engine",
    "EngineOptions": "localspec.loading",
    "LocalspecError": "localspec.errors",
    "ModelOptions": "localspec.loading",
    "load": "localspec.loading",
} | dict.fromkeys(
    (
        "Failed",
        "Finished",
        "GenerationRequest",
        "Message",
        "Notice",
        "Prefill",
        "SamplingParams",
        "SpecParams",
        "Started",
        "Tokens",
    ),
    "localspec.types",
)

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'localspec' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
