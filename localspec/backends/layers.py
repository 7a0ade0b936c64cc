"""What the layers of a model take of memory, told from the headers of its files. Loads nothing heavy."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from localspec.backends.memory import CacheShape
from localspec.hub.arrays import elements
from localspec.hub.header import Array, Header

_BLOCK = re.compile(r"blk\.(\d+)\.")
_EXPERTS = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")
#: Tensors of which a pass reads a row a token; llama.cpp leaves them on the CPU.
_TABLE = "token_embd.weight"
_INPUT = re.compile(r"(per_layer_)?(token|tok|position)_(embd|types)")
_FLOAT = 4


@dataclass(frozen=True, slots=True)
class Layers:
    """``output``: bytes of the output layer, with its copy of the table of tokens where both are one; ``blocks``: those
    of the other layers, and ``caches`` their caches' shapes. ``read``: bytes of weights that a pass over one row reads.
    ``context``: tokens that the model was trained for. ``width``, ``inner``, ``heads``, ``masks``, ``vocabulary``: what
    buffers of passes are made of."""

    output: int
    blocks: tuple[int, ...]
    caches: tuple[CacheShape, ...]
    read: int
    context: int
    width: int
    inner: int
    heads: int
    masks: int
    vocabulary: int

    @classmethod
    def of(cls, headers: Sequence[Header], *, predictors: bool = False) -> Layers | None:
        """Of all parts of a model. ``predictors``: with its layers for multi-token prediction. ``None``: the headers do
        not tell."""
        first = headers[0]
        count, width = first.number("{arch}.block_count"), first.number("{arch}.embedding_length")
        context = first.number("{arch}.context_length")
        if count is None or width is None or context is None:
            return None
        loaded = count if predictors else count - (first.number("{arch}.nextn_predict_layers") or 0)
        sizes = {name: size for header in headers for name, size in _tensors(header) if _block(name) < loaded}
        blocks: Counter[int] = Counter()
        for name, size in sizes.items():
            blocks[_block(name)] += size
        table = sizes.get(_TABLE, 0)
        output = sum(size for name, size in sizes.items() if _block(name) < 0 and not _INPUT.match(name))
        if "output.weight" not in sizes:
            output += table
        moved = sum(size for at, size in blocks.items() if at >= 0) + output
        experts = sum(size for name, size in sizes.items() if _EXPERTS.search(name))
        used, there = (first.number(f"{{arch}}.expert_{what}") or 1 for what in ("used_count", "count"))
        inner = max(_per_layer(first, "feed_forward_length", count))
        inner = max(inner, (first.number("{arch}.expert_feed_forward_length") or 0) * used)
        return cls(
            output=output,
            blocks=tuple(blocks[at] for at in range(count)),
            caches=tuple(_caches(first, count, width, loaded)),
            read=moved - experts * (there - used) // there,
            context=context,
            width=width,
            inner=inner,
            heads=max(_per_layer(first, "attention.head_count", count)),
            masks=2 if first.number("{arch}.attention.sliding_window") else 1,
            vocabulary=_vocabulary(headers),
        )

    def sizes(self, n_ctx: int, type_k: str, type_v: str, *, caches: bool = True) -> tuple[int, ...]:
        """Bytes by layer, in the order in which ``-ngl`` moves them: the output layer, then the others from the end.
        ``caches``: whether these lie where the layers do."""
        kept = [one.size(n_ctx, type_k, type_v) if caches else 0 for one in self.caches]
        return (self.output, *(block + cache for block, cache in reversed([*zip(self.blocks, kept, strict=True)])))

    def buffers(self, n_ctx: int, rows: int, outputs: int, *, flash: bool = True, several: bool = False) -> int:
        """Bytes that passes of ``rows`` rows, of which ``outputs`` have scores, take of a device: somewhat more than
        llama.cpp's log tells, since inputs and outputs of a layer and scores of all tokens need not be there at a
        time. ``flash``: attention does not keep its scores; ``several``: llama.cpp has copies of the mask where devices
        work on passes by turns."""
        layer = rows * (8 * self.width + 3 * self.inner)
        mask = (2 if several else 1) * self.masks * rows * n_ctx
        attention = 0 if flash else rows * n_ctx * (self.heads + 1)
        return _FLOAT * (layer + mask + attention + outputs * self.vocabulary)


def _block(name: str) -> int:
    """-1 for a tensor of none."""
    match = _BLOCK.match(name)
    return int(match[1]) if match else -1


def _tensors(header: Header) -> Iterator[tuple[str, int]]:
    """Names and bytes, from where the tensors start: the gaps between them are a few bytes each."""
    tensors = sorted(header.tensors, key=lambda one: one.offset)
    ends = [*(one.offset for one in tensors[1:]), header.size - header.data]
    yield from ((one.name, max(end - one.offset, 0)) for one, end in zip(tensors, ends, strict=True))


def _per_layer(header: Header, key: str, count: int) -> list[int]:
    """A number for each layer; a file has one for all or one for each, or none, which is 0."""
    value = header.metadata.get(f"{header.architecture}.{key}")
    if isinstance(value, Array):
        found = [int(one) for one in elements(header, value).values]
        return [*found, *[0] * count][: max(count, 1)]
    return [value if isinstance(value, int) else 0] * max(count, 1)


def _caches(header: Header, count: int, width: int, loaded: int) -> Iterator[CacheShape]:
    """By layer; those that are not loaded have none."""
    heads = _per_layer(header, "attention.head_count", count)
    shared = _per_layer(header, "attention.head_count_kv", count)
    if f"{header.architecture}.attention.head_count_kv" not in header.metadata:
        shared = heads
    lengths = [header.number(f"{{arch}}.attention.{part}_length") for part in ("key", "value")]
    for at in range(count):
        yield CacheShape.of(int(at < loaded), width, max(heads), shared[at], *lengths)


def _vocabulary(headers: Sequence[Header]) -> int:
    """Tokens that get scores."""
    shapes = {one.name: one.shape for header in headers for one in header.tensors}
    shape = shapes.get("output.weight") or shapes.get(_TABLE) or (0,)
    return int(shape[-1])
