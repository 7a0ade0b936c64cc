"""Quantised weights round: one row more in a pass moves logits. A verify pass may move them no more than plain
decoding does when its cells lie elsewhere and its rows come in other groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.base import Work
from localspec.backends.llamacpp import LlamaTarget
from localspec.spec.tree import TokenTree
from tests.real.support import opened, read, step

Rows = NDArray[np.float32]
TEXT = (
    "The lighthouse keeper wrote in his log every evening. On Monday he wrote that the sea was calm; on Tuesday, that"
    " a ship had passed far out; on Wednesday he wrote nothing, because the oil had run out and he had to row to the"
    " mainland. The people of the village asked him what he saw from his tower, and he answered that he saw them, and"
    " that from above they looked like ants who had lost their queen."
)
START = 12


@pytest.fixture(params=["smol", "gemma"])
def target(request: pytest.FixtureRequest, beginning: Path, gemma_beginning: Path) -> Iterator[LlamaTarget]:
    path = {"smol": beginning, "gemma": gemma_beginning}[request.param]
    with opened(path, sequences=2, cache_type_k="f16", cache_type_v="f16") as target:
        yield target


def plainly(target: LlamaTarget, tokens: Sequence[int]) -> Rows:
    """One row a pass."""
    seq = target.open()
    read(target, seq, tokens[:START])
    rows = [step(target, seq, token) for token in tokens[START:]]
    target.close(seq)
    return np.array(rows)


def moved(target: LlamaTarget, tokens: Sequence[int]) -> Rows:
    """The same text in groups of 2 to 5 rows, every other cell held by another text."""
    seq, other = target.open(), target.open()
    read(target, seq, tokens[:START])
    rows: list[NDArray[np.float32]] = []
    at, size = START, 2
    while at < len(tokens):
        read(target, other, tokens[at : at + 1])
        piece = tokens[at : at + size]
        mine = target.forward([Work(seq, TokenTree.chain(piece))])[0]
        rows += [mine.logits(i).copy() for i in range(len(piece))]
        target.commit(seq, range(len(piece)))
        at, size = at + len(piece), size % 4 + 2
    target.close(seq)
    target.close(other)
    return np.array(rows)


def verified(target: LlamaTarget, tokens: Sequence[int]) -> Rows:
    """The same text as the kept path of trees with a wrong guess beside each right one, likelier every other time."""
    seq = target.open()
    read(target, seq, tokens[:START])
    rows: list[NDArray[np.float32]] = []
    at = START
    while at < len(tokens):
        piece = tokens[at : at + 4]
        true_first = (at // 4) % 2 == 0
        nodes, parents, scores, path = [piece[0]], [-1], [1.0], [0]
        for token in piece[1:]:
            parent = path[-1]
            path.append(len(nodes))
            nodes += [token, token + 1]
            parents += [parent, parent]
            scores += [0.6, 0.3] if true_first else [0.3, 0.6]
        tree = TokenTree(tuple(nodes), tuple(parents), tuple(scores), ("",) * len(nodes))
        mine = target.forward([Work(seq, tree)])[0]
        rows += [mine.logits(node).copy() for node in path]
        target.commit(seq, path)
        at += len(piece)
    target.close(seq)
    return np.array(rows)


@pytest.mark.timeout(300)
def test_a_verify_pass_rounds_no_more_than_moved_cells(target: LlamaTarget) -> None:
    tokens = target.vocab.tokenize(TEXT)
    plain, control, ours = plainly(target, tokens), moved(target, tokens), verified(target, tokens)
    moves = [float(np.abs(rows - plain).max(axis=1).mean()) for rows in (control, ours)]
    flips = [int((rows.argmax(axis=1) != plain.argmax(axis=1)).sum()) for rows in (control, ours)]
    print(f"{len(plain)} positions: logits move by {moves[0]:.3f}, in trees by {moves[1]:.3f}; flips {flips}")
    # A fault moves them by more than any rounding does; the mean over a hundred positions is steady.
    assert moves[1] <= 1.5 * moves[0] + 0.1
    # Flips are few: three standard deviations of such a count.
    assert flips[1] <= flips[0] + 3 * np.sqrt(flips[0] + 1)
