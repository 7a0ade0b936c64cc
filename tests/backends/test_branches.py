"""Branches in llama.cpp's cache, against a slow model of that cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.backends.llamacpp.branches import Branches, IdPool
from localspec.errors import EngineError
from localspec.spec.tree import TokenTree

few = settings(max_examples=60, deadline=None)


@dataclass(eq=False)
class Cell:
    token: object
    pos: int
    ids: set[int]


@dataclass
class Cells:
    """llama.cpp's unified cache as it documents itself: cells with a position and a set of sequence ids."""

    cells: list[Cell] = field(default_factory=list)

    def remove(self, seq_id: int, start: int, end: int) -> bool:
        for cell in self.cells:
            if cell.pos >= max(start, 0) and (end < 0 or cell.pos < end):
                cell.ids.discard(seq_id)
        self.cells = [cell for cell in self.cells if cell.ids]
        return True

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        for cell in self.cells:
            if source in cell.ids and cell.pos >= start and (end < 0 or cell.pos < end):
                cell.ids.add(target)

    def first_position(self, seq_id: int) -> int:
        return min((cell.pos for cell in self.cells if seq_id in cell.ids), default=-1)

    def text(self, seq_id: int) -> list[object]:
        mine = sorted((cell for cell in self.cells if seq_id in cell.ids), key=lambda cell: cell.pos)
        assert [cell.pos for cell in mine] == list(range(len(mine))), "a gap, or two tokens at one position"
        return [cell.token for cell in mine]


class Sequence_:
    """One sequence and what should be in it."""

    def __init__(self, pool: IdPool, memory: Cells) -> None:
        self.memory = memory
        self.branches = Branches(pool, memory)
        self.text: list[object] = []
        self.tree: TokenTree | None = None

    def forward(self, tree: TokenTree, done: int = 0, *, backwards: bool = False) -> None:
        """A pass: the cells of the new nodes come in at once, then each is checked to see what it should."""
        ids = self.branches.place(tree, done)
        n_past = len(self.text)
        assert self.branches.n_past == n_past
        new = {}
        for node in sorted(range(done, len(tree)), reverse=backwards):
            new[node] = Cell((node, tree.tokens[node]), n_past + tree.depths[node], set(ids[node]))
            assert len(set(ids[node])) == len(ids[node]) > 0
            self.memory.cells.append(new[node])
        for node, cell in new.items():
            seen = [other for other in self.memory.cells if other.ids & cell.ids and other.pos <= cell.pos]
            seen.sort(key=lambda other: other.pos)
            path = [(i, tree.tokens[i]) for i in tree.path(node)]
            assert [other.token for other in seen] == [*self.text, *path]
        self.tree = tree

    def commit(self, path: Sequence[int]) -> None:
        assert self.tree is not None
        assert self.branches.commit(path)
        self.text += [(i, self.tree.tokens[i]) for i in path]
        self.tree = None
        self.check()

    def check(self) -> None:
        assert self.branches.n_past == len(self.text)
        assert self.memory.text(self.branches.main) == self.text

    def truncate(self, n: int) -> None:
        assert self.branches.truncate(n)
        del self.text[n:]
        self.check()

    def fork(self, pool: IdPool, n: int) -> Sequence_:
        other = Sequence_(pool, self.memory)
        self.branches.share(n, other.branches)
        other.text = self.text[:n]
        other.check()
        return other


def no_strays(memory: Cells, seqs: Sequence[Sequence_]) -> None:
    """Every cell is a committed token of some sequence: nothing else takes room."""
    mains = {seq.branches.main for seq in seqs}
    assert all(cell.ids & mains for cell in memory.cells)
    for seq in seqs:
        seq.check()


@st.composite
def trees(draw: st.DrawFn, largest: int = 10) -> TokenTree:
    tokens, parents, scores = [0], [-1], [1.0]
    for node in range(1, draw(st.integers(1, largest))):
        tokens.append(node)
        parents.append(draw(st.integers(0, node - 1)))
        scores.append(draw(st.sampled_from([0.0, 0.2, 0.5, 0.5, 1.0])))
    return TokenTree(tuple(tokens), tuple(parents), tuple(scores), ("",) * len(tokens))


def part(tree: TokenTree, n: int) -> TokenTree:
    return TokenTree(tree.tokens[:n], tree.parents[:n], tree.scores[:n], tree.sources[:n])


def grow(seq: Sequence_, tree: TokenTree, cuts: Sequence[int]) -> None:
    """``tree`` in several passes, each over nodes that come after those of the pass before."""
    done = 0
    for n in [*sorted({cut for cut in cuts if 0 < cut < len(tree)}), len(tree)]:
        seq.forward(part(tree, n), done)
        done = n


@few
@given(st.lists(st.tuples(trees(), st.lists(st.integers(1, 9), max_size=4), st.integers(0, 99)), max_size=5))
def test_a_node_sees_its_ancestors_and_nothing_else(
    rounds: list[tuple[TokenTree, list[int], int]],
) -> None:
    """In one pass or in several; after a commit the main id holds the committed tokens alone."""
    memory = Cells()
    seq = Sequence_(IdPool(16), memory)
    for tree, cuts, pick in rounds:
        grow(seq, tree, cuts)
        full = tree.path(pick % len(tree))
        seq.commit(full[: pick % (len(full) + 1)])
        no_strays(memory, [seq])
    seq.branches.close()
    assert not memory.cells


@few
@given(trees(), st.integers(0, 5))
def test_the_order_of_cells_does_not_matter(tree: TokenTree, n: int) -> None:
    memory = Cells()
    seq = Sequence_(IdPool(16), memory)
    seq.forward(TokenTree.chain(range(n + 1)))
    seq.commit(range(n + 1))
    seq.forward(tree, backwards=True)
    assert seq.branches.drop()
    no_strays(memory, [seq])


@few
@given(st.data())
def test_a_life_of_several_sequences(data: st.DataObject) -> None:
    """Any order of passes, commits, drops, truncations, forks and closings, with ids in short supply."""
    memory = Cells()
    pool = IdPool(n_ids := data.draw(st.integers(2, 14)))
    live: list[Sequence_] = [Sequence_(pool, memory)]
    for _ in range(data.draw(st.integers(1, 14))):
        seq = data.draw(st.sampled_from(live))
        action = data.draw(st.sampled_from(["tree", "tree", "tree", "drop", "truncate", "fork", "open", "close"]))
        try:
            if action == "tree":
                tree = data.draw(trees(6))
                grow(seq, tree, data.draw(st.lists(st.integers(1, 5), max_size=3)))
                seq.commit(tree.path(data.draw(st.integers(0, len(tree) - 1))))
            elif action == "drop":
                seq.forward(data.draw(trees(6)))
                assert seq.branches.drop()
            elif action == "truncate":
                seq.truncate(data.draw(st.integers(0, len(seq.text))))
            elif action == "fork":
                live.append(seq.fork(pool, data.draw(st.integers(0, len(seq.text)))))
            elif action == "open":
                live.append(Sequence_(pool, memory))
            elif len(live) > 1:
                live.remove(seq)
                seq.branches.close()
        except EngineError:
            seq.branches.drop()
        no_strays(memory, live)
    for seq in live:
        seq.branches.close()
    assert not memory.cells
    assert sorted(pool._free) == list(range(n_ids))
    assert not pool._holders


def star(width: int) -> TokenTree:
    """``width`` children of the root."""
    n = width + 1
    return TokenTree(tuple(range(n)), (-1,) + (0,) * width, (1.0,) + (0.5,) * width, ("",) * n)


def test_two_trees_in_one_pass() -> None:
    memory = Cells()
    pool = IdPool(8)
    one, two = Sequence_(pool, memory), Sequence_(pool, memory)
    one.forward(star(3))
    two.forward(star(4))
    one.commit((0, 2))
    two.commit((0, 4))
    no_strays(memory, [one, two])


def test_an_empty_pool_leaves_everything_usable() -> None:
    memory = Cells()
    seq = Sequence_(IdPool(3), memory)
    seq.forward(star(3))
    seq.commit((0, 1))
    with pytest.raises(EngineError, match="no sequence id is left") as error:
        seq.branches.place(star(4), 0)
    assert error.value.hint
    assert seq.branches.drop()
    no_strays(memory, [seq])
    seq.forward(star(3))
    seq.commit((0, 3))
    no_strays(memory, [seq])


def test_ids_in_use_are_not_taken_away() -> None:
    pool = IdPool(4)
    memory = Cells()
    one, two = Sequence_(pool, memory), Sequence_(pool, memory)
    one.forward(star(3))
    with pytest.raises(EngineError):
        two.branches.place(star(2), 0)
    two.branches.drop()
    one.commit((0, 1))
    # Now they are reserves: another sequence may have them, and take over no cell of their old prefix.
    two.forward(star(3))
    two.commit((0, 3))
    no_strays(memory, [one, two])
    one.forward(star(3))
    one.commit((0, 2))
    no_strays(memory, [one, two])


def test_a_new_sequence_may_take_a_reserve() -> None:
    pool, memory = IdPool(3), Cells()
    one = Sequence_(pool, memory)
    one.forward(star(3))
    one.commit((0, 2))
    two = Sequence_(pool, memory)
    assert memory.text(two.branches.main) == []
    two.forward(star(2))
    two.commit((0, 2))
    no_strays(memory, [one, two])


def test_reserves_follow_a_truncation() -> None:
    """An id in reserve knows how much of the prefix it still carries."""
    memory = Cells()
    seq = Sequence_(IdPool(4), memory)
    for keep in (9, 9, 1, 9, 9, 2, 9):
        seq.truncate(min(keep, len(seq.text)))
        for _ in range(2):
            seq.forward(star(3))
            seq.commit((0, 2))
    no_strays(memory, [seq])


def test_keeping_the_likeliest_branch_touches_the_tail_only() -> None:
    """Work on the cache does not grow with the text: nothing is copied from before what is new."""
    copied: list[tuple[int, int]] = []

    class Watched(Cells):
        def copy(self, source: int, target: int, start: int, end: int) -> None:
            copied.append((start, end))
            super().copy(source, target, start, end)

    memory = Watched()
    seq = Sequence_(IdPool(4), memory)
    for _ in range(50):
        seq.forward(star(3))
        seq.commit((0, 1))
    late = copied[6:]
    assert late
    assert all(end - start <= 2 for start, end in late)


class Places(Cells):
    """A cache with places: a new cell takes the first free one, as llama.cpp's does after a removal."""

    def __init__(self) -> None:
        super().__init__()
        self.place: dict[int, int] = {}

    def write(self, cell: Cell) -> None:
        taken = {self.place[id(other)] for other in self.cells}
        self.place[id(cell)] = next(i for i in range(len(taken) + 1) if i not in taken)
        self.cells.append(cell)


@few
@given(st.lists(st.tuples(trees(), st.integers(0, 20)), max_size=6))
def test_tokens_lie_in_the_order_of_the_text(rounds: list[tuple[TokenTree, int]]) -> None:
    """Rejected cells between accepted ones stay occupied, by the waste id and no other."""
    memory, waste = Places(), 16
    branches = Branches(IdPool(16, waste=waste), memory)
    everything = []  # keeps ids of cells from being used again
    for tree, pick in rounds:
        ids = branches.place(tree, 0)
        for node in branches.order:
            cell = Cell(node, branches.n_past + tree.depths[node], set(ids[node]))
            everything.append(cell)
            memory.write(cell)
        assert branches.commit(tree.path(pick % len(tree)))
        mine = sorted((cell for cell in memory.cells if branches.main in cell.ids), key=lambda cell: cell.pos)
        assert [cell.pos for cell in mine] == list(range(branches.n_past))
        places = [memory.place[id(cell)] for cell in mine]
        assert places == sorted(places)
        assert all(cell in mine or cell.ids == {waste} for cell in memory.cells)


@few
@given(st.lists(st.tuples(trees(), st.integers(0, 20)), max_size=6))
def test_a_gapless_cache_keeps_nothing_behind_a_rejected_cell(rounds: list[tuple[TokenTree, int]]) -> None:
    memory = Places()
    branches = Branches(IdPool(16, gapless=True), memory)
    everything = []  # keeps ids of cells from being used again
    for tree, pick in rounds:
        ids, n_past = branches.place(tree, 0), branches.n_past
        for node in branches.order:
            cell = Cell(node, n_past + tree.depths[node], set(ids[node]))
            everything.append(cell)
            memory.write(cell)
        path = tree.path(pick % len(tree))
        assert branches.commit(path)
        kept = branches.n_past - n_past
        assert [*branches.order][:kept] == [*path][:kept]
        assert kept == len(path) or branches.order[kept] != path[kept]
        assert sorted(memory.place[id(cell)] for cell in memory.cells) == list(range(branches.n_past))
        assert all(memory.place[id(cell)] == cell.pos and branches.main in cell.ids for cell in memory.cells)
