"""Texts and trees over one pool of cells: a pass over a tree is what passes over its chains are, and what was committed
is as if it had been read at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("torch", reason="needs the extra 'torch'")

import torch

from localspec.backends.base import NORMED, Work
from localspec.backends.fake import FakeVocab
from localspec.backends.torch.llama import TorchLlama
from localspec.backends.torch.sizes import Build, Shape
from localspec.backends.torch.target import TorchTarget
from localspec.errors import Cancelled, DecodeError, EngineError, OutOfMemory
from localspec.spec.tree import TokenTree

N, LONGEST = 40, 700
SIZES: dict[str, Any] = {
    "width": 32,
    "heads": 4,
    "kv_heads": 2,
    "each": 8,
    "inner": 48,
    "eps": 1e-5,
    "rope_base": 10000.0,
}
#: All layers see all, or some only what is near.
BUILDS = {
    "whole": Build(),
    "windows": Build(halves=True, window=24, windowed=frozenset({0, 2}), window_base=500.0),
}
few = settings(max_examples=12, deadline=None)


def model_of(build: Build) -> TorchLlama:
    shape = Shape(layers=3, n_vocab=N, build=build, **SIZES)
    chance = torch.Generator().manual_seed(3)

    def matrix(gives: int, takes: int) -> torch.Tensor:
        return torch.randn(gives, takes, generator=chance) / takes**0.5

    weights = {"token_embd.weight": matrix(N, 32) * 6, "output_norm.weight": torch.ones(32)}
    for layer in range(3):
        block = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32)}
        block |= {"ffn_gate": (48, 32), "ffn_up": (48, 32), "ffn_down": (32, 48)}
        weights |= {f"blk.{layer}.{name}.weight": matrix(*size) for name, size in block.items()}
        weights |= {f"blk.{layer}.{name}.weight": torch.ones(32) for name in ("attn_norm", "ffn_norm")}
    return TorchLlama(shape, weights)


MODELS = {name: model_of(build) for name, build in BUILDS.items()}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> TorchLlama:
    return MODELS[request.param]


def target_of(model: TorchLlama, n_ctx: int = 4000, **limits: Any) -> TorchTarget:
    return TorchTarget(model, FakeVocab(N), n_ctx=n_ctx, **{"sequences": 8, **limits})


def read(target: TorchTarget, seq: int, tokens: Sequence[int], chunk: int = 256) -> None:
    for start in range(0, len(tokens), chunk):
        piece = tokens[start : start + chunk]
        target.forward([Work.prompt(seq, piece)])
        target.commit(seq, range(len(piece)))


def text(n: int, seed: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, N, n)]


@st.composite
def trees(draw: st.DrawFn, largest: int = 63) -> TokenTree:
    tokens, parents = [draw(st.integers(0, N - 1))], [-1]
    rng = np.random.default_rng(draw(st.integers(0, 2**20)))
    reach = draw(st.sampled_from([1, 3, 64]))  # chains, bushes with deep branches, bushes
    for _ in range(draw(st.integers(0, largest))):
        parent = int(rng.integers(max(len(tokens) - reach, 0), len(tokens)))
        edge = parent, int(rng.integers(N))
        if edge not in zip(parents, tokens, strict=True):
            parents.append(parent)
            tokens.append(edge[1])
    return TokenTree.grown(tokens, parents, [1.0] * len(tokens), [""] * len(tokens))


def close(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> bool:
    return bool(np.linalg.norm(ours - theirs) <= 1e-5 * np.linalg.norm(theirs))


def check_users(target: TorchTarget) -> None:
    """Each cell has as many users as there are texts with it, and each text has a cell once."""
    users = np.zeros(target.caps.n_ctx, int)
    for one in target._seqs.values():
        assert len(set(one.table.tolist())) == len(one.table)
        users[one.table] += 1
    assert (target._cells._users == users).all()


@few
@given(tree=trees(), n=st.integers(0, LONGEST), name=st.sampled_from(sorted(MODELS)), done=st.floats(0, 1))
def test_a_tree_is_its_chains(tree: TokenTree, n: int, name: str, done: float) -> None:
    """At once, and grown in two passes; states of layers, too."""
    target, before = target_of(MODELS[name]), text(n, 1)
    seq = target.open()
    read(target, seq, before)
    (rows,) = target.forward([Work(seq, tree, features=(1, NORMED))])
    found = np.array([rows.logits(node) for node in range(len(tree))])
    states = {layer: rows.features[layer].copy() for layer in (1, NORMED)}
    for leaf in tree.leaves:
        path = tree.path(leaf)
        branch = target.fork(seq, n)
        (chain,) = target.forward([Work(branch, TokenTree.chain([tree.tokens[i] for i in path]), features=(1, NORMED))])
        assert close(found[list(path)], np.array([chain.logits(i) for i in range(len(path))]))
        assert all(close(states[layer][list(path)], chain.features[layer]) for layer in states)
        target.close(branch)
    first = int(done * len(tree))
    if 0 < first < len(tree):
        target.forward([Work(seq, tree.keep(range(first)), rows_from=first)])
        (rest,) = target.forward([Work(seq, tree, done=first, rows_from=first)])
        assert close(np.array([rest.logits(node) for node in range(first, len(tree))]), found[first:])
    check_users(target)


@few
@given(
    trees=st.lists(st.tuples(trees(20), st.integers(0, 2**20)), min_size=1, max_size=6),
    n=st.integers(0, LONGEST),
    name=st.sampled_from(sorted(MODELS)),
)
def test_what_is_committed_is_as_if_it_had_been_read(trees: list[tuple[TokenTree, int]], n: int, name: str) -> None:
    """Over steps with any path kept, a fork that goes its own way, and a step back."""
    target, kept = target_of(MODELS[name]), text(n, 2)
    seq = target.open()
    read(target, seq, kept)
    for tree, chance in trees:
        rng = np.random.default_rng(chance)
        target.forward([Work(seq, tree)])
        path = tree.path(int(rng.integers(len(tree))))[: int(rng.integers(1, 8))]
        target.commit(seq, path)
        kept += [tree.tokens[node] for node in path]
        if rng.random() < 0.5:
            other = target.fork(seq, int(rng.integers(len(kept) + 1)))
            read(target, other, text(5, chance))
            target.close(other)
        if rng.random() < 0.3:
            kept = kept[: target.truncate(seq, int(rng.integers(len(kept) + 1)))]
        check_users(target)
    assert target.n_past(seq) == len(kept)
    fresh = target.open()
    read(target, fresh, kept)
    ours, theirs = (target.forward([Work(one, TokenTree.chain([7, 8]))])[0] for one in (seq, fresh))
    assert close(ours.logits(0), theirs.logits(0))
    assert close(ours.logits(1), theirs.logits(1))
    for layer in target._cells.layers:
        for part in layer:
            mine, fresh_rows = (part[:, target._seqs[one].table[: len(kept)]].numpy() for one in (seq, fresh))
            assert close(mine, fresh_rows)


def test_several_texts_share_a_pass(model: TorchLlama) -> None:
    target, alone = target_of(model), target_of(model)
    tree = TokenTree.grown((5, 6, 7, 8), (-1, 0, 0, 2), (1.0,) * 4, ("",) * 4)
    works, wanted = [], []
    for n, some in ((0, tree), (90, TokenTree.root(3)), (33, tree)):
        seq, other = target.open(), alone.open()
        read(target, seq, text(n, n))
        read(alone, other, text(n, n))
        works.append(Work(seq, some, rows_from=len(some) - 1))
        wanted.append(alone.forward([Work(other, some)])[0].logits(len(some) - 1))
    found = target.forward(works)
    for work, rows, row in zip(works, found, wanted, strict=True):
        assert close(rows.logits(len(work.tree) - 1), row)
        with pytest.raises(KeyError):
            rows.logits(len(work.tree) - 2)


def test_forks_share_cells_and_nothing_is_copied(model: TorchLlama) -> None:
    target = target_of(model, n_ctx=100)
    seq = target.open()
    read(target, seq, text(90, 4))
    forks = [target.fork(seq, 80) for _ in range(5)]
    assert target._cells.free == 10
    target.close(seq)
    assert target._cells.free == 20
    for fork in forks[1:]:
        target.close(fork)
    read(target, forks[0], text(20, 5))
    with pytest.raises(OutOfMemory, match="100 cells is full"):
        target.forward([Work(forks[0], TokenTree.root(1))])
    assert target.truncate(forks[0], 0) == 0
    assert target._cells.free == 100


def test_rows_that_lie_one_behind_the_other_are_not_copied(model: TorchLlama) -> None:
    """A chain that was kept whole leaves the table in order; a branch does not."""
    target = target_of(model)
    seq = target.open()
    read(target, seq, text(20, 6))
    tree = TokenTree.grown((5, 6, 7), (-1, 0, 0), (1.0,) * 3, ("",) * 3)
    target.forward([Work(seq, tree)])
    target.commit(seq, (0, 1))
    assert (np.diff(target._seqs[seq].table) == 1).all()
    target.forward([Work(seq, tree)])
    target.commit(seq, (0, 2))
    assert not (np.diff(target._seqs[seq].table) == 1).all()


def test_a_pass_that_fails_leaves_what_was_committed(model: TorchLlama) -> None:
    target = target_of(model, max_rows=40, sequences=2)
    seq = target.open()
    read(target, seq, text(30, 7), chunk=40)
    before = target.forward([Work(seq, TokenTree.root(3))])[0].logits(0).copy()
    with pytest.raises(DecodeError, match="more than 40 rows"):
        target.forward([Work.prompt(seq, text(41, 8))])
    asked = 0

    class Counting(threading.Event):
        def is_set(self) -> bool:
            nonlocal asked
            asked += 1
            return asked > 2  # in the second layer

    target._stop = Counting()
    with pytest.raises(Cancelled):
        target.forward([Work(seq, TokenTree.chain([5, 6]))])
    target._stop = threading.Event()
    check_users(target)
    assert target.n_past(seq) == 30
    assert (target.forward([Work(seq, TokenTree.root(3))])[0].logits(0) == before).all()
    target.open()
    with pytest.raises(EngineError, match="2 sequences are open"):
        target.open()
