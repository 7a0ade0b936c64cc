"""Writers of tiny random GGUF files with a real tokenizer, and of damaged ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.support.gguf_keys import read_keys
from tests.support.random_weights import matrix as random_matrix

Architecture = Literal["llama", "mamba"]
Damage = Literal[
    "empty", "four-bytes", "half", "no-tail", "html", "version-99", "absurd-counts", "directory", "bit-rot"
]
DAMAGES: tuple[Damage, ...] = get_args(Damage)

_TOKENS = "tokenizer.ggml.tokens"
_TYPES = "tokenizer.ggml.token_type"
_MERGES = "tokenizer.ggml.merges"
_ADD_BOS = "tokenizer.ggml.add_bos_token"
_TEMPLATE = "tokenizer.chat_template"


@dataclass(frozen=True)
class TokenizerKeys:
    """The ``tokenizer.*`` keys of a file: name → (value, type, element type of an array)."""

    keys: Mapping[str, tuple[Any, Any, Any]]

    @classmethod
    def read(cls, path: Path) -> TokenizerKeys:
        return cls(
            {
                name: (value, kind, element)
                for name, value, kind, element in read_keys(path)
                if name.startswith("tokenizer.")
            }
        )

    def with_value(self, name: str, value: Any) -> TokenizerKeys:
        """A copy with another value for ``name``, which is a text if it is new."""
        _, kind, element = self.keys.get(name, (None, gguf.GGUFValueType.STRING, None))
        return TokenizerKeys({**self.keys, name: (value, kind, element)})

    def with_integer(self, name: str, value: int) -> TokenizerKeys:
        """A copy that says so."""
        return TokenizerKeys({**self.keys, name: (value, gguf.GGUFValueType.UINT32, None)})

    def without(self, name: str) -> TokenizerKeys:
        return TokenizerKeys({key: value for key, value in self.keys.items() if key != name})

    def first(self, n: int) -> TokenizerKeys:
        """A copy with the first ``n`` tokens, and the merges that make them."""
        tokens = self.tokens[:n]
        known = frozenset(tokens)
        merges = [merge for merge in self.keys[_MERGES][0] if merge.replace(" ", "") in known]
        types = self.keys[_TYPES][0][:n]
        return self.with_value(_TOKENS, tokens).with_value(_TYPES, types).with_value(_MERGES, merges)

    @property
    def tokens(self) -> list[str]:
        tokens: list[str] = self.keys[_TOKENS][0]
        return tokens


def write_gguf(
    path: Path,
    architecture: str,
    tokenizer: TokenizerKeys,
    tensors: Mapping[str, NDArray[Any]],
    describe: Callable[[Any], None],
) -> Path:
    """Writes a file whose metadata ``describe`` adds to a writer, and returns its path."""
    writer = gguf.GGUFWriter(path, architecture)
    describe(writer)
    for name, (value, kind, element) in tokenizer.keys.items():
        writer.add_key_value(name, value, kind, sub_type=element)
    for name, weights in tensors.items():
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class Decoder(Protocol):
    """Sizes of a drafter."""

    @property
    def n_ctx(self) -> int: ...
    @property
    def n_vocab(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...


def describe_decoder(writer: Any, name: str, of: Decoder, layers: int) -> None:
    """The metadata that all drafters have."""
    writer.add_name(name)
    writer.add_context_length(of.n_ctx)
    writer.add_embedding_length(of.width)
    writer.add_block_count(layers)
    writer.add_vocab_size(of.n_vocab)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_head_count(of.heads)
    writer.add_head_count_kv(of.kv_heads)
    writer.add_rope_dimension_count(of.width // of.heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_feed_forward_length(2 * of.width)


@dataclass(frozen=True)
class TinyModel:
    """What to write: a random model in F32, a few megabytes, whose guesses are as good as any.

    Args:
        architecture: ``mamba`` is recurrent: its state cannot be taken back.
        layers, width: size; ``width`` a multiple of 2 heads.
        n_ctx: the length it says it was trained for.
        extra_rows: padding tokens after the vocabulary, as many models have.
        changed: id → another text for that token.
        add_bos: another value of the add-BOS flag, ``None`` = the tokenizer's own.
        template: another chat template; ``""`` = none in the file.
        nan: its logits are all NaN.
        seed: of the weights.
    """

    architecture: Architecture = "llama"
    layers: int = 1
    width: int = 32
    n_ctx: int = 2048
    extra_rows: int = 0
    changed: Mapping[int, str] = field(default_factory=dict)
    add_bos: bool | None = None
    template: str | None = None
    nan: bool = False
    seed: int = 0

    def write(self, path: Path, tokenizer: TokenizerKeys) -> Path:
        """Writes the file and returns its path."""
        keys = self._tokenizer(tokenizer)

        def describe(writer: Any) -> None:
            writer.add_name(f"tiny random {self.architecture}")
            writer.add_context_length(self.n_ctx)
            writer.add_embedding_length(self.width)
            writer.add_block_count(self.layers)
            writer.add_vocab_size(len(keys.tokens))
            writer.add_layer_norm_rms_eps(1e-5)
            (self._llama_keys if self.architecture == "llama" else self._mamba_keys)(writer)

        return write_gguf(path, self.architecture, keys, self.tensors(len(keys.tokens)), describe)

    def _tokenizer(self, keys: TokenizerKeys) -> TokenizerKeys:
        tokens, types = list(keys.tokens), list(keys.keys[_TYPES][0])
        for token, text in self.changed.items():
            tokens[token] = text
        first = len(tokens)
        tokens += [f"[PAD{first + row}]" for row in range(self.extra_rows)]
        types += [int(gguf.TokenType.UNUSED)] * self.extra_rows
        keys = keys.with_value(_TOKENS, tokens).with_value(_TYPES, types)
        if self.add_bos is not None:
            keys = keys.with_value(_ADD_BOS, self.add_bos)
        if self.template is not None:
            keys = keys.with_value(_TEMPLATE, self.template) if self.template else keys.without(_TEMPLATE)
        return keys

    def _llama_keys(self, writer: Any) -> None:
        writer.add_head_count(2)
        writer.add_head_count_kv(2)
        writer.add_rope_dimension_count(self.width // 2)
        writer.add_feed_forward_length(2 * self.width)

    def _mamba_keys(self, writer: Any) -> None:
        writer.add_head_count(0)
        writer.add_feed_forward_length(0)
        writer.add_ssm_conv_kernel(4)
        writer.add_ssm_inner_size(2 * self.width)
        writer.add_ssm_state_size(8)
        writer.add_ssm_time_step_rank(4)

    def tensors(self, n_vocab: int) -> dict[str, NDArray[np.float32]]:
        """The weights, by name."""
        rng = np.random.default_rng(self.seed)
        matrix, width = partial(random_matrix, rng), self.width
        norm = np.full(width, np.nan if self.nan else 1.0, np.float32)
        tensors = {
            "token_embd.weight": matrix(n_vocab, width) * np.float32(np.sqrt(width)),
            "output_norm.weight": norm,
            # Not tied to the embedding, or the model would mostly repeat its last token. Large, so that the
            # best token leads by more than any rounding.
            "output.weight": matrix(n_vocab, width) * np.float32(4),
        }
        for layer in range(self.layers):
            block = _llama_block if self.architecture == "llama" else _mamba_block
            tensors |= {f"blk.{layer}.{name}": weights for name, weights in block(width, matrix).items()}
        return tensors


def _llama_block(width: int, matrix: Any) -> dict[str, NDArray[np.float32]]:
    ones = np.ones(width, np.float32)
    return {
        "attn_norm.weight": ones,
        "attn_q.weight": matrix(width, width),
        "attn_k.weight": matrix(width, width),
        "attn_v.weight": matrix(width, width),
        "attn_output.weight": matrix(width, width),
        "ffn_norm.weight": ones,
        "ffn_gate.weight": matrix(2 * width, width),
        "ffn_up.weight": matrix(2 * width, width),
        "ffn_down.weight": matrix(width, 2 * width),
    }


def _mamba_block(width: int, matrix: Any) -> dict[str, NDArray[np.float32]]:
    inner, state, rank = 2 * width, 8, 4
    return {
        "attn_norm.weight": np.ones(width, np.float32),
        "ssm_in.weight": matrix(2 * inner, width),
        "ssm_conv1d.weight": matrix(inner, 4),
        "ssm_conv1d.bias": np.zeros(inner, np.float32),
        "ssm_x.weight": matrix(rank + 2 * state, inner),
        "ssm_dt.weight": matrix(inner, rank),
        "ssm_dt.bias": np.zeros(inner, np.float32),
        # Negative, or the state would grow without end.
        "ssm_a": np.full((inner, state), -1.0, np.float32),
        "ssm_d": np.ones(inner, np.float32),
        "ssm_out.weight": matrix(width, inner),
    }


def damage(source: Path, kind: Damage, path: Path) -> Path:
    """Writes to ``path`` what is left of the model ``source`` after an accident; returns ``path``.

    Every kind makes the file fail to load, except ``bit-rot``: it loads, and its logits are NaN.
    """
    if kind == "directory":
        path.mkdir()
        return path
    data = source.read_bytes()
    half = len(data) // 2
    rotten = np.random.default_rng(1).bytes(len(data) - half) if kind == "bit-rot" else b""
    remains: dict[Damage, bytes] = {
        "empty": b"",
        "four-bytes": data[:4],
        "half": data[:half],
        "no-tail": data[: -len(data) // 20],
        "html": b"<!DOCTYPE html><html><body>404: no such model</body></html>\n",
        "version-99": data[:4] + (99).to_bytes(4, "little") + data[8:],
        "absurd-counts": data[:8] + (2**60).to_bytes(8, "little") + data[16:],
        "bit-rot": data[:half] + rotten,
    }
    path.write_bytes(remains[kind])
    return path
