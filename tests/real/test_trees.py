"""Token trees in llama.cpp's cache: siblings are invisible, and what is committed is what a fresh prompt would be."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from localspec.backends.base import Work
from localspec.backends.llamacpp import LlamaTarget
from localspec.errors import Cancelled, OutOfMemory
from localspec.spec.tree import TokenTree
from tests.real.support import check_cells, fresh_row, opened, read, step

#: Rounding of F32 weights and caches; absurd siblings that were seen would move logits by several units.
ROUNDING = 5e-4


@pytest.fixture(scope="module")
def target(beginning_f32: Path) -> Iterator[LlamaTarget]:
    with opened(beginning_f32, sequences=3, branches=29, outputs=48) as target:
        yield target


@pytest.fixture(scope="module")
def text(target: LlamaTarget) -> list[int]:
    return target.vocab.tokenize(
        "The capital of France is Paris, and the capital of Italy is Rome. The capital of Spain"
    )


@pytest.fixture
def seq(target: LlamaTarget, text: list[int]) -> Iterator[int]:
    seq = target.open()
    read(target, seq, text[:-1])
    yield seq
    target.close(seq)


def absurd_tree(target: LlamaTarget, pending: int, *, true_child: int = 0) -> TokenTree:
    """Width 3, depth 3: 39 guesses, one path of which makes sense."""
    sensible = target.vocab.tokenize(" is Madrid.")
    absurd = sorted(set(target.vocab.tokenize(" 😀 zygote SELECT !!! quaternion мир {}; 999 banana")) - set(sensible))
    tokens, parents, scores = [pending], [-1], [1.0]
    level = [0]
    for depth in range(3):
        deeper = []
        for rank, node in enumerate(level):
            for child in range(3):
                makes_sense = child == true_child and all(
                    tokens[on] == sensible[i] for i, on in enumerate(_path(parents, node))
                )
                deeper.append(len(tokens))
                tokens.append(sensible[depth] if makes_sense else absurd[(3 * rank + 7 * depth + child) % len(absurd)])
                parents.append(node)
                # The absurd come first where the true child is not the likeliest: it then lies in pieces.
                scores.append((0.5, 0.3, 0.2)[child])
        level = deeper
    return TokenTree(tuple(tokens), tuple(parents), tuple(scores), ("",) * len(tokens))


def _path(parents: list[int], node: int) -> list[int]:
    path = []
    while node > 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


@pytest.mark.parametrize("true_child", [0, 2])
def test_every_branch_is_scored_as_a_chain(target: LlamaTarget, text: list[int], seq: int, true_child: int) -> None:
    tree = absurd_tree(target, text[-1], true_child=true_child)
    rows = target.forward([Work(seq, tree)])[0]
    rows_of = {node: rows.logits(node).copy() for node in range(len(tree))}
    target.commit(seq, ())
    for leaf in tree.leaves[:: len(tree.leaves) // 9]:
        path = tree.path(leaf)
        chain = target.forward([Work(seq, TokenTree.chain([tree.tokens[node] for node in path]))])[0]
        apart = max(np.abs(chain.logits(i) - rows_of[node]).max() for i, node in enumerate(path))
        target.commit(seq, ())
        assert apart < ROUNDING
    # Siblings that matter: from one leaf to the next, logits differ by far more than that.
    assert np.abs(rows_of[tree.leaves[0]] - rows_of[tree.leaves[-1]]).max() > 1


@pytest.mark.parametrize("every", [1, 3], ids=["tiny", "smol"])
def test_what_is_committed_is_what_a_fresh_prompt_holds(
    target: LlamaTarget, text: list[int], random_draft: Path, every: int
) -> None:
    if every == 3:
        commit_paths(target, text, every)
        return
    with opened(random_draft, sequences=2, branches=30, outputs=48) as tiny:
        commit_paths(tiny, text, every)


def commit_paths(target: LlamaTarget, text: list[int], every: int) -> None:
    """Commits the way to one node of a tree after the other, and compares what follows with a fresh prompt."""
    base, probe = len(text) - 1, text[0]
    tree = absurd_tree(target, text[-1])
    seq = target.open()
    read(target, seq, text[:-1])
    prompt = target.cells(seq)
    read(target, seq, [probe])
    per_cell = target.cells(seq) - prompt
    target.truncate(seq, base)
    for path in [(), *(tree.path(node) for node in range(0, len(tree), every))]:
        target.forward([Work(seq, tree)])
        target.commit(seq, path)
        check_cells(target)
        assert target.n_past(seq) == base + len(path)
        assert target.cells(seq) - prompt == per_cell * len(path)
        ours = step(target, seq, probe)
        theirs = fresh_row(target, [*text[:-1], *(tree.tokens[node] for node in path), probe])
        assert np.abs(ours - theirs).max() < ROUNDING
        assert target.truncate(seq, base) == base
        check_cells(target)
    target.close(seq)


def test_a_tree_that_is_stopped_half_way_leaves_nothing(target: LlamaTarget, text: list[int], seq: int) -> None:
    base, tree = len(text) - 1, absurd_tree(target, text[-1])
    expected = fresh_row(target, text)
    cells = target.cells(seq)
    started = time.perf_counter()
    target.forward([Work(seq, tree)])
    length = time.perf_counter() - started
    target.commit(seq, ())
    stopped = 0
    for share in (0.02, 0.1, 0.3, 0.5, 0.7):
        timer = threading.Timer(share * length, target.interrupt, [True])
        timer.start()
        try:
            target.forward([Work(seq, tree)])
            target.commit(seq, ())
        except Cancelled:
            stopped += 1
        timer.join()
        target.interrupt(False)
        assert target.n_past(seq) == base
        assert target.cells(seq) == cells
        check_cells(target)
        assert np.abs(step(target, seq, text[-1]) - expected).max() < ROUNDING
        target.truncate(seq, base)
    assert stopped >= 2


def test_a_full_cache_after_stopped_trees_has_every_cell(random_draft: Path) -> None:
    with opened(random_draft, n_ctx=256, branches=29, outputs=48) as target:
        seq = target.open()
        read(target, seq, [5] * 40)
        tree = absurd_tree(target, 5)
        for _ in range(30):
            target.interrupt(True)
            with pytest.raises(Cancelled):
                target.forward([Work(seq, tree)])
            target.interrupt(False)
            target.forward([Work(seq, tree)])
            target.commit(seq, ())
        read(target, seq, [5] * (256 - 40))
        assert target.n_past(seq) == 256
        with pytest.raises(OutOfMemory, match="256 cells"):
            step(target, seq, 5)
        assert target.n_past(seq) == 256


def test_a_tree_without_room_leaves_the_cache_as_it_was(random_draft: Path) -> None:
    with opened(random_draft, n_ctx=256, branches=29, outputs=48) as target:
        seq = target.open()
        text = list(range(300, 300 + 255))
        read(target, seq, text[:244])
        expected = fresh_row_elsewhere(random_draft, text)
        with pytest.raises(OutOfMemory):
            target.forward([Work(seq, absurd_tree(target, text[244]))])
        assert target.n_past(seq) == 244
        check_cells(target)
        # Exactly as many rows as there are cells fit.
        rows = target.forward([Work(seq, TokenTree.chain(text[244:]))])[0]
        assert np.abs(rows.logits(10) - expected).max() < ROUNDING


def fresh_row_elsewhere(path: Path, tokens: list[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    with opened(path) as target:
        return fresh_row(target, tokens)


def test_a_branching_of_every_sequence_at_once(target: LlamaTarget, text: list[int]) -> None:
    texts = [text, text[4:], text[8:]]
    alone = [fresh_row(target, one) for one in texts]
    seqs = [target.open() for _ in texts]
    for seq, one in zip(seqs, texts, strict=True):
        read(target, seq, one[:-1])
    small = TokenTree((0, 900, 901, 902, 903), (-1, 0, 0, 1, 2), (1.0, 0.5, 0.3, 0.9, 0.8), ("",) * 5)
    trees = [TokenTree((one[-1], *small.tokens[1:]), small.parents, small.scores, small.sources) for one in texts]
    rows = target.forward([Work(seq, tree) for seq, tree in zip(seqs, trees, strict=True)])
    for mine, row in zip(rows, alone, strict=True):
        assert np.abs(mine.logits(0) - row).max() < ROUNDING
    for seq, path in zip(seqs, ((0, 2, 4), (0, 1), ()), strict=True):
        target.commit(seq, path)
    check_cells(target)
    kept = [[*texts[0], 901, 903], [*texts[1], 900], texts[2][:-1]]
    together = target.forward([Work(seq, TokenTree.root(77)) for seq in seqs])
    ours = [mine.logits(0).copy() for mine in together]
    for seq in seqs:
        target.commit(seq, ())
        target.close(seq)
    for row, tokens in zip(ours, kept, strict=True):
        assert np.abs(row - fresh_row(target, [*tokens, 77])).max() < ROUNDING


def wasteful(target: LlamaTarget, tokens: list[int]) -> TokenTree:
    """The three ``tokens`` behind a likelier branch that is wrong: the path that is kept lies in pieces."""
    wrong = [token for token in (100, 200, 300) if token not in tokens][:2]
    return TokenTree(
        (tokens[0], *wrong, *tokens[1:]), (-1, 0, 1, 0, 3), (1.0, 0.9, 0.9, 0.1, 0.9), ("",) + ("wrong",) * 4
    )


def test_a_tree_changes_nothing_even_on_a_quantised_model(smol: Path, text: list[int]) -> None:
    """With flash attention the rows of a tree equal those of plain decoding to the bit, whichever branch is kept."""
    with opened(smol, flash_attn="on", cache_type_k="f16", cache_type_v="f16") as target:
        seq = target.open()
        read(target, seq, text[:-1])
        tokens, rows = [text[-1]], []
        for _ in range(30):
            rows.append(step(target, seq, tokens[-1]))
            tokens.append(int(rows[-1].argmax()))
        target.close(seq)
        seq = target.open()
        read(target, seq, text[:-1])
        for at in range(0, 27, 3):
            got = target.forward([Work(seq, wasteful(target, tokens[at : at + 3]))])[0]
            for node, plain in zip((0, 3, 4), rows[at:], strict=False):
                assert np.array_equal(got.logits(node), plain)
            target.commit(seq, (0, 3, 4))


def test_wasted_cells_are_had_back_before_the_context_is_full(random_draft: Path, text: list[int]) -> None:
    with opened(random_draft, n_ctx=256, flash_attn="on", cache_type_k="f16", cache_type_v="f16") as target:
        seq = target.open()
        read(target, seq, text[:20])
        while target.n_past(seq) <= 256 - 5:
            target.forward([Work(seq, wasteful(target, [5, 6, 7]))])
            target.commit(seq, (0, 3, 4))
        while target.n_past(seq) < 256:
            step(target, seq, 5)
        with pytest.raises(OutOfMemory):
            step(target, seq, 5)
        check_cells(target)


def test_conversation_after_conversation_stays_exact(beginning: Path, text: list[int]) -> None:
    """What earlier texts wasted is had back when they are cut: else the cache fills up, and trees are no longer laid as
    plain decoding lays its tokens."""
    with opened(beginning, n_ctx=256, flash_attn="on", cache_type_k="f16", cache_type_v="f16") as target:
        seq = target.open()
        read(target, seq, text[:-1])
        tokens, rows = [text[-1]], []
        for _ in range(30):
            rows.append(step(target, seq, tokens[-1]))
            tokens.append(int(rows[-1].argmax()))
        for _ in range(12):
            assert target.truncate(seq, len(text) - 1) == len(text) - 1
            for at in range(0, 27, 3):
                got = target.forward([Work(seq, wasteful(target, tokens[at : at + 3]))])[0]
                for node, plain in zip((0, 3, 4), rows[at:], strict=False):
                    assert np.array_equal(got.logits(node), plain)
                target.commit(seq, (0, 3, 4))
