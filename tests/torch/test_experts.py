"""Experts in a fixed shape give what those give that are looked up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")

import torch
from torch import Tensor

from localspec.backends.base import NORMED, Work
from localspec.backends.fake import FakeVocab
from localspec.backends.torch.graphs import Graphs
from localspec.backends.torch.kernels.dispatch import PLAIN, Ops
from localspec.backends.torch.kernels.experts import (
    MOST,
    Experts,
    gathered,
    is_gathered,
    through,
    through_all,
    through_asked,
)
from localspec.backends.torch.kernels.gated import gated_plainly
from localspec.backends.torch.llama import Read, TorchLlama
from localspec.backends.torch.target import TorchTarget
from localspec.spec.tree import TokenTree
from tests.support.gguf_decoders import TinyDecoder
from tests.torch.kernels.support import error
from tests.torch.support import TOKENIZER, N

WIDTH, INNER = 24, 20
#: As Triton's kernels are, whose passes are filled, and wait for nothing.
FIXED = replace(PLAIN, experts=through, waits=False)
MODELS = {
    "mixtral": TinyDecoder(n_vocab=N, experts=4, seed=3),
    "qwen3moe": TinyDecoder(n_vocab=N, architecture="qwen3moe", experts=9, seed=4),
}


def layer(rows: int, asked: int, experts: int) -> tuple[Tensor, Tensor, Tensor, Experts]:
    chance = torch.Generator().manual_seed(rows)

    def some(*size: int) -> Tensor:
        return torch.randn(size, generator=chance)

    chosen = torch.rand(rows, experts, generator=chance).topk(asked).indices
    share = torch.softmax(some(rows, asked), dim=-1)
    matrices = Experts(some(experts, INNER, WIDTH), some(experts, INNER, WIDTH), some(experts, WIDTH, INNER))
    return some(rows, WIDTH), chosen, share, matrices


@pytest.mark.parametrize(("rows", "asked", "experts"), [(1, 1, 2), (1, 2, 8), (5, 2, 4), (8, 3, 80), (64, 4, 16)])
@pytest.mark.parametrize("way", [gathered, through_all, through])
def test_each_way_gives_the_same(way: Callable[..., Tensor], rows: int, asked: int, experts: int) -> None:
    given = layer(rows, asked, experts)
    assert error(way(*given, gated_plainly), through_asked(*given, gated_plainly)) < 1e-5


@pytest.mark.parametrize("rows", [1, 8, MOST])
def test_few_rows_wait_for_nothing(rows: int) -> None:
    """Where no number can be read."""
    *rest, experts = layer(rows, 2, 9)
    read, chosen, share = (one.to("meta") for one in rest)
    matrices = Experts(*(one.to("meta") for one in (experts.gate, experts.up, experts.down)))
    assert through(read, chosen, share, matrices, gated_plainly).shape == (rows, WIDTH)
    with pytest.raises((NotImplementedError, RuntimeError)):
        through_asked(read, chosen, share, matrices, gated_plainly)


def test_the_cheaper_way_is_taken() -> None:
    assert is_gathered(1, 8, 128)
    assert not is_gathered(8, 8, 128)
    assert is_gathered(1, 2, 8)


def answers(path: Path, ops: Ops, graphs: list[int] | None = None) -> list[np.ndarray[Any, Any]]:
    """Behind a text, a tree of 1, 7 and 64 nodes, a prompt that is too long to be filled; states of layers, too."""
    model = TorchLlama.of_file(path, ops=ops)
    target = TorchTarget(model, FakeVocab(N), n_ctx=400, sequences=2)
    if graphs is not None:

        def capture(run: Callable[[], Read]) -> Callable[[], Read]:
            graphs.append(run().hidden.shape[1])
            return run

        target._graphs = Graphs(model, target._cells, 2, capture=capture)
    seq, found = target.open(), []
    target.forward([Work.prompt(seq, [token % N for token in range(90)])])
    target.commit(seq, range(90))
    for n in (1, 7, 64):
        parents = [-1, *(node // 2 for node in range(n - 1))]
        tree = TokenTree.grown([node % N for node in range(n)], parents, [1.0] * n, [""] * n)
        (rows,) = target.forward([Work(seq, tree, features=(1, NORMED))])
        found += [rows.logits(node) for node in range(n)] + [*rows.features[1], *rows.features[NORMED]]
        target.commit(seq, (0,))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_models_with_experts_are_filled(name: str, tmp_path: Path) -> None:
    path, captured = MODELS[name].write(tmp_path / "tiny.gguf", TOKENIZER), list[int]()
    ours, theirs = answers(path, FIXED, captured), answers(path, PLAIN)
    assert captured == [1, 8, 64]
    for one, other in zip(ours, theirs, strict=True):
        assert np.linalg.norm(one - other) <= 1e-5 * np.linalg.norm(other)
