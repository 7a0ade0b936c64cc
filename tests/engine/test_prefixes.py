"""The tree of what is shared against a plain account of it: every conversation with its own list of cells."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.engine.prefixes import Prefixes, common

TOKENS = st.lists(st.integers(0, 2), max_size=6)
MOVES = st.lists(
    st.tuples(
        st.sampled_from(["open", "fork", "cut", "close", "grow"]), st.integers(0, 99), st.integers(0, 12), TOKENS
    ),
    max_size=40,
)


class Account:
    """Cells by conversation: (token, place). A fork has the places of its source."""

    def __init__(self) -> None:
        self.held: dict[int, list[tuple[int, int]]] = {}
        self._place = 0

    def grow(self, seq: int, tokens: Iterable[int]) -> None:
        for token in tokens:
            self.held[seq].append((token, self._place))
            self._place += 1

    def text(self, seq: int) -> list[int]:
        return [token for token, _ in self.held[seq]]

    def cells(self, some: Iterable[int]) -> int:
        return len({cell for seq in some for cell in self.held[seq]})

    def own(self, seq: int) -> int:
        return self.cells(self.held) - self.cells(self.held.keys() - {seq})


def play(moves: list[tuple[str, int, int, list[int]]]) -> tuple[Prefixes, Account]:
    tree, account = Prefixes(), Account()
    for number, (kind, which, n, tokens) in enumerate(moves):
        seqs = sorted(account.held)
        if kind == "open" or not seqs:
            tree.open(number)
            account.held[number] = []
            continue
        seq = seqs[which % len(seqs)]
        match kind:
            case "fork":
                n = min(n, tree.length(seq))
                tree.fork(seq, number, n)
                account.held[number] = account.held[seq][:n]
            case "cut":
                tree.cut(seq, n)
                del account.held[seq][n:]
            case "close":
                tree.close(seq)
                del account.held[seq]
            case "grow":
                tree.grow(seq, tokens)
                account.grow(seq, tokens)
        assert tree.cells == account.cells(account.held)
    return tree, account


@settings(max_examples=300, deadline=None)
@given(MOVES, TOKENS, st.sets(st.integers(0, 40)))
def test_the_tree_knows_what_is_shared(
    moves: list[tuple[str, int, int, list[int]]], text: list[int], some: set[int]
) -> None:
    tree, account = play(moves)
    some &= account.held.keys()
    for seq in account.held:
        assert tree.length(seq) == len(account.held[seq])
        assert tree.own(seq) == account.own(seq)
    assert tree.cells_of(some) == account.cells(some)
    shared = {seq: common(account.text(seq), text) for seq in account.held}
    most = max(shared.values(), default=0)
    match = tree.find(text, some)
    assert match.length == most
    assert match.holders <= {seq for seq, n in shared.items() if n == most}
    assert match.holders or not account.held
    paths = [account.held[seq][:most] for seq in match.holders]
    assert all(path == paths[0] for path in paths)
    theirs = {cell for seq in some for cell in account.held[seq]}
    assert match.held == len(theirs & set(paths[0] if paths else []))


def test_nothing_is_left_of_what_was_closed() -> None:
    tree = Prefixes()
    tree.open(0)
    tree.grow(0, [1, 2, 3, 4])
    for new in range(1, 50):
        tree.fork(new - 1, new, 2 + new % 3)
        tree.grow(new, [5, new])
        tree.close(new - 1)
        assert len(list(tree._at[new].upwards())) == 1  # what only one goes through is one run
    tree.close(49)
    assert tree.cells == 0
    assert not tree._root.children
