"""Measuring for ``scripts/gpu_bench.py``: whole steps, the torch target, kernels alone, and texts side by side."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.base import Work
from localspec.backends.fake import FakeVocab
from localspec.backends.torch.cells import Cells, Pass
from localspec.backends.torch.graphs import Capture, Graphs
from localspec.backends.torch.inputs import Feed, Inputs
from localspec.backends.torch.kernels.dispatch import Ops
from localspec.backends.torch.kernels.planes import Planes
from localspec.backends.torch.kernels.rope_write import HeadNorms, Turn
from localspec.backends.torch.place import Place
from localspec.backends.torch.places import Places
from localspec.backends.torch.rope import cos_and_sin, turns
from localspec.backends.torch.target import TorchTarget
from scripts.gpu_model import TOP, Decoder, Weight, random_tree, side_by_side

TRACES = Path(__file__).resolve().parent.parent / "tests" / "control" / "traces.json"
DEPTHS = (1, 2, 3, 4, 5, 7)
#: A tree as EAGLE draws it, and how many tokens a step of it is taken to bring.
TREE, TREE_DEPTH, TREE_TOKENS = 64, 5, 4.5
CHUNK = 512  # tokens of a prompt that are read at once
Found = dict[str, Any]


class Spent(Exception):
    """The time that the run may take is over."""


@dataclass
class Bench:
    """A device, how fast it reads and multiplies, and when to stop.

    Args:
        like: a tensor there, of the type that models are in.
        ends: on the clock of `time.monotonic`.
        bandwidth: bytes a second.
        rate: additions and multiplications a second.
    """

    device: torch.device
    ops: Ops
    like: Tensor
    ends: float
    bandwidth: float = 1.0
    rate: float = 1.0

    @property
    def cuda(self) -> bool:
        return bool(self.device.type == "cuda")

    @property
    def place(self) -> Place:
        return Place(self.device, self.like.dtype)

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def random(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.like.dtype, device=self.device).normal_()

    def graphed(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """``run``, as one CUDA graph where its kernels allow that."""
        if not self.cuda or self.ops.waits:
            return run
        return Capture()(run)

    def seconds(self, run: Callable[[], Any], least: int = 5, room: float = 0.15, *, by_device: bool = True) -> float:
        """Median of some runs, on the device's own clock or on this machine's; ``room``: seconds to spend.

        Raises:
            Spent: it is too late to begin.
        """
        if time.monotonic() > self.ends:
            raise Spent
        run()
        self.wait()
        taken: list[float] = []
        began = time.perf_counter()
        while len(taken) < least or (time.perf_counter() - began < room and len(taken) < 50):
            taken.append(self._once(run, by_device and self.cuda))
        return median(taken)

    def _once(self, run: Callable[[], Any], by_device: bool) -> float:
        if not by_device:
            began = time.perf_counter()
            run()
            return time.perf_counter() - began
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        run()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3

    def floor(self, bytes_read: float, products: float = 0.0) -> float:
        """Seconds that reading so much takes, or so many multiplications, if they take longer."""
        return max(bytes_read / self.bandwidth, 2 * products / self.rate)

    def room_bytes(self) -> float:
        """For weights and caches."""
        return 0.8 * torch.cuda.mem_get_info()[0] if self.cuda else 1e9


def measure_device(bench: Bench, *, tiny: bool) -> Found:
    """Bandwidth of a copy (read and written), and the rate of a large product; `Bench` learns them."""
    n, side = (1 << 22, 256) if tiny else (1 << 30, 8192)
    source = torch.zeros(n, dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    bench.bandwidth = 2 * n / bench.seconds(lambda: target.copy_(source))
    a, b = bench.random(side, side), bench.random(side, side)
    bench.rate = 2 * side**3 / bench.seconds(lambda: a @ b)
    return {
        "name": torch.cuda.get_device_name() if bench.cuda else "CPU",
        "torch": torch.__version__,
        "bandwidth_gb_s": bench.bandwidth / 1e9,
        "product_tflop_s": bench.rate / 1e12,
    }


# Steps


def step_floor(bench: Bench, decoder: Decoder, texts: int, rows: int, context: int) -> float:
    """``rows`` of all ``texts`` together."""
    read = decoder.bytes_read + texts * context * decoder.shape.kv_bytes
    return bench.floor(read, rows * decoder.parameters)


def step(decoder: Decoder, graphs: Graphs, tokens: list[int], past: Pass) -> Callable[[], tuple[Tensor, Tensor]]:
    """What computes the likeliest tokens behind each row, and how likely they are."""
    run, model = graphs.ready(tokens, (), past), decoder.model
    return lambda: model.ops.top_k(model.scores(run().hidden[0, : len(tokens)]), TOP)


def measure_steps(
    bench: Bench, decoder: Decoder, rows: tuple[int, ...], contexts: tuple[int, ...], room: int
) -> Iterator[Found]:
    """Of one text: one graph of each number of rows serves every context."""
    cells = Cells(decoder.model.shape, room, Places.whole(bench.place))
    graphs = Graphs(decoder.model, cells, 1)
    for n in rows:
        for context in contexts:
            took = bench.seconds(step(decoder, graphs, *side_by_side(cells, 1, context, n)))
            floor = step_floor(bench, decoder, 1, n, context)
            yield {"rows": n, "context": context, "ms": took * 1e3, "floor_ms": floor * 1e3}


def measure_target(bench: Bench, decoder: Decoder, rows: tuple[int, ...], context: int, room: int) -> Iterator[Found]:
    """The torch target as the engine calls it: a pass ends when the scores of all its rows are in this machine's
    memory. The first is that of a prompt, in pieces."""
    model = decoder.model
    target = TorchTarget(model, FakeVocab(model.shape.n_vocab), n_ctx=room, buckets=True)
    seq = target.open()
    began = time.perf_counter()
    for start in range(0, context, CHUNK):
        n = min(CHUNK, context - start)
        target.forward([Work.prompt(seq, [1] * n)])
        target.commit(seq, range(n))
    yield {"rows": context, "context": 0, "ms": (time.perf_counter() - began) * 1e3}
    for n in rows:
        work = [Work(seq, random_tree(n))]

        def once(work: list[Work] = work) -> None:
            target.forward(work)
            target.commit(seq, ())

        yield {"rows": n, "context": context, "ms": bench.seconds(once, by_device=False) * 1e3}
    target.close_all()


# Kernels alone


@dataclass(frozen=True)
class Alone:
    """A kernel: how to run it in one layer, and the bytes and multiplications that it cannot do without. ``layered``:
    each layer has its own numbers for it."""

    name: str
    run: Callable[[int], Any]
    read: float
    products: float = 0.0
    layered: bool = True


def measure_kernels(bench: Bench, decoder: Decoder, rows: int, context: int, room: int) -> Iterator[Found]:
    """Times of one layer. Each kernel runs over all of them, so that no weight waits in a cache for it."""
    cells = Cells(decoder.model.shape, room, Places.whole(bench.place))
    inputs = Inputs(cells, 1, rows)
    inputs.fill(*side_by_side(cells, 1, context, rows))
    feed = inputs.feed(rows, 1, bench.ops)
    for one in (*_products(bench, decoder, rows), *_others(bench, decoder, feed, context)):
        layers = decoder.shape.layers if one.layered else 1

        def through(one: Alone = one, layers: int = layers) -> None:
            for layer in range(layers):
                one.run(layer)

        took = bench.seconds(bench.graphed(through)) / layers
        floor = bench.floor(one.read, one.products)
        sizes = {"us": took * 1e6, "floor_us": floor * 1e6, "gb_s": one.read / took / 1e9}
        yield {"kernel": one.name, "rows": rows, "context": context, **sizes}


def _products(bench: Bench, decoder: Decoder, rows: int) -> Iterator[Alone]:
    shape, model = decoder.shape, decoder.model
    for name, (height, columns) in shape.matrices.items():
        read = sum(model.block(layer, name).nbytes for layer in range(shape.layers)) / shape.layers
        run = partial(_product, decoder, bench.random(rows, columns), name)
        yield Alone(f"product: {name}", run, read, rows * height * columns)
    x = bench.random(rows, shape.width)
    times = rows * shape.n_vocab * shape.width
    yield Alone("product: output", lambda _: model.scores(x), model.unembedding.nbytes, times, layered=False)


def _product(decoder: Decoder, x: Tensor, name: str, layer: int) -> Tensor:
    matrix: Weight = decoder.model.block(layer, name)
    return decoder.model.ops.matmul(x, matrix) if isinstance(matrix, Planes) else F.linear(x, matrix)


def _others(bench: Bench, decoder: Decoder, feed: Feed, context: int) -> Iterator[Alone]:
    shape, ops, size, rows = decoder.shape, bench.ops, bench.like.element_size(), len(feed.slots)
    x, carried, gate, up = (bench.random(rows, n) for n in (shape.width, shape.width, shape.inner, shape.inner))
    widths = [n * shape.each for n in (shape.heads, shape.kv_heads, shape.kv_heads)]
    q, k, v = (part.unflatten(1, (-1, shape.each)) for part in bench.random(rows, shape.packed).split(widths, dim=1))
    of_pairs = turns(shape.each, 500000.0).to(bench.device)
    turn = Turn(*cos_and_sin(feed.forest.positions, of_pairs), shape.norms)
    ones, width = bench.random(shape.each), bench.random(shape.width)
    norms = HeadNorms(ones, ones, 1e-6) if shape.norms else None
    logits, cells = bench.random(rows, shape.n_vocab), (context + rows) * shape.each

    def pools(layer: int) -> list[Tensor]:
        return [pool.transpose(0, 1) for pool in feed.cells.layers[layer]]

    yield Alone(
        "tree attention",
        lambda layer: ops.attend(q, *pools(layer), feed.forest),
        2 * (cells * shape.kv_heads + q.numel()) * size,
        2 * rows * cells * shape.heads,
    )
    yield Alone(
        "turn and write",
        lambda layer: ops.rope_write(q, k, v, turn, feed.slots, *pools(layer), norms),
        2 * rows * shape.packed * size,
    )
    yield Alone("sum and norm", lambda _: ops.add_norm(x, carried, width, 1e-5), 4 * x.numel() * size)
    yield Alone("gate", lambda _: ops.gated(gate, up), 3 * gate.numel() * size)
    yield Alone(f"top {TOP}", lambda _: ops.top_k(logits, TOP), logits.numel() * size, layered=False)


# Many texts side by side


@dataclass(frozen=True)
class Drafting:
    """A way to guess: ``nodes`` of a tree, the pending token included, after so many ``passes`` of a head of ``rows``
    for each text, which bring ``tokens`` a step."""

    name: str
    nodes: int
    passes: int
    rows: int
    tokens: float


def replayed(depth: int) -> float:
    """Tokens a step, where a draft model guesses so many tokens ahead, over all recorded answers."""
    steps = tokens = 0
    for trace in json.loads(TRACES.read_text(encoding="utf-8")).values():
        right, at = trace["right"], 0
        while at + depth < len(right):
            held = right[at : at + depth].partition("0")[0]
            steps, tokens, at = steps + 1, tokens + len(held) + 1, at + len(held) + 1
    return tokens / steps


def draftings() -> list[Drafting]:
    """Chains, as recorded; at last the tree."""
    chains = [Drafting(f"chain of {depth}", depth + 1, depth, 1, replayed(depth)) for depth in DEPTHS]
    return [*chains, Drafting(f"tree of {TREE}", TREE, TREE_DEPTH, TOP, TREE_TOKENS)]


def measure_batch(bench: Bench, decoder: Decoder, head: Decoder, texts: int, context: int, room: int) -> Found:
    """Tokens a second with drafts against without, for ``texts`` side by side: measured, and by the floors."""
    plain, plain_floor = _step(bench, decoder, texts, 1, context, room)
    passes = {rows: _step(bench, head, texts, rows, context, room) for rows in (1, TOP)}
    found: Found = {"texts": texts, "plain_ms": plain * 1e3, "plain_floor_ms": plain_floor * 1e3, "drafts": []}
    for one in draftings():
        took, floor = _step(bench, decoder, texts, one.nodes, context, room)
        draft, draft_floor = (one.passes * seconds for seconds in passes[one.rows])
        times = {"verify_ms": took * 1e3, "draft_ms": draft * 1e3}
        gains = {
            "gain": one.tokens * plain / (took + draft),
            "gain_floor": one.tokens * plain_floor / (floor + draft_floor),
        }
        found["drafts"].append({"name": one.name, "tokens": one.tokens, **times, **gains})
    return found


def _step(bench: Bench, decoder: Decoder, texts: int, nodes: int, context: int, room: int) -> tuple[float, float]:
    """Seconds of a step of a tree behind each text, and their floor."""
    cells = Cells(decoder.model.shape, texts * room, Places.whole(bench.place))
    graphs = Graphs(decoder.model, cells, texts, buckets=(texts * nodes,))
    took = bench.seconds(step(decoder, graphs, *side_by_side(cells, texts, context, nodes)), 3, 0.1)
    return took, step_floor(bench, decoder, texts, texts * nodes, context)
