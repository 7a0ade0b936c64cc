"""Passes that are filled up to a bucket, and read from memory that stays where it is, are what other passes are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="needs the extra 'torch'")

import torch

from localspec.backends.base import NORMED, Work
from localspec.backends.torch.graphs import BUCKETS, Graphs
from localspec.backends.torch.inputs import bits
from localspec.backends.torch.kernels.tree_attention import packed
from localspec.backends.torch.llama import Read, TorchLlama
from localspec.backends.torch.sizes import Build
from localspec.backends.torch.target import TorchTarget
from localspec.errors import OutOfMemory
from localspec.spec.tree import TokenTree
from tests.torch.test_cells import MODELS, close, model_of, read, target_of, text, trees

#: In the last one a tree may be deeper than what a layer sees.
ALL = {
    **MODELS,
    "narrow": model_of(Build(halves=True, window=3, windowed=frozenset({0, 2}), window_base=500.0)),
}
few = settings(max_examples=12, deadline=None)


def filled_of(model: TorchLlama, **limits: Any) -> TorchTarget:
    """Cells that nobody wrote hold no numbers."""
    target = target_of(model, buckets=True, **limits)
    for layer in target._cells.layers:
        for part in layer:
            part.fill_(torch.nan)
    return target


def check_alike(ours: Any, theirs: Any, nodes: range) -> None:
    assert close(*(np.array([rows.logits(node) for node in nodes]) for rows in (ours, theirs)))
    assert ours.features.keys() == theirs.features.keys()
    assert all(close(ours.features[layer], theirs.features[layer]) for layer in theirs.features)


@few
@given(tree=trees(), n=st.integers(0, 200), name=st.sampled_from(sorted(ALL)), done=st.floats(0, 1))
def test_a_filled_pass_is_one_without(tree: TokenTree, n: int, name: str, done: float) -> None:
    """Of prompts in pieces, of a tree at once, of the next one behind what was kept of it, in two passes."""
    filled, plain = filled_of(ALL[name]), target_of(ALL[name])
    seqs = [target.open() for target in (filled, plain)]
    first = int(done * (len(tree) - 1))
    path = tree.path(len(tree) - 1)
    for target, seq in zip((filled, plain), seqs, strict=True):
        read(target, seq, text(n, 1), chunk=50)
    works = [Work(seq, tree, features=(1, NORMED)) for seq in seqs]
    (ours,), (theirs,) = filled.forward(works[:1]), plain.forward(works[1:])
    check_alike(ours, theirs, range(len(tree)))
    for target, seq in zip((filled, plain), seqs, strict=True):
        target.commit(seq, path)
        if first:
            target.forward([Work(seq, tree.keep(range(first)), rows_from=first)])
    works = [Work(seq, tree, done=first, rows_from=len(tree) - 1) for seq in seqs]
    (ours,), (theirs,) = filled.forward(works[:1]), plain.forward(works[1:])
    check_alike(ours, theirs, range(len(tree) - 1, len(tree)))


@few
@given(seed=st.integers(0, 2**20), name=st.sampled_from(sorted(ALL)))
def test_texts_come_and_go(seed: int, name: str) -> None:
    """Any of them share a pass, in any order, so tables on the device are now those of other texts."""
    rng = np.random.default_rng(seed)
    targets = filled_of(ALL[name], sequences=5), target_of(ALL[name], sequences=5)
    seqs: list[int] = []
    for _ in range(8):
        if len(seqs) < 5 and (not seqs or rng.random() < 0.6):
            shared = int(rng.choice(seqs)) if seqs and rng.random() < 0.5 else 0
            length = int(rng.integers(targets[0].n_past(shared) + 1)) if shared else 0
            (seq, _) = (target.fork(shared, length) if shared else target.open() for target in targets)
            seqs.append(seq)
        chosen = [int(seq) for seq in rng.permutation(seqs)[: int(rng.integers(1, len(seqs) + 1))]]
        works = [Work(seq, _bush(rng)) for seq in chosen]
        for ours, theirs, work in zip(*(target.forward(works) for target in targets), works, strict=True):
            check_alike(ours, theirs, range(len(work.tree)))
        for work in works:
            path = work.tree.path(int(rng.integers(len(work.tree))))
            for target in targets:
                target.commit(work.seq, path)
        if rng.random() < 0.3:
            seq = int(rng.choice(seqs))
            n = int(rng.integers(targets[0].n_past(seq) + 1))
            for target in targets:
                target.truncate(seq, n)
        if len(seqs) > 1 and rng.random() < 0.2:
            gone = seqs.pop(int(rng.integers(len(seqs))))
            for target in targets:
                target.close(gone)


def _bush(rng: np.random.Generator) -> TokenTree:
    n = int(rng.integers(1, 13))
    parents = [-1, *(int(rng.integers(node)) for node in range(1, n))]
    return TokenTree.grown(range(n), parents, [1.0] * n, [""] * n)


def test_rows_that_fill_write_nothing() -> None:
    target = filled_of(MODELS["whole"], n_ctx=60)
    seq = target.open()
    read(target, seq, text(9, 3))
    target.forward([Work(seq, TokenTree.chain([5, 6]))])
    used = target._seqs[seq].table
    assert len(used) == 11
    for layer in target._cells.layers:
        for part in layer:
            written = ~part.isnan().all(dim=2).all(dim=0)
            assert written.nonzero()[:, 0].tolist() == sorted(used.tolist())


def test_every_size_is_captured_once_and_found_again() -> None:
    """What a graph reads and gives lies where it lay when it was captured."""
    target = filled_of(MODELS["windows"])
    captured: list[tuple[int, ...]] = []

    def capture(run: Callable[[], Read]) -> Callable[[], Read]:
        kept = run()
        captured.append((kept.hidden.shape[1], *sorted(kept.layers)))

        def replay() -> Read:
            given = run()
            kept.hidden.copy_(given.hidden)
            for layer, states in given.layers.items():
                kept.layers[layer].copy_(states)
            return kept

        return replay

    target._graphs = Graphs(target.model, target._cells, 8, capture=capture)
    plain = target_of(MODELS["windows"])
    ours, theirs = target.open(), plain.open()
    for n, layers in ((1, ()), (2, ()), (8, ()), (9, ()), (64, ()), (1, ()), (2, (1,)), (3, (1,))):
        works = [Work(seq, TokenTree.chain(text(n, n)), features=layers) for seq in (ours, theirs)]
        check_alike(target.forward(works[:1])[0], plain.forward(works[1:])[0], range(n))
        for one, seq in ((target, ours), (plain, theirs)):
            one.commit(seq, range(n))
    assert captured == [(1,), (8,), (16,), (64,), (8, 1)]
    assert BUCKETS == (1, 8, 16, 24, 32, 48, 64)


def test_what_cannot_be_captured_is_computed_and_told() -> None:
    target, tries = filled_of(MODELS["whole"]), []

    def capture(run: Callable[[], Read]) -> Callable[[], Read]:
        tries.append(run)
        raise RuntimeError("operation not permitted when stream is capturing\nand so on")

    target._graphs = Graphs(target.model, target._cells, 8, capture=capture)
    plain = target_of(MODELS["whole"])
    for n in (3, 20):
        works = [Work(one.open(), TokenTree.chain(text(n, n))) for one in (target, plain)]
        check_alike(target.forward(works[:1])[0], plain.forward(works[1:])[0], range(n))
    assert target.note == "no CUDA graphs: operation not permitted when stream is capturing"
    assert len(tries) == 1


def test_no_memory_for_a_graph_is_no_memory() -> None:
    target = filled_of(MODELS["whole"])

    def capture(run: Callable[[], Read]) -> Callable[[], Read]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    target._graphs = Graphs(target.model, target._cells, 8, capture=capture)
    with pytest.raises(OutOfMemory):
        target.forward([Work(target.open(), TokenTree.root(1))])


def test_long_passes_are_not_filled() -> None:
    target = filled_of(MODELS["whole"])
    seen: list[Callable[[], Read]] = []

    def capture(run: Callable[[], Read]) -> Callable[[], Read]:
        seen.append(run)
        return run

    target._graphs = Graphs(target.model, target._cells, 8, capture=capture)
    seq = target.open()
    read(target, seq, text(130, 1), chunk=65)
    assert not seen
    read(target, seq, text(64, 1), chunk=64)
    assert len(seen) == 1


def test_masks_are_those_of_the_kernels() -> None:
    sees = np.random.default_rng(1).random((5, 64)) < 0.5
    assert bits(sees).tolist() == packed(torch.from_numpy(sees)).tolist()
    assert bits(sees[:, :3]).tolist() == packed(torch.from_numpy(sees[:, :3])).tolist()
