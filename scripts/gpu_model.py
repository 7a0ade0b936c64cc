"""Decoders of random weights, made where they run, and texts that nobody wrote: all of a step that takes time, and
nothing that could be read. They are `TorchLlama`s, so what is measured is what the torch target runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from localspec.backends.torch.cells import Cells, Pass, Table, Text
from localspec.backends.torch.kernels.dispatch import Ops
from localspec.backends.torch.kernels.planes import KINDS, Planes
from localspec.backends.torch.llama import TorchLlama
from localspec.backends.torch.sizes import Build
from localspec.backends.torch.sizes import Shape as DecoderShape
from localspec.spec.tree import TokenTree

Weight: TypeAlias = "Tensor | Planes"
TOP = 10  # children of a node that are looked at, as EAGLE-2 does


@dataclass(frozen=True)
class Shape:
    """``norms``: each head has its own (qwen3), and positions turn halves of a head."""

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    each: int
    inner: int
    n_vocab: int
    norms: bool = False

    @property
    def packed(self) -> int:
        """Rows of the matrix for queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * self.each

    @property
    def decoder(self) -> DecoderShape:
        return DecoderShape(
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            kv_heads=self.kv_heads,
            each=self.each,
            inner=self.inner,
            eps=1e-5,
            rope_base=500000.0,
            n_vocab=self.n_vocab,
            build=Build(halves=self.norms),
        )

    @property
    def kv_bytes(self) -> int:
        """Bytes that a token takes in the cache, in 16 bits."""
        return self.layers * 2 * self.kv_heads * self.each * 2

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Those of a layer, ``(rows, columns)``, by the names of GGUF files; the gate lies before ``ffn_up``."""
        return {
            "attn_qkv": (self.packed, self.width),
            "attn_output": (self.width, self.heads * self.each),
            "ffn_up": (2 * self.inner, self.width),
            "ffn_down": (self.width, self.inner),
        }


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("llama-3-8b", 32, 4096, 32, 8, 128, 14336, 128256),
        Shape("llama-3-70b", 80, 8192, 64, 8, 128, 28672, 128256),
        Shape("qwen3-8b", 36, 4096, 32, 8, 128, 12288, 151936, norms=True),
        Shape("tiny", 2, 256, 4, 2, 64, 512, 1000, norms=True),
    )
}
#: Kinds of the matrices; ``Q4_K_M`` has better ones for half of the inner matrices and for the last of all.
FORMS = ("bf16", "Q8_0", "Q4_K_M")
_BITS = {"bf16": 16.0, **{name: kind.bits for name, kind in KINDS.items()}}


def kind_of(form: str, name: str, layer: int) -> str:
    if form != "Q4_K_M":
        return form
    return "Q6_K" if name == "output" or (name == "ffn_down" and layer % 2) else "Q4_K"


def layer_bytes(shape: Shape, form: str) -> int:
    """Of two layers, halved: some differ in turns."""
    two = sum(
        rows * columns * _BITS[kind_of(form, name, layer)] / 8
        for layer in (0, 1)
        for name, (rows, columns) in shape.matrices.items()
    )
    return int(two / 2)


def random_matrix(kind: str, rows: int, columns: int, like: Tensor) -> Weight:
    """On the device of ``like``, in its type where it is no quantised one."""
    if kind == "bf16":
        return torch.empty((rows, columns), dtype=like.dtype, device=like.device).normal_(std=columns**-0.5)

    def whole(*shape: int, most: int = 255) -> Tensor:
        return torch.randint(
            0, most + 1, (columns // shape[0], rows, *shape[1:]), dtype=torch.uint8, device=like.device
        )

    def words(x: Tensor) -> Tensor:
        return x.view(torch.int32)[..., 0]

    def scales(group: int, size: float) -> Tensor:
        """Two a word."""
        made = torch.empty((columns // group, rows, 2), dtype=torch.half, device=like.device)
        return words(made.uniform_(0, size))

    match kind:
        case "Q8_0":
            parts: tuple[Tensor, ...] = (whole(64, 64).view(torch.int8), scales(64, 4e-4))
        case "Q4_K":
            steps, leasts = (words(whole(128, 4, most=63)) for _ in range(2))
            parts = (whole(128, 64), steps, leasts, scales(256, 4e-4))
        case _:
            parts = (whole(128, 64), whole(128, 32), words(whole(64, 4)), scales(256, 2e-5))
    return Planes(kind, rows, columns, parts)


class Decoder:
    """Layers of a shape, as many of them different ones as fit into ``room_bytes``; a step goes through all.

    Args:
        outputs: tokens that can be told apart at the end; a drafter knows fewer.
    """

    def __init__(self, shape: Shape, form: str, ops: Ops, like: Tensor, room_bytes: float, outputs: int = 0) -> None:
        self.shape, self.form = shape, form
        fit = max(int(room_bytes // layer_bytes(shape, form)), 2)
        self.different = min(fit, shape.layers)
        made = [self._layer(layer, like) for layer in range(self.different)]
        ones = torch.ones(shape.width, dtype=like.dtype, device=like.device)
        self._output = random_matrix(kind_of(form, "output", 0), outputs or shape.n_vocab, shape.width, like)
        self._layers = [made[layer % self.different] for layer in range(shape.layers)]
        weights: dict[str, Weight] = {
            "token_embd.weight": torch.empty(
                (shape.n_vocab, shape.width), dtype=like.dtype, device=like.device
            ).normal_(),
            "output_norm.weight": ones,
            "output.weight": self._output,
        }
        for layer, block in enumerate(self._layers):
            weights |= {f"blk.{layer}.{name}.weight": weight for name, weight in block.items()}
            weights |= {f"blk.{layer}.{name}.weight": ones for name in ("attn_norm", "ffn_norm")}
        self.model = TorchLlama(shape.decoder, weights, ops)

    def _layer(self, layer: int, like: Tensor) -> dict[str, Weight]:
        ones = torch.ones(self.shape.each, dtype=like.dtype, device=like.device)
        norms = {"attn_q_norm": ones, "attn_k_norm": ones} if self.shape.norms else {}
        return norms | {
            name: random_matrix(kind_of(self.form, name, layer), rows, columns, like)
            for name, (rows, columns) in self.shape.matrices.items()
        }

    @property
    def bytes_read(self) -> int:
        """Of weights, in a step."""
        return sum(int(matrix.nbytes) for matrix in self._matrices)

    @property
    def parameters(self) -> int:
        """Numbers that a row is multiplied with."""
        return sum(_numbers(matrix) for matrix in self._matrices)

    @property
    def _matrices(self) -> list[Weight]:
        return [*(block[name] for block in self._layers for name in self.shape.matrices), self._output]


def _numbers(matrix: Weight) -> int:
    return matrix.rows * matrix.columns if isinstance(matrix, Planes) else matrix.numel()


def side_by_side(cells: Cells, texts: int, context: int, nodes: int) -> tuple[list[int], Pass]:
    """Tokens of a pass over a tree of so many nodes behind each of some texts, and what stands behind them: texts of
    ``context`` tokens that nobody read, in cells in no order within 64."""
    tree = random_tree(nodes)
    found = [Text(cells, _shuffled(cells.take(context)), context) for _ in range(texts)]
    for text in found:
        text.grow(tree)
    past = Pass([(text, tree, 0) for text in found])
    for text in found:
        text.truncate(0)  # the pass remembers where they lie
    return [*tree.tokens] * texts, past


def _shuffled(table: Table) -> Table:
    rng = np.random.default_rng(len(table))
    for start in range(0, len(table), 64):
        rng.shuffle(table[start : start + 64])
    return table


def random_tree(nodes: int) -> TokenTree:
    """Parents are drawn, early ones more often."""
    rng = np.random.default_rng(nodes)
    parents = [-1, *(int(rng.integers(node)) * 2 // 3 for node in range(1, nodes))]
    return TokenTree.grown(range(nodes), parents, [1.0] * nodes, [""] * nodes)
