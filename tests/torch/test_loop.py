"""A head that grows its trees in one run guesses what it does when the host grows them level by level."""

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

from localspec.backends.base import CARRIED, Extent, Work
from localspec.backends.fake import FakeVocab
from localspec.backends.torch import loop as loop_module
from localspec.backends.torch.graphs import Graphs
from localspec.backends.torch.kernels.dispatch import PLAIN, Ops
from localspec.backends.torch.kernels.tree_attention import MAX_NODES
from localspec.backends.torch.place import Place
from localspec.control import Limits, Price
from localspec.drafters.base import Ask
from localspec.errors import Cancelled, ModelFault
from localspec.grammar import Grammars, Matcher
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import SamplingParams
from tests.torch.loops import COPIES, Sides, check_alike, counted, grown, head_of
from tests.torch.test_eagle import HEADS, STATE, TEXT, Both, N, close

#: Some leave guesses out, some end before their depth, for having nodes enough.
LIMITS = (
    Limits(1, 4, 4),
    Limits(5, 5, 1),
    Limits(3, 8, 3),
    Limits(6, 59, 10),
    Limits(7, 6, 2),
    Limits(5, 30, 4, 0.02),
    Limits(4, 20, 5, leaves=2),
)


@pytest.mark.parametrize("name", sorted(HEADS))
def test_trees_are_those_of_the_host(name: str, tmp_path: Path) -> None:
    """In one copy a draft, whatever the target kept of the last one."""
    sides = Sides(name, tmp_path)
    sides.open(1, 4)
    for limits in LIMITS * 2:
        with counted(*COPIES) as copies:
            asks = [Ask(1, sides.texts[1], Price(limits, 0.0), STATE)]
            (ours,) = sides.ours.propose(asks)
            assert copies == ["arrays"]
        (theirs,) = sides.theirs.propose(asks)
        check_alike(ours.tree, theirs.tree)
        assert ours.tree.draft_n
        sides.step(1, ours.tree)


@pytest.mark.parametrize("name", ["eagle", "eagle3"])
def test_behind_a_long_text(name: str, tmp_path: Path) -> None:
    """What does not fit into a tree with the guesses is read before."""
    sides = Sides(name, tmp_path)
    sides.open(1, 333)
    for limits in (Limits(3, 8, 3), Limits(5, 20, 4)):
        for _ in range(2):
            (draft,) = sides.drafts({1: Price(limits, 0.0)})
            sides.step(1, draft.tree)
    sides.cut(1, 100)
    with counted((loop_module.Loop, "grow")) as grown:
        for _ in range(3):
            (draft,) = sides.drafts({1: Price(Limits(4, 12, 4), 0.0)})
            sides.step(1, draft.tree)
    assert len(grown) == 3


@pytest.mark.parametrize("seed", range(6))
def test_texts_come_and_go(seed: int, tmp_path: Path) -> None:
    """Several at once, each with limits of its own; drafts that nobody verifies; forks, and ends."""
    sides = Sides(sorted(HEADS)[seed], tmp_path, seed, sequences=4)
    rng = np.random.default_rng(seed)
    with counted((loop_module.Loop, "grow")) as grown:
        for number in range(14):
            seqs = [*sides.texts]
            if len(seqs) < 4 and (not seqs or rng.random() < 0.6):
                if seqs and rng.random() < 0.5:
                    seq = int(rng.choice(seqs))
                    sides.fork(seq, number, int(rng.integers(1, len(sides.texts[seq]))))
                else:
                    sides.open(number, int(rng.integers(1, 20)))
            seqs = [*sides.texts]
            chosen = [int(seq) for seq in rng.permutation(seqs)[: int(rng.integers(1, len(seqs) + 1))]]
            sizes = rng.integers(1, (5, 13, 5), (len(chosen), 3))
            limits = [Limits(int(d), int(n), int(w), float(rng.choice([0, 0.03]))) for d, n, w in sizes]
            drafts = sides.drafts({seq: Price(one, 0.0) for seq, one in zip(chosen, limits, strict=True)})
            for seq, draft in zip(chosen, drafts, strict=True):
                if rng.random() < 0.8:
                    sides.step(seq, draft.tree)
            if rng.random() < 0.3:
                seq = int(rng.choice(seqs))
                sides.cut(seq, int(rng.integers(1, len(sides.texts[seq]))))
            if len(seqs) > 2 and rng.random() < 0.3:
                gone = int(rng.choice(seqs))
                del sides.texts[gone]
                for one in sides.both:
                    one.close(gone)
    assert len(grown) > 5
    for seq in sides.texts:
        for one in sides.both:
            one.close(seq)
    assert sides.head._cells.free == sides.head._cells.room


@pytest.mark.parametrize("name", ["eagle", "eagle3"])
def test_each_is_as_wide_and_as_deep_as_it_wants(name: str, tmp_path: Path) -> None:
    """In a run that is as wide and deep as another wants it."""
    sides = Sides(name, tmp_path, sequences=3)
    for seq in (1, 2, 3):
        sides.open(seq, 4)
    limits = {1: Limits(5, 99, 2), 2: Limits(4, 99, 7), 3: Limits(4, 99, 3)}
    with counted((loop_module.Loop, "grow")) as calls:
        for _ in range(6):
            drafts = sides.drafts({seq: Price(one, 0.0) for seq, one in limits.items()})
            for seq, draft in zip(limits, drafts, strict=True):
                sides.step(seq, draft.tree)
    assert len(calls) == 6


def test_a_fork_of_a_text_that_was_cut(tmp_path: Path) -> None:
    """The state at the cut is gone, and the fork gets it again, too."""
    sides = Sides("eagle3", tmp_path, sequences=2)
    sides.open(1, 9)
    price = Price(Limits(3, 8, 3), 0.0)
    (draft,) = sides.drafts({1: price})
    sides.step(1, draft.tree)
    sides.texts[1] = sides.texts[1][:6]
    for one in sides.both:
        one.truncate(1, 5)
    sides.fork(1, 2, 5)
    sides.mend(1)
    sides.drafts({1: price, 2: price})


@pytest.mark.parametrize("belief", [None, lambda score: score**0.7])
@pytest.mark.parametrize("row_s", [0.0, 0.02, 0.2])
def test_guesses_that_are_not_worth_a_row_are_left_out(
    row_s: float, belief: Callable[[float], float] | None, tmp_path: Path
) -> None:
    sides = Sides("eagle3", tmp_path)
    sides.open(1, 5)
    for limits in (Limits(6, 40, 4), Limits(5, 9, 3)) * 2:
        (draft,) = sides.drafts({1: Price(limits, row_s, belief=belief)})
        sides.step(1, draft.tree)


def test_what_was_grown_is_there_whatever_a_pass_costs(tmp_path: Path) -> None:
    """The host would have stopped; to throw guesses away now would bring nothing back."""
    sides = Sides("eagle3", tmp_path)
    sides.open(1, 5)
    price = Price(Limits(4, 12, 3), pass_s=9.0)
    ours, theirs = (
        one.propose([Ask(1, sides.texts[1], paid, STATE)])[0].tree
        for one, paid in zip(sides.both, (price, replace(price, pass_s=0.0)), strict=True)
    )
    check_alike(ours, theirs)
    assert max(sides.theirs.propose([Ask(1, sides.texts[1], price, STATE)])[0].tree.depths) == 1


# -- what it leaves in its cache


@pytest.mark.parametrize("name", ["eagle", "eagle3"])
def test_nodes_that_were_read_can_stay(name: str, tmp_path: Path) -> None:
    """They lie behind the text in the order of `Level.onward`; a text that is narrower than others, too."""
    both = Both(HEADS[name], tmp_path, filled=True)
    head, width = both.head, both.plain.width
    rng = np.random.default_rng(2)
    first, second = head.open(), head.open()
    states = rng.standard_normal((len(TEXT), width), np.float32)
    work = [Work(seq, TokenTree.chain(TEXT), states=states) for seq in (first, second)]
    found = grown(head, work, [Extent(4, 3), Extent(3, 2)])
    for seq, (one, two, three, *_), leaf in ((first, found[0], 2), (second, found[1], 1)):
        above = int(two.onward[leaf]) // 3
        tokens = [int(level.tokens.flat[level.onward[at]]) for level, at in ((one, above), (two, leaf))]
        assert three.tokens.shape == (3, 3)
        head.commit(seq, [*range(len(TEXT)), len(TEXT) + above, len(TEXT) + 3 + leaf])
        assert head.n_past(seq) == len(TEXT) + 2
        read = states
        for n in (0, 1):
            carried, _ = both.expected([*TEXT, *tokens[:n]], read)
            read = np.concatenate([read, carried[-1:]])
        read = np.concatenate([read, rng.standard_normal((1, width), np.float32)])
        (rows,) = head.forward([Work(seq, TokenTree.root(9), states=read[-1:])])
        assert close(rows.logits(0)[None], both.expected([*TEXT, *tokens, 9], read)[1][-1:])
        head.commit(seq, ())


def test_raw_features_are_encoded(tmp_path: Path) -> None:
    both = Both(HEADS["eagle3"], tmp_path, filled=True)
    features = both.features(len(TEXT))
    seqs, work = (both.head.open(), both.head.open()), Work(0, TokenTree.chain(TEXT))
    ways = replace(work, raw=features), replace(work, states=both.states(features))
    raw, encoded = (
        both.head.forward([replace(how, seq=seq)])[0].features[CARRIED].copy()
        for seq, how in zip(seqs, ways, strict=True)
    )
    assert close(raw, encoded)


def test_nothing_stays_of_a_run_that_failed_and_what_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    head = head_of("eagle", tmp_path, buckets=True, n_ctx=20)
    assert head.grow is not None
    seq, states = head.open(), np.zeros((MAX_NODES, 64), np.float32)
    work = [Work(seq, TokenTree.chain(range(5)), states=states[:5])]
    head.interrupt(True)
    with pytest.raises(Cancelled):
        head.grow(work, [Extent(2, 2)])
    head.interrupt(False)
    assert head._cells.free == 20
    for extent in (Extent(17, 1), Extent(5, 4), Extent(1, N + 1)):
        assert head.grow(work, [extent]) is None
    assert head._cells.free == 20
    grown(head, work, [Extent(16, 1)])
    assert head._cells.free == 0
    head.commit(seq, range(5))
    assert head._cells.free == 15


def test_more_rows_than_a_pass_or_a_mask_has_do_not_fit(tmp_path: Path) -> None:
    head = head_of("eagle", tmp_path, buckets=True, n_ctx=100, sequences=2)
    assert head.grow is not None
    seqs = head.open(), head.open()
    for lengths, depth in (((MAX_NODES,), 2), ((40,), 26), ((40, 25), 2)):
        work = [
            Work(seq, TokenTree.chain(range(n)), states=np.zeros((n, 64), np.float32))
            for seq, n in zip(seqs, lengths, strict=False)
        ]
        extents = [Extent(depth, 1) for _ in work]
        assert head.grow(work, extents) is None
        work[-1] = replace(work[-1], tree=TokenTree.chain(range(24)), states=np.zeros((24, 64), np.float32))
        assert len(grown(head, work, extents)[0]) == depth


def test_trees_that_differ_too_much_are_the_hosts(tmp_path: Path) -> None:
    """One run has room for the widest and deepest of them in each text."""
    sides = Sides("eagle", tmp_path, sequences=2, n_ctx=24)
    sides.open(1, 20)
    sides.open(2, 5)
    with counted((loop_module.Loop, "grow")) as calls:
        drafts = sides.drafts({1: Price(Limits(2, 9, 2), 0.0), 2: Price(Limits(5, 20, 4), 0.0)})
    assert not calls
    assert all(draft.tree.draft_n for draft in drafts)


# -- where the host has to look


def state_of(**params: Any) -> SamplerState:
    changed = SamplingParams(**{"temperature": 0.0, "seed": 1} | params)
    return SamplerState.start(changed, seed=1, prompt=TEXT, end_tokens=(5,), n_ctx=512)


def grammar_of(text: str) -> Matcher:
    vocab = FakeVocab(N)
    return Grammars([vocab.piece(token) for token in range(N)], vocab.end_tokens).start(text)


@pytest.mark.parametrize(
    ("state", "alone"),
    [
        (state_of(), True),
        (state_of(top_k=1), True),
        (state_of(temperature=0.8), False),
        (state_of(ignore_eos=True), False),
        (state_of(min_tokens=1), False),
        (state_of(repeat_penalty=1.3), False),
        (state_of(logit_bias=((7, 2.0),)), False),
        (replace(state_of(), grammar=grammar_of("root ::= [a-z]*")), False),
    ],
)
def test_what_changes_guesses_is_left_to_the_host(state: SamplerState, alone: bool, tmp_path: Path) -> None:
    sides = Sides("eagle3", tmp_path)
    sides.open(1, 6)
    with counted((loop_module.Loop, "grow")) as calls:
        for _ in range(2):
            (draft,) = sides.drafts({1: Price(Limits(3, 9, 3), 0.0)}, state)
            sides.step(1, draft.tree)
    assert bool(calls) == alone


def test_who_cannot_go_alone_keeps_nobody_from_it(tmp_path: Path) -> None:
    sides = Sides("eagle3", tmp_path, sequences=2)
    for seq in (1, 2):
        sides.open(seq, 6)
    price = Price(Limits(3, 9, 3), 0.0)
    asks = [Ask(1, sides.texts[1], price, STATE), Ask(2, sides.texts[2], price, state_of(temperature=0.8))]
    with counted((loop_module.Loop, "grow")) as calls:
        ours, theirs = (one.propose(asks) for one in sides.both)
    assert len(calls) == 1
    for one, other in zip(ours, theirs, strict=True):
        check_alike(one.tree, other.tree)
        assert one.tree.draft_n


def test_scores_that_are_no_numbers_are_told(tmp_path: Path) -> None:
    sides = Sides("eagle", tmp_path)
    sides.open(1, 6)
    loop = sides.head._loop
    assert loop is not None
    loop._by = replace(loop._by, unembedding=torch.full_like(loop._by.unembedding, torch.nan))
    with pytest.raises(ModelFault):
        sides.ours.propose([Ask(1, sides.texts[1], Price(Limits(3, 9, 3), 0.0), STATE)])
    assert sides.head._cells.free == 400


# -- on a device


def test_nothing_in_the_loop_needs_a_number_on_the_host(tmp_path: Path) -> None:
    """Where no number can be read. Attention and the writing of keys are kernels there."""
    kernels = replace(PLAIN, attend=lambda q, *_: torch.empty_like(q), rope_write=lambda *_: None)
    for ops, waits in ((kernels, False), (PLAIN, True)):
        place = Place(torch.device("meta"))
        head = head_of("eagle3", tmp_path, place=place, ops=ops, buckets=True, sequences=3)
        assert head._loop is not None
        assert head._graphs is not None
        feed = head._graphs._inputs.feed(8, 3, ops)
        if waits:
            with pytest.raises((NotImplementedError, RuntimeError)):
                head._loop._run(4, 5, feed)
        else:
            assert head._loop._run(4, 5, feed).shape == (3, 2 * (5 + 3 * 25) + 3 * 5)


def test_every_size_is_captured_once_and_found_again(tmp_path: Path) -> None:
    """What a graph reads and gives lies where it lay when it was captured."""
    sides = Sides("eagle3", tmp_path)
    captured = list[int]()

    def capture(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        kept = run().clone()
        captured.append(kept.shape[1])
        return lambda: kept.copy_(run())

    loop = sides.head._loop
    assert loop is not None
    assert sides.head._still is not None
    loop._graphs = Graphs(sides.head._still, sides.head._cells, 1, capture=capture)
    sides.open(1, 7)
    for limits in (LIMITS[2], LIMITS[2], LIMITS[1], LIMITS[2], LIMITS[1], replace(LIMITS[2], p_min=0.1)):
        (draft,) = sides.drafts({1: Price(limits, 0.0)})
        sides.step(1, draft.tree.keep(range(min(len(draft.tree), 4))))
    assert len(captured) <= 4, "two shapes, behind one unread token or up to 8"
    assert set(captured) == {2 * (3 + 2 * 9) + 2 * 3, 2 * 5 + 4}


def by_kernels() -> dict[str, Ops]:
    from localspec.backends.torch.kernels.dispatch import TRITON

    return {"top_k": replace(PLAIN, top_k=TRITON.top_k), "all": TRITON}


@pytest.mark.parametrize("kernels", ["top_k", "all"])
def test_by_tritons_kernels(kernels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    from localspec.backends.torch.kernels.jit import Card

    monkeypatch.setattr(Card, "of", classmethod(lambda cls, device: Card(processors=1)))
    sides = Sides("eagle3", tmp_path, sequences=2, ops=by_kernels()[kernels])
    for seq in (1, 2):
        sides.open(seq, 5)
    for _ in range(2):
        prices = {1: Price(Limits(3, 8, 3), 0.0), 2: Price(Limits(3, 4, 2), 0.0)}
        for seq, draft in zip((1, 2), sides.drafts(prices), strict=True):
            sides.step(seq, draft.tree)
