"""Decoders of random weights, made where they run: all of a step that takes time, and nothing that could be read.

What they compute has the shape of what the real models compute, and they run the same kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.torch.kernels.dispatch import Ops
from localspec.backends.torch.kernels.planes import Planes
from localspec.backends.torch.kernels.quant_matmul import MAX_ROWS
from localspec.backends.torch.kernels.rope_write import HeadNorms, Turn
from localspec.backends.torch.kernels.tree_attention import Forest, packed

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
    def kv_bytes(self) -> int:
        """Bytes that a token takes in the cache, in 16 bits."""
        return self.layers * 2 * self.kv_heads * self.each * 2

    @property
    def matrices(self) -> dict[str, tuple[int, int]]:
        """Those of a layer, ``(rows, columns)``."""
        return {
            "qkv": (self.packed, self.width),
            "out": (self.width, self.heads * self.each),
            "gate and up": (2 * self.inner, self.width),
            "down": (self.width, self.inner),
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
_BITS = {"bf16": 16.0, "Q8_0": 8.5, "Q4_K": 4.625, "Q6_K": 6.625}


def kind_of(form: str, name: str, layer: int) -> str:
    if form != "Q4_K_M":
        return form
    return "Q6_K" if name == "output" or (name == "down" and layer % 2) else "Q4_K"


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


@dataclass(frozen=True)
class Layer:
    weights: dict[str, Weight]
    norms: tuple[Tensor, Tensor]
    head_norms: HeadNorms | None
    cache: Tensor  # [2, slots, kv heads, each]


@dataclass(frozen=True)
class Feed:
    """What a pass reads, in memory that stays where it is: a tree of ``nodes`` behind each of some texts."""

    tokens: Tensor
    slots: Tensor
    forest: Forest
    nodes: int
    depths: Tensor

    @classmethod
    def of(cls, shape: Shape, sequences: int, nodes: int, room: int, device: torch.device) -> Feed:
        """Texts of up to ``room`` tokens with their trees, each in slots of its own, in no order within 64."""
        rows = sequences * nodes
        order = torch.stack([torch.randperm(64) for _ in range(sequences * (room // 64))]).view(sequences, -1, 64)
        table = (order + torch.arange(order.shape[1])[:, None] * 64).flatten(1)
        table = table + torch.arange(sequences)[:, None] * room
        sees = _random_tree(nodes)
        forest = Forest(
            torch.arange(sequences + 1, dtype=torch.int32, device=device) * nodes,
            torch.zeros(sequences, dtype=torch.int32, device=device),
            torch.zeros(sequences, dtype=torch.int32, device=device),
            torch.zeros(rows, dtype=torch.int32, device=device),
            packed(sees).repeat(sequences).to(device),
            table.int().to(device),
        )
        depths = (sees.sum(1) - 1).repeat(sequences).int().to(device)
        tokens = torch.randint(0, shape.n_vocab, (rows,), device=device)
        return cls(tokens, torch.zeros(rows, dtype=torch.int32, device=device), forest, nodes, depths)

    def stand(self, context: int) -> None:
        """Every text has so many tokens."""
        self.forest.lengths.fill_(context)
        self.forest.positions.copy_(self.depths + context)
        self.slots.copy_(self.forest.table[:, context : context + self.nodes].flatten())


def _random_tree(nodes: int) -> Tensor:
    """``[nodes, nodes]``: what each node sees; parents are drawn, early ones more often."""
    rng = torch.Generator().manual_seed(nodes)
    sees = torch.eye(nodes, dtype=torch.bool)
    for node in range(1, nodes):
        sees[node] |= sees[int(torch.randint(0, node, (), generator=rng)) * 2 // 3]
    return sees


class Decoder:
    """Layers of a shape, as many of them different ones as fit into ``room_bytes``; a step goes through all.

    Args:
        slots: of the cache.
        outputs: tokens that can be told apart at the end; a drafter knows fewer.
    """

    def __init__(
        self, shape: Shape, form: str, ops: Ops, like: Tensor, slots: int, room_bytes: float, outputs: int = 0
    ) -> None:
        self.shape, self.form, self.ops = shape, form, ops
        self.embedding = torch.empty((shape.n_vocab, shape.width), dtype=like.dtype, device=like.device).normal_()
        self.output = random_matrix(kind_of(form, "output", 0), outputs or shape.n_vocab, shape.width, like)
        self._norm = torch.ones(shape.width, dtype=like.dtype, device=like.device)
        kv = 2 * slots * shape.kv_heads * shape.each * like.element_size()
        fit = max(int(room_bytes // (layer_bytes(shape, form) + kv)), 2)
        made = [self._layer(layer, slots, like) for layer in range(min(fit, shape.layers))]
        self.different = len(made)
        self.layers = [made[layer % len(made)] for layer in range(shape.layers)]
        self._turns = (1 / 500000.0 ** (torch.arange(0, shape.each, 2) / shape.each)).to(like.device)

    def _layer(self, layer: int, slots: int, like: Tensor) -> Layer:
        shape = self.shape
        weights = {
            name: random_matrix(kind_of(self.form, name, layer), rows, columns, like)
            for name, (rows, columns) in shape.matrices.items()
        }
        ones = torch.ones(shape.each, dtype=like.dtype, device=like.device)
        cache = torch.zeros((2, slots, shape.kv_heads, shape.each), dtype=like.dtype, device=like.device)
        return Layer(weights, (self._norm, self._norm), HeadNorms(ones, ones, 1e-6) if shape.norms else None, cache)

    @cached_property
    def bytes_read(self) -> int:
        """Of weights, in a step."""
        return sum(map(size_of, self._matrices))

    @cached_property
    def parameters(self) -> int:
        """Numbers that a row is multiplied with."""
        return sum(_numbers(matrix) for matrix in self._matrices)

    @property
    def _matrices(self) -> list[Weight]:
        return [*(matrix for layer in self.layers for matrix in layer.weights.values()), self.output]

    def product(self, x: Tensor, weight: Weight) -> Tensor:
        if isinstance(weight, Tensor):
            return F.linear(x, weight)
        if len(x) <= MAX_ROWS:
            return self.ops.matmul(x, weight)
        return torch.cat([self.ops.matmul(rows, weight) for rows in x.split(MAX_ROWS)])

    def step(self, feed: Feed) -> tuple[Tensor, Tensor]:
        """The likeliest tokens behind each row, and how likely they are."""
        carried, turn = self.embedding[feed.tokens], self.turn(feed)
        x = self.ops.add_norm(carried, self._norm, 1e-5)
        for layer in self.layers:
            mixed = self._attention(layer, self.product(x, layer.weights["qkv"]), turn, feed)
            x = self.ops.add_norm(self.product(mixed, layer.weights["out"]), layer.norms[0], 1e-5, carried)
            inner = self.ops.gated(self.product(x, layer.weights["gate and up"]))
            x = self.ops.add_norm(self.product(inner, layer.weights["down"]), layer.norms[1], 1e-5, carried)
        return self.ops.top_k(self.product(x, self.output), TOP)

    def turn(self, feed: Feed) -> Turn:
        angles = feed.forest.positions[:, None] * self._turns
        return Turn(angles.cos(), angles.sin(), self.shape.norms)

    def parts(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, ``[rows, heads, each]``."""
        widths = [n * self.shape.each for n in (self.shape.heads, self.shape.kv_heads, self.shape.kv_heads)]
        q, k, v = (part.unflatten(1, (-1, self.shape.each)) for part in qkv.split(widths, dim=1))
        return q, k, v

    def _attention(self, layer: Layer, qkv: Tensor, turn: Turn, feed: Feed) -> Tensor:
        q, k, v = self.parts(qkv)
        keys, values = layer.cache
        self.ops.rope_write(q, k, v, turn, feed.slots, keys, values, layer.head_norms)
        return self.ops.attend(q, keys, values, feed.forest, None, feed.nodes).flatten(1)


def size_of(matrix: Weight) -> int:
    """Bytes."""
    return matrix.size if isinstance(matrix, Planes) else matrix.numel() * matrix.element_size()


def _numbers(matrix: Weight) -> int:
    return matrix.rows * matrix.columns if isinstance(matrix, Planes) else matrix.numel()
