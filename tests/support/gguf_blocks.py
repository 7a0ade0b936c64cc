"""Tiny random block drafters (DFlash, DSpark): GGUF files, and the same weights computed plainly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.support.gguf_files import TinyModel, TokenizerKeys, describe_decoder, write_gguf
from tests.support.plain_layers import Array, attended, gated, halves_turned, norm
from tests.support.random_weights import matrix as random_matrix
from tests.support.random_weights import scales as random_scales


@dataclass(frozen=True)
class TinyBlock:
    """A random drafter for a target of the same width that has ``n_vocab`` tokens.

    Args:
        layers: the target's layers whose inputs it reads.
        size: tokens of a block.
        rank: of the scores that follow the guess before (DSpark); 0: none.
        confident: it has a head for the chance that a guess holds.
        from_anchor: the pending token's own row guesses, where ``rank``.
        guessable: ids that it can guess, in ascending order; ``None`` = all.
        mask: the token of places that are to be guessed; ``None``: the file names none.
        borrows: the target, where the file has no embeddings and no output of its own, as is usual.
        candidates: among which a selector picks each guess by the one before (DFlash 2); 0: there is none.
    """

    n_vocab: int
    width: int
    layers: tuple[int, ...]
    size: int = 6
    rank: int = 0
    confident: bool = False
    from_anchor: bool = True
    guessable: tuple[int, ...] | None = None
    mask: int | None = 5
    borrows: TinyModel | None = None
    candidates: int = 0
    selector_rank: int = 8
    conv_kernel: int = 3
    conv_group: int = 8
    depth: int = 2
    heads: int = 4
    kv_heads: int = 2
    n_ctx: int = 2048
    seed: int = 0

    @property
    def first_row(self) -> int:
        return 0 if self.rank and self.from_anchor else 1

    @cached_property
    def tensors(self) -> dict[str, Array]:
        rng = np.random.default_rng(self.seed)
        matrix, scales = partial(random_matrix, rng), partial(random_scales, rng)
        width, each = self.width, self.width // self.heads
        n_guessable = len(self.guessable or range(self.n_vocab))
        tensors = {
            "fc.weight": matrix(width, len(self.layers) * width),
            "enc.output_norm.weight": scales(width),
            "output_norm.weight": scales(width),
            "token_embd.weight": matrix(self.n_vocab, width) * np.float32(np.sqrt(width)),
            "output.weight": matrix(n_guessable, width) * np.float32(3),
        }
        for layer in range(self.depth):
            block = {
                "attn_norm": scales(width),
                "attn_q": matrix(width, width),
                "attn_k": matrix(self.kv_heads * each, width),
                "attn_v": matrix(self.kv_heads * each, width),
                "attn_output": matrix(width, width),
                "attn_q_norm": scales(each),
                "attn_k_norm": scales(each),
                "ffn_norm": scales(width),
                "ffn_gate": matrix(2 * width, width),
                "ffn_up": matrix(2 * width, width),
                "ffn_down": matrix(width, 2 * width),
            }
            tensors |= {f"blk.{layer}.{name}.weight": weights for name, weights in block.items()}
            if self.candidates:
                groups = width // self.conv_group
                for part in ("attn", "ffn"):
                    taps = rng.standard_normal((2, self.conv_kernel, width), np.float32) / np.float32(2)
                    taps[:, 0] += 1
                    tensors[f"blk.{layer}.{part}_conv_base"] = taps
                    tensors[f"blk.{layer}.{part}_conv_proj.weight"] = matrix(2 * self.conv_kernel * groups, width)
        if self.borrows is not None:
            others = self.borrows.tensors(self.n_vocab)
            tensors |= {name: others[name] for name in ("token_embd.weight", "output.weight")}
        if self.candidates:
            tensors["selector_hidden.weight"] = matrix(self.selector_rank, width)
            tensors["selector_predecessor.weight"] = matrix(self.n_vocab, self.selector_rank) * np.float32(4)
            tensors["selector_successor.weight"] = matrix(self.n_vocab, self.selector_rank) * np.float32(4)
        if self.rank:
            tensors["markov_w1.weight"] = matrix(self.n_vocab, self.rank) * np.float32(np.sqrt(self.rank))
            tensors["markov_w2.weight"] = matrix(n_guessable, self.rank) * np.float32(3)
        if self.confident:
            tensors["conf_proj.weight"] = matrix(1, width + self.rank) * np.float32(2)
            tensors["conf_proj.bias"] = np.array([0.3], np.float32)
        return tensors

    def write(self, path: Path, tokenizer: TokenizerKeys) -> Path:
        tensors: dict[str, NDArray[Any]] = dict(self.tensors)
        if self.borrows is not None:
            del tensors["token_embd.weight"], tensors["output.weight"]
        if self.guessable is not None:
            tensors["d2t"] = np.array(self.guessable, np.int64)
        return write_gguf(path, "dflash", tokenizer, tensors, self._describe)

    def _describe(self, writer: Any) -> None:
        describe_decoder(writer, "tiny random block drafter", self, self.depth)
        writer.add_uint32("dflash.block_size", self.size)
        writer.add_key_value(
            "dflash.target_layers", list(self.layers), gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT32
        )
        if self.rank:
            writer.add_bool("dflash.sample_from_anchor", self.from_anchor)
        if self.mask is not None:
            writer.add_mask_token_id(self.mask)
        if self.candidates:
            writer.add_uint32("dflash.selector_top_k", self.candidates)
            writer.add_uint32("dflash.selector_rank", self.selector_rank)
            writer.add_uint32("dflash.conv_kernel_size", self.conv_kernel)
            writer.add_uint32("dflash.conv_group_size", self.conv_group)

    def rows(self, features: Array, pending: int, n: int) -> tuple[Array, Array]:
        """Scores ``[n, n_vocab]`` and confidence ``[n]`` of a block of ``n`` tokens behind a text, from the target's
        ``features`` of it, ``[text, layers · width]``."""
        weights = self.tensors
        text = norm(features @ weights["fc.weight"].T, weights["enc.output_norm.weight"])
        places = np.arange(len(text) + n)
        assert self.mask is not None
        carried = weights["token_embd.weight"][[pending, *[self.mask] * (n - 1)]]
        for layer in range(self.depth):
            own = {name.split(".")[2]: weights[name] for name in weights if name.startswith(f"blk.{layer}.")}
            read, behind = self._folded(norm(carried, own["attn_norm"]), own, "attn")
            query, key, value = (self._split(read @ own[f"attn_{part}"].T) for part in "qkv")
            # What the cache holds of the text.
            old_key, old_value = (self._split(text @ own[f"attn_{part}"].T) for part in "kv")
            query = halves_turned(norm(query, own["attn_q_norm"]), places[len(text) :])
            key = halves_turned(norm(np.concatenate([old_key, key]), own["attn_k_norm"]), places)
            value = np.concatenate([old_value, value])
            mixed = attended(query, key, value, np.ones((n, len(places)), bool))
            carried = carried + behind(mixed @ own["attn_output"].T)
            inner, behind = self._folded(norm(carried, own["ffn_norm"]), own, "ffn")
            carried = carried + behind(gated(inner, *(own[f"ffn_{part}"] for part in ("gate", "up", "down"))))
        normed = norm(carried, weights["output_norm.weight"])
        logits = self._spread(normed @ self._output.T)
        if self.candidates:
            logits = self._selected(normed, logits, pending)
        return self._chained(normed, logits, pending) if self.rank else (logits, np.ones(n, np.float32))

    def _folded(self, rows: Array, own: dict[str, Array], part: str) -> tuple[Array, Callable[[Array], Array]]:
        """``rows``, each with the few before it, as it weighs them itself; and the same for what is made of them."""
        if not self.candidates:
            return rows, lambda made: made
        weights = (rows @ own[f"{part}_conv_proj"].T).reshape(len(rows), 2, self.conv_kernel, -1)
        weights = np.repeat(weights, self.conv_group, axis=3) + own[f"{part}_conv_base"]

        def fold(read: Array, side: int) -> Array:
            folded = np.zeros_like(read)
            for tap in range(min(self.conv_kernel, len(read))):
                folded[tap:] += weights[tap:, side, tap] * read[: len(read) - tap]
            return folded

        return fold(rows, 0), lambda made: fold(made, 1)

    def _selected(self, normed: Array, logits: Array, pending: int) -> Array:
        """The scores of the candidates of each row behind the best one of the row before."""
        weights, before = self.tensors, pending
        selected = np.full_like(logits, -np.inf)
        for row in range(1, len(normed)):
            ids = np.argpartition(logits[row], -self.candidates)[-self.candidates :]
            known = weights["selector_predecessor.weight"][before] * (weights["selector_hidden.weight"] @ normed[row])
            selected[row, ids] = logits[row, ids] + weights["selector_successor.weight"][ids] @ known
            before = int(selected[row].argmax())
        return selected

    def _chained(self, normed: Array, logits: Array, pending: int) -> tuple[Array, Array]:
        """Scores that follow the best guess before, row by row."""
        weights = self.tensors
        sure, before = np.ones(len(normed), np.float32), pending
        for row in range(self.first_row, len(normed)):
            known = weights["markov_w1.weight"][before]
            logits[row] += self._spread((known @ weights["markov_w2.weight"].T)[None], 0.0)[0]
            if self.confident:
                seen = np.concatenate([normed[row], known])
                at = float(weights["conf_proj.weight"][0] @ seen + weights["conf_proj.bias"][0])
                sure[row] = 1 / (1 + np.exp(-at))
            before = int(logits[row].argmax())
        return logits, sure

    @property
    def _output(self) -> Array:
        return self.tensors["output.weight"]

    def _split(self, rows: Array) -> Array:
        return rows.reshape(len(rows), -1, self.width // self.heads)

    def _spread(self, own: Array, rest: float = -np.inf) -> Array:
        """Scores by the target's ids."""
        logits = np.full((len(own), self.n_vocab), rest, np.float32)
        logits[:, list(self.guessable or range(self.n_vocab))] = own
        return logits
