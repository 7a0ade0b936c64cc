"""What a model in torch takes of memory, told before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.backends.torch.sizes import Shape


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes: of all weights, of a cache that is full, and of what a pass needs at most beside them."""

    weights: int
    cache: int
    working: int

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.working


def memory_plan(shape: Shape, weights: int, *, n_ctx: int, rows: int, outputs: int, each: int = 4) -> MemoryPlan:
    """That of a model with so many ``weights`` of ``each`` bytes, for passes of ``rows`` nodes, of which ``outputs``
    have logits."""
    attended = (shape.heads + 2 * shape.kv_heads) * shape.each
    cache = 2 * n_ctx * shape.layers * shape.kv_heads * shape.each
    # Of one layer at a time: its input and output, queries, keys and values before and behind RoPE, and what lies
    # between the two matrices.
    layer = rows * (3 * shape.width + 2 * attended + 3 * shape.inner)
    # Attention copies rows that do not lie in order, for all heads, and makes numbers of what each row sees.
    seen = 2 * n_ctx * shape.heads * shape.each + rows * n_ctx * 5 // 4
    scores = outputs * shape.n_vocab
    return MemoryPlan(each * weights, each * cache, each * (max(layer + seen, scores)))
