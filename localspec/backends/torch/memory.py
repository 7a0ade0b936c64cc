"""What a model in torch takes of memory, told before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass, fields

from localspec.backends.torch.graphs import BUCKETS, texts_of_passes
from localspec.backends.torch.inputs import input_bytes
from localspec.backends.torch.kernels.experts import is_gathered
from localspec.backends.torch.kernels.jit import Card, power_of_two
from localspec.backends.torch.kernels.quant_matmul import splits_of
from localspec.backends.torch.kernels.tree_attention import Tiles
from localspec.backends.torch.sizes import Shape

#: Layers whose input a drafter reads at most: EAGLE-3's.
_KEPT = 3
#: What cuBLAS takes for itself on Hopper, of which passes, captures and what is run before them have one each: as
#: torch's documentation has it.
WORKSPACES = 3 * 2**25
_FLOAT = 4


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes: of all ``weights``, of a ``cache`` that is full, of what a pass needs at most beside them (``passes``), of
    what short passes read where these are filled (``inputs``), and of what they keep where they are ``graphs``."""

    weights: int
    cache: int
    passes: int
    inputs: int = 0
    graphs: int = 0

    @property
    def parts(self) -> dict[str, int]:
        """Those that are there, by name."""
        found = {part.name: int(getattr(self, part.name)) for part in fields(self)}
        return {name: size for name, size in found.items() if size}

    @property
    def total(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class Filled:
    """Short passes that are filled up to a size, over as many ``texts`` at most: graphs on ``card``. ``packed``: with
    matrices that stay quantised."""

    texts: int
    card: Card
    packed: bool = False


def memory_plan(
    shape: Shape,
    weights: int,
    *,
    n_ctx: int,
    rows: int,
    outputs: int,
    each: int = _FLOAT,
    filled: Filled | None = None,
    layers: int | None = None,
) -> MemoryPlan:
    """That of a model whose weights take so many bytes, in numbers of ``each`` bytes, for passes of ``rows`` nodes, of
    which ``outputs`` have logits; or of a part of it, with so many ``layers``."""
    layers = shape.layers if layers is None else layers
    attended = (shape.heads + 2 * shape.kv_heads) * shape.each
    cache = 2 * n_ctx * layers * shape.kv_heads * shape.each
    # Of one layer at a time: its input and output, queries, keys and values before and behind RoPE, and what lies
    # between the two matrices.
    layer = rows * (3 * shape.width + 2 * attended + 3 * shape.inner)
    # Attention copies rows that do not lie in order, for all heads, and makes numbers of what each row sees.
    seen = 2 * n_ctx * shape.heads * shape.each + rows * n_ctx * 5 // 4
    scores = outputs * shape.n_vocab * (each + (_FLOAT if each != _FLOAT else 0))  # the host wants floats
    passes = max(each * (layer + seen), scores)
    if filled is None:
        return MemoryPlan(weights, each * cache, passes)
    inputs = input_bytes(filled.texts, max(BUCKETS), n_ctx)
    return MemoryPlan(weights, each * cache, passes, inputs, graph_bytes(shape, filled, each))


def graph_bytes(shape: Shape, filled: Filled, each: int) -> int:
    """What graphs of all sizes keep: each what it gives, without layers for a drafter and with them, and all together
    what the largest computes on its way."""
    texts = texts_of_passes(filled.texts)
    given = len(texts) * sum(BUCKETS) * (2 + _KEPT) * shape.width * each
    return given + max(pass_bytes(shape, filled, rows, n, each) for rows in BUCKETS for n in texts) + WORKSPACES


def pass_bytes(shape: Shape, filled: Filled, rows: int, texts: int, each: int) -> int:
    """What a filled pass of Triton's kernels has at most at a time, what it gives included, if no layer is kept.

    That is between two of the steps of a layer: in attention, or where its inner matrices are multiplied.
    """
    numbers = rows * each
    turns = 2 * _FLOAT * rows * (shape.build.turned or shape.each)  # cosines and sines, far and near
    stays = 2 * numbers * shape.width + turns
    attention = _attention_bytes(shape, filled, rows, texts, each)
    heads = _product_bytes((shape.heads + 2 * shape.kv_heads) * shape.each, shape.width, filled, rows, each)
    return stays + max(heads, attention, _inner_bytes(shape, filled, rows, each))


def _inner_bytes(shape: Shape, filled: Filled, rows: int, each: int) -> int:
    """Between the inner matrices of a layer."""
    build, width = shape.build, shape.width
    if not build.all_experts:
        up = _product_bytes(2 * shape.inner, width, filled, rows, each)
        return max(up, 3 * rows * each * shape.inner + _product_bytes(width, shape.inner, filled, rows, each))
    if is_gathered(rows, build.experts, build.all_experts):
        return rows * build.experts * each * (width * build.expert_inner + 2 * build.expert_inner + width)
    inner, given = build.all_experts * build.expert_inner, build.all_experts * width
    return rows * each * max(3 * inner, 2 * inner + given + width)


def _attention_bytes(shape: Shape, filled: Filled, rows: int, texts: int, each: int) -> int:
    """Queries, keys and values, what heads mix, and the parts that it is merged of."""
    heads, kv_heads = shape.heads, shape.kv_heads
    tiles = Tiles.of(
        filled.card, nodes=rows, sequences=texts, heads=heads, kv_heads=kv_heads, each=shape.each, size=each
    )
    parts = (tiles.splits + 1) * rows * heads * (power_of_two(shape.each) + 1)
    return rows * each * (2 * heads + 2 * kv_heads) * shape.each + _FLOAT * parts


def _product_bytes(gives: int, takes: int, filled: Filled, rows: int, each: int) -> int:
    """Of a matrix that stays quantised, parts of the product in floats, their sum, and this as it is wanted."""
    splits = splits_of(filled.card, gives, takes) if filled.packed else 1
    return rows * gives * (each if splits == 1 else _FLOAT * (splits + 1))
