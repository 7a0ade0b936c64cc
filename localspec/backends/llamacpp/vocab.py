"""llama.cpp's tokenizer behind the `Vocab` protocol."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any

_UNKNOWN, _CONTROL = 1 << 0, 1 << 3  # LLAMA_TOKEN_ATTR_*
_MOST_KEPT = 32_768
_KINDS = {0: "none", 1: "spm", 2: "bpe", 3: "wpm", 4: "ugm", 5: "rwkv", 6: "plamo2"}


class LlamaVocab:
    """The vocabulary of a loaded model. ``lib`` is llama.cpp's C API, ``handle`` a ``llama_vocab *`` that must
    outlive this object."""

    def __init__(self, lib: Any, handle: Any) -> None:
        self._lib = lib
        self._handle = handle
        self._pieces: dict[tuple[int, bool], bytes] = {}

    @cached_property
    def n_tokens(self) -> int:
        return int(self._lib.llama_vocab_n_tokens(self._handle))

    @cached_property
    def kind(self) -> str:
        return _KINDS.get(self._lib.llama_vocab_type(self._handle), "unknown")

    @cached_property
    def bos(self) -> int | None:
        if not self._lib.llama_vocab_get_add_bos(self._handle):
            return None
        token = int(self._lib.llama_vocab_bos(self._handle))
        return token if token >= 0 else None

    @cached_property
    def bos_text(self) -> str:
        """How templates spell the opening token; "" if the model has none."""
        return self._text_or_empty(self._lib.llama_vocab_bos(self._handle))

    @cached_property
    def eos_text(self) -> str:
        return self._text_or_empty(self._lib.llama_vocab_eos(self._handle))

    def _text_or_empty(self, token: int) -> str:
        return self.text(token) if token >= 0 else ""

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        is_end, handle = self._lib.llama_vocab_is_eog, self._handle
        return frozenset(t for t in range(self.n_tokens) if is_end(handle, t))

    @cached_property
    def control_tokens(self) -> frozenset[int]:
        # llama.cpp parses the name of an "unknown" token just as it does those of control tokens.
        attribute, handle = self._lib.llama_vocab_get_attr, self._handle
        return frozenset(t for t in range(self.n_tokens) if attribute(handle, t) & (_CONTROL | _UNKNOWN))

    def text(self, token: int) -> str:
        raw: bytes = self._lib.llama_vocab_get_text(self._handle, token) or b""
        return raw.decode("utf-8", "replace")

    def piece(self, token: int, *, special: bool = False) -> bytes:
        key = (token, special)
        piece = self._pieces.get(key)
        if piece is None:
            if len(self._pieces) >= _MOST_KEPT:
                self._pieces.clear()  # somebody went through the whole vocabulary
            piece = self._pieces[key] = self._piece(token, special)
        return piece

    def _piece(self, token: int, special: bool, size: int = 64) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        n = self._lib.llama_token_to_piece(self._handle, token, buffer, size, 0, special)
        return buffer.raw[:n] if n >= 0 else self._piece(token, special, -n)

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        raw = text.encode("utf-8", "surrogatepass")
        size = len(raw) + 8
        tokens = (ctypes.c_int32 * size)()
        n = self._lib.llama_tokenize(self._handle, raw, len(raw), tokens, size, False, special)
        if n < 0:
            tokens = (ctypes.c_int32 * -n)()
            n = self._lib.llama_tokenize(self._handle, raw, len(raw), tokens, -n, False, special)
        return tokens[:n]
