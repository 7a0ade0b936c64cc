"""Passes of few rows: on a card one CUDA graph for each size, captured when the size is met first; elsewhere the same
passes, computed one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from localspec.backends.torch.attention import Past
from localspec.backends.torch.cells import Cells, Pass
from localspec.backends.torch.inputs import Feed, Inputs
from localspec.backends.torch.kernels.dispatch import Ops
from localspec.backends.torch.kernels.tree_attention import MAX_NODES
from localspec.backends.torch.llama import Read

V = TypeVar("V")
#: Rows that passes are filled up to.
BUCKETS = (1, 8, 16, 24, 32, 48, MAX_NODES)
#: Rows, texts, and what is computed of them.
_Size = tuple[int, int, Hashable]


class Reader(Protocol):
    """What reads a filled pass: a decoder, or a head."""

    @property
    def ops(self) -> Ops: ...

    def read(self, tokens: Tensor, layers: Collection[int], past: Past) -> Read: ...


class Graphs:
    """
    Args:
        model: the decoder, or the head.
        cells: of its texts.
        texts: of a pass at most.
        buckets: rows that passes are filled up to.
        capture: makes of a computation one that computes the same from what then lies where this one read, into where
            it gave. Not given: CUDA graphs where nothing waits for the device, else the computation itself.

    ``note``: one line where passes could not be captured, and why; empty otherwise.
    """

    note = ""

    def __init__(
        self,
        model: Reader,
        cells: Cells,
        texts: int,
        *,
        buckets: Sequence[int] = BUCKETS,
        capture: Callable[[Callable[[], Any]], Callable[[], Any]] | None = None,
    ) -> None:
        self._model, self._texts, self._buckets = model, texts, buckets
        self._inputs = Inputs(cells, texts, max(buckets))
        on_card = cells.device.type == "cuda" and not model.ops.waits
        self._capture = capture or (Capture() if on_card else _uncaptured)
        self._runs: dict[_Size, Callable[[], Any]] = {}

    def takes(self, past: Pass) -> bool:
        """Longer passes are read without."""
        return past.rows <= max(self._buckets) and all(part.nodes <= MAX_NODES for part in past.parts)

    def read(self, tokens: Sequence[int], layers: Collection[int], past: Pass) -> Read:
        """As the model's; rows that only fill follow those of ``past``. What is given is gone with the next
        pass."""
        past.check()
        return self.ready(tokens, layers, past)()

    def ready(self, tokens: Sequence[int], layers: Collection[int], past: Pass) -> Callable[[], Read]:
        """`read`, with all that it reads in its place."""
        return self.run(tokens, past, frozenset(layers), partial(self._read, layers))

    def run(self, tokens: Sequence[int], past: Pass, what: Hashable, compute: Callable[[Feed], V]) -> Callable[[], V]:
        """What ``compute`` makes of a pass, with all that this reads in its place. ``what`` names what is computed, and
        with it the shape of whatever it reads beside."""
        self._inputs.fill(tokens, past)
        rows = next(size for size in self._buckets if size >= past.rows)
        texts = next(size for size in texts_of_passes(self._texts) if size >= len(past.parts))
        size = rows, texts, what
        if size not in self._runs:
            self._runs[size] = self._captured(partial(compute, self._inputs.feed(rows, texts, self._model.ops)))
        return self._runs[size]

    def _read(self, layers: Collection[int], feed: Feed) -> Read:
        return self._model.read(feed.tokens, layers, feed)

    def _captured(self, run: Callable[[], V]) -> Callable[[], V]:
        try:
            return self._capture(run)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # the same without a graph is slower, and says what else may be wrong
            why = str(error).strip() or type(error).__name__
            self.note = f"no CUDA graphs: {why.splitlines()[0][:120]}"
            self._capture = _uncaptured
            return run


def texts_of_passes(texts: int) -> list[int]:
    """How many texts passes are made for, of up to ``texts``: powers of two, and all."""
    return [*(2**n for n in range((texts - 1).bit_length())), texts]


def _uncaptured(run: Callable[[], V]) -> Callable[[], V]:
    return run


class Capture:
    """Makes CUDA graphs, which have the memory for what they compute in common: one runs at a time."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], V]) -> Callable[[], V]:
        self._compile(run)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            given = run()

        def replay() -> V:
            graph.replay()
            return given

        return replay

    def _compile(self, run: Callable[[], V]) -> None:
        """Kernels and libraries make themselves ready when they run first, which no graph can hold."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run()
        torch.cuda.current_stream().wait_stream(side)
