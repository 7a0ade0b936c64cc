"""Tiny models as GGUF files, with a tokenizer that nobody reads."""

from __future__ import annotations

import gguf

from tests.support.gguf_files import TokenizerKeys

N = 20
TOKENIZER = TokenizerKeys(
    {"tokenizer.ggml.tokens": ([f"t{n}" for n in range(N)], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING)}
)
