"""The fake keeps the protocol, and notices who does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.backends.base import Target, Work
from localspec.backends.fake import END, FakeTarget, FakeVocab
from localspec.errors import Cancelled, DecodeError, EngineError, OutOfMemory
from localspec.spec.tree import TokenTree

FORK = TokenTree((3, 4, 5, 6), (-1, 0, 0, 1), (1.0,) * 4, ("",) * 4)


def read(target: FakeTarget, *tokens: int) -> int:
    seq = target.open()
    target.forward([Work.prompt(seq, tokens)])
    target.commit(seq, range(len(tokens)))
    return seq


def test_it_is_a_target() -> None:
    target: Target = FakeTarget()
    assert target.caps.n_vocab == target.vocab.n_tokens


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=2, max_size=12), st.data())
def test_rows_do_not_depend_on_how_a_text_is_read(text: list[int], data: st.DataObject) -> None:
    target = FakeTarget(FakeVocab(10))
    cut = data.draw(st.integers(1, len(text) - 1))
    seq = read(target, *text[:cut])
    (rows,) = target.forward([Work(seq, TokenTree.chain(text[cut:]))])
    for node in range(len(text) - cut):
        np.testing.assert_array_equal(rows.logits(node), target.scores(text[: cut + node + 1]))


def test_branches_see_their_own_path_only() -> None:
    target = FakeTarget()
    seq = read(target, 7, 8)
    (rows,) = target.forward([Work(seq, FORK)])
    for node, text in enumerate([[3], [3, 4], [3, 5], [3, 4, 6]]):
        np.testing.assert_array_equal(rows.logits(node), target.scores([7, 8, *text]))
    target.commit(seq, (0, 1, 3))
    assert target.tokens(seq) == [7, 8, 3, 4, 6]


def test_a_tree_grown_level_by_level_is_the_tree_at_once() -> None:
    target = FakeTarget()
    seq = read(target, 7)
    for done, n in ((0, 1), (1, 3), (3, 4)):
        (rows,) = target.forward([Work(seq, FORK.keep(range(n)), done=done)])
        for node in range(done, n):
            path = [FORK.tokens[i] for i in FORK.path(node)]
            np.testing.assert_array_equal(rows.logits(node), target.scores([7, *path]))
        if done:
            with pytest.raises(KeyError):
                rows.logits(done - 1)


def test_logits_that_were_not_asked_for() -> None:
    target = FakeTarget()
    seq = target.open()
    (rows,) = target.forward([Work(seq, TokenTree.chain([3, 4, 5]), rows_from=2)])
    rows.logits(2)
    with pytest.raises(KeyError):
        rows.logits(1)


def test_models_of_one_seed_are_equal_and_noise_moves_them() -> None:
    text = [3, 4]
    np.testing.assert_array_equal(FakeTarget(seed=1).scores(text), FakeTarget(seed=1).scores(text))
    assert (FakeTarget(seed=1).scores(text) != FakeTarget(seed=2).scores(text)).any()
    moved = FakeTarget(seed=1, noise=0.5).scores(text) - FakeTarget(seed=1).scores(text)
    assert 0.2 < moved.std() < 0.9


@pytest.mark.parametrize(
    ("work", "limits", "says"),
    [
        ([TokenTree.chain(range(9))], {"rows": 8}, "more rows"),
        ([TokenTree.chain(range(5))] * 2, {"rows": 8}, "more rows"),
        ([FORK], {"leaves": 1}, "more branches"),
        ([FORK], {"trees": False}, "chains only"),
    ],
)
def test_passes_that_do_not_fit(work: list[TokenTree], limits: dict[str, int], says: str) -> None:
    target = FakeTarget(**limits)  # type: ignore[arg-type]
    seqs = [target.open() for _ in work]
    with pytest.raises(DecodeError, match=says):
        target.forward([Work(seq, tree) for seq, tree in zip(seqs, work, strict=True)])
    assert [target.n_past(seq) for seq in seqs] == [0] * len(work)
    target.forward([Work(seqs[0], TokenTree.root(3))])


def test_cells_are_counted_over_all_sequences() -> None:
    target = FakeTarget(n_ctx=10)
    one = read(target, 2, 3, 4, 5)
    two = read(target, 2, 3)
    target.forward([Work(one, FORK)])
    with pytest.raises(OutOfMemory):
        target.forward([Work(two, TokenTree.root(3))])
    target.commit(one, ())
    target.forward([Work(two, FORK)])
    target.commit(two, (0, 1, 3))
    with pytest.raises(OutOfMemory):
        target.forward([Work(one, FORK)])
    assert (target.tokens(one), target.tokens(two)) == ([2, 3, 4, 5], [2, 3, 3, 4, 6])


def test_the_engine_s_faults_are_seen() -> None:
    target = FakeTarget()
    seq = read(target, 2)
    target.forward([Work(seq, FORK)])
    with pytest.raises(DecodeError, match="left uncommitted"):
        target.forward([Work(seq, FORK)])
    with pytest.raises(DecodeError, match="not in the cache"):
        target.forward([Work(seq, FORK, done=2)])  # the failed pass took the tree with it
    target.forward([Work(seq, FORK)])
    with pytest.raises(DecodeError, match="not a path"):
        target.commit(seq, (0, 2, 3))


def test_an_interrupt_holds_until_it_is_taken_back() -> None:
    target = FakeTarget()
    seq = read(target, 2)
    target.interrupt(True)
    for _ in range(2):
        with pytest.raises(Cancelled):
            target.forward([Work(seq, FORK)])
    target.interrupt(False)
    target.forward([Work(seq, FORK)])
    target.commit(seq, (0,))
    assert target.tokens(seq) == [2, 3]


def test_sequences() -> None:
    target = FakeTarget(sequences=2)
    one = read(target, 2, 3, 4)
    two = target.fork(one, 2)
    assert target.tokens(two) == [2, 3]
    with pytest.raises(EngineError, match="too many"):
        target.open()
    target.close(one)
    assert target.open() not in (one, two)
    assert target.truncate(two, 1) == 1
    assert target.truncate(two, 9) == 1
    assert target.tokens(two) == [2]


def test_a_recurrent_model_cannot_go_back() -> None:
    target = FakeTarget(rollback=0)
    seq = read(target, 2, 3, 4)
    assert target.tokens(target.fork(seq, 2)) == []
    assert target.truncate(seq, 3) == 3
    assert target.truncate(seq, 2) == 0
    target.forward([Work(seq, TokenTree.chain([3, 4]))])
    with pytest.raises(DecodeError, match="take back"):
        target.commit(seq, (0,))


def test_a_model_with_some_rollback() -> None:
    target = FakeTarget(rollback=2)
    seq = read(target, 2, 3, 4, 5, 6)
    assert target.truncate(seq, 3) == 3
    assert target.truncate(seq, 0) == 0


def test_features_are_the_tokens_so_many_places_back() -> None:
    target = FakeTarget(FakeVocab(10), layers=frozenset({0, 2}))
    seq = read(target, 7, 8)
    (rows,) = target.forward([Work(seq, FORK, features=(0, 2))])
    assert rows.features[0].argmax(axis=1).tolist() == [3, 4, 5, 6]
    assert rows.features[2].argmax(axis=1).tolist() == [7, 8, 8, 3]
    target.commit(seq, ())
    (rows,) = target.forward([Work(target.open(), TokenTree.chain([3, 4, 5]), features=(2,))])
    assert rows.features[2].sum(axis=1).tolist() == [0, 0, 1]


def test_the_vocabulary() -> None:
    vocab = FakeVocab(70, renamed={5: "é"})
    assert len({vocab.text(token) for token in range(70)}) == 70
    assert vocab.tokenize("abé") == [2, 3, 5]
    assert vocab.tokenize("<end>a", special=True) == [END, 2]
    assert END not in vocab.tokenize("<end>a")
    assert (vocab.piece(END), vocab.piece(END, special=True)) == (b"", b"<end>")
    assert vocab.piece(5) == "é".encode()
    assert vocab.end_tokens <= vocab.control_tokens
