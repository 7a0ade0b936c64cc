"""What is planned for filled passes and their graphs, against the tensors that they make. Kernels make theirs and are
not run: what they compute is not looked at."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs Triton")

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from localspec.backends.base import NORMED, Work
from localspec.backends.fake import FakeVocab
from localspec.backends.torch.graphs import BUCKETS, Graphs, texts_of_passes
from localspec.backends.torch.kernels.dispatch import TRITON
from localspec.backends.torch.kernels.jit import Card, Launch
from localspec.backends.torch.llama import Read, TorchLlama
from localspec.backends.torch.memory import WORKSPACES, Filled, MemoryPlan, graph_bytes, memory_plan, pass_bytes
from localspec.backends.torch.sizes import Build, Shape
from localspec.backends.torch.target import TorchTarget
from localspec.spec.tree import TokenTree

N, ROOM = 70, 300
SHAPES: dict[str, dict[str, Any]] = {
    "wide inside": {"width": 64, "heads": 4, "kv_heads": 2, "each": 16, "inner": 900},
    "experts": {
        "width": 512,
        "heads": 2,
        "kv_heads": 2,
        "each": 16,
        "inner": 900,
        "build": Build(experts=2, all_experts=9, expert_inner=300),
    },
    "wide heads": {"width": 64, "heads": 8, "kv_heads": 1, "each": 24, "inner": 40},
}


class Living(TorchDispatchMode):  # type: ignore[misc]  # torch gives it no types
    """Counts bytes of the tensors that are made inside it and live, and how many that were at most."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **kwargs or {})
        read = {one.untyped_storage().data_ptr() for one in _tensors((args, kwargs))}
        for one in _tensors(given):
            self._count(one.untyped_storage(), read)
        return given

    def _count(self, storage: Any, read: set[int]) -> None:
        at, size = storage.data_ptr(), storage.nbytes()
        if size == 0 or at in read or at in self._known:
            return
        self._known.add(at)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, at, size)

    def _gone(self, at: int, size: int) -> None:
        self._known.discard(at)
        self.now -= size


def _tensors(found: Any) -> Iterator[torch.Tensor]:
    if isinstance(found, torch.Tensor):
        yield found
    elif isinstance(found, dict):
        yield from _tensors(list(found.values()))
    elif isinstance(found, list | tuple):
        for one in found:
            yield from _tensors(one)


@pytest.fixture(params=SHAPES)
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TorchLlama:
    monkeypatch.setattr(Launch, "run", lambda launch: None)
    return model_of(Shape(layers=3, n_vocab=N, eps=1e-5, rope_base=1e4, **SHAPES[request.param]))


def model_of(shape: Shape) -> TorchLlama:
    width, heads = shape.width, shape.heads * shape.each
    weights = {"token_embd.weight": torch.randn(N, width), "output_norm.weight": torch.ones(width)}
    block = {
        "attn_norm": (width,),
        "attn_qkv": (heads + 2 * shape.kv_heads * shape.each, width),
        "attn_output": (width, heads),
        "ffn_norm": (width,),
        "ffn_up": (2 * shape.inner, width),
        "ffn_down": (width, shape.inner),
    }
    if n := shape.build.all_experts:
        del block["ffn_up"], block["ffn_down"]
        block["ffn_gate_inp"] = (n, width)
        block |= {f"ffn_{part}_exps": (n, shape.build.expert_inner, width) for part in ("gate", "up")}
        block["ffn_down_exps"] = (n, width, shape.build.expert_inner)
    weights |= {f"blk.{i}.{name}.weight": torch.ones(size) for i in range(shape.layers) for name, size in block.items()}
    return TorchLlama(shape, weights, TRITON)


def plan_of(model: TorchLlama, texts: int) -> MemoryPlan:
    return memory_plan(
        model.shape,
        model.bytes_in(model.places.last),
        n_ctx=ROOM,
        rows=512,
        outputs=64,
        filled=Filled(texts, Card.of(torch.device("cpu"))),
    )


@pytest.mark.parametrize("texts", [1, 3, 8])
def test_what_lies_still_is_as_planned(model: TorchLlama, texts: int) -> None:
    target = TorchTarget(model, FakeVocab(N), n_ctx=ROOM, sequences=texts)
    assert target._graphs is not None
    inputs = target._graphs._inputs
    plan = plan_of(model, texts)
    assert plan.inputs == inputs._there.nbytes + inputs._tables.nbytes
    assert plan.cache == sum(target.caches) == sum(part.nbytes for layer in target._cells.layers for part in layer)
    assert plan.weights == model.bytes_in(model.places.last)


@pytest.mark.parametrize(("rows", "texts"), [(1, 1), (8, 2), (24, 8), (64, 1), (64, 8)])
def test_a_pass_computes_in_what_was_planned(model: TorchLlama, rows: int, texts: int) -> None:
    target = TorchTarget(model, FakeVocab(N), n_ctx=ROOM, sequences=8)
    assert target._graphs is not None
    feed = target._graphs._inputs.feed(rows, texts, model.ops)
    with Living() as living, torch.inference_mode():
        given = model.read(feed.tokens, (), feed)
    planned = pass_bytes(model.shape, Filled(8, Card.of(torch.device("cpu"))), rows, texts, 4)
    assert given.hidden.nbytes == rows * model.shape.width * 4
    assert living.peak == pytest.approx(planned, rel=0.05)


def test_what_graphs_give_is_as_planned(model: TorchLlama) -> None:
    """Of all sizes, with layers for a head and without."""
    given: list[Read] = []

    def capture(run: Callable[[], Read]) -> Callable[[], Read]:
        given.append(run())
        return lambda: given[-1]

    target = TorchTarget(model, FakeVocab(N), n_ctx=ROOM, sequences=3)
    target._graphs = Graphs(model, target._cells, 3, capture=capture)
    seqs = [target.open() for _ in range(3)]
    for rows in BUCKETS:
        for texts in (1, 2, 3):
            for layers in ((), (0, 1, 2, NORMED)):
                works = [Work(seq, TokenTree.root(1), features=layers) for seq in seqs[:texts]]
                works[0] = Work(seqs[0], TokenTree.chain([1] * max(rows - texts + 1, 1)), features=layers)
                target.forward(works)
    sizes = {(one.hidden.shape[1], len(one.layers)) for one in given}
    assert sizes == {(rows, layers) for rows in BUCKETS for layers in (0, 3)}
    held = sum(part.nbytes for one in given for part in (one.hidden, *one.layers.values()))
    filled = Filled(3, Card.of(torch.device("cpu")))
    largest = max(pass_bytes(model.shape, filled, rows, n, 4) for rows in BUCKETS for n in texts_of_passes(3))
    # It is planned for one row of two and of three texts, too.
    never = 2 * 5 * model.shape.width * 4
    assert graph_bytes(model.shape, filled, 4) == held + never + largest + WORKSPACES


def test_scores_of_a_tree_are_planned(model: TorchLlama) -> None:
    """Where nothing else of a pass is as large: as they are computed, and in floats for the host."""
    shape = Shape.like(model.shape, n_vocab=200_000, build=model.shape.build)
    scores = torch.empty(64, shape.n_vocab, dtype=torch.bfloat16)
    plan = memory_plan(shape, 0, n_ctx=ROOM, rows=64, outputs=64, each=2)
    assert plan.passes == scores.nbytes + scores.float().nbytes
