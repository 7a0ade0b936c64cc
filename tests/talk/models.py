"""Tiny model files with a made-up tokenizer, for what headers tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf

from tests.support.gguf_files import TinyModel, TokenizerKeys

_STRING, _ARRAY = gguf.GGUFValueType.STRING, gguf.GGUFValueType.ARRAY


def tokenizer(tokens: int = 40, *, kind: str = "gpt2", first: str = "t") -> TokenizerKeys:
    """``first``: what every token begins with."""
    texts = [f"{first}{number}" for number in range(tokens)]
    types = [int(gguf.TokenType.NORMAL)] * tokens
    return TokenizerKeys(
        {
            "tokenizer.ggml.model": (kind, _STRING, None),
            "tokenizer.ggml.pre": ("default", _STRING, None),
            "tokenizer.ggml.tokens": (texts, _ARRAY, _STRING),
            "tokenizer.ggml.token_type": (types, _ARRAY, gguf.GGUFValueType.INT32),
            "tokenizer.chat_template": ("{{ messages }}", _STRING, None),
        }
    )


def write(path: Path, keys: TokenizerKeys | None = None, **changes: Any) -> Path:
    """A file; ``changes`` are those of `TinyModel`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return TinyModel(**changes).write(path, keys or tokenizer())
