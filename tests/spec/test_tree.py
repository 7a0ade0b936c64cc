"""`TokenTree` against brute force over paths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.spec.tree import TokenTree

few = settings(max_examples=50, deadline=None)
SCORES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0])


@st.composite
def trees(draw: st.DrawFn, *, root: int | None = None, source: str = "a", largest: int = 9) -> TokenTree:
    tokens = [draw(st.integers(0, 3)) if root is None else root]
    parents, scores = [-1], [1.0]
    for _ in range(draw(st.integers(0, largest))):
        parent, token = draw(st.integers(0, len(tokens) - 1)), draw(st.integers(0, 3))
        if (parent, token) not in zip(parents, tokens, strict=True):
            tokens.append(token)
            parents.append(parent)
            scores.append(draw(SCORES))
    sources = ("",) + (source,) * (len(tokens) - 1)
    return TokenTree(tuple(tokens), tuple(parents), tuple(scores), sources)


def ancestors(tree: TokenTree, node: int) -> list[int]:
    """``node`` and what is above it, from the node up."""
    return [node] if node == 0 else [node, *ancestors(tree, tree.parents[node])]


def edges(tree: TokenTree) -> dict[tuple[int, ...], float]:
    """Every guess by the tokens that lead to it → its score."""
    return {tuple(tree.tokens[i] for i in tree.path(node)): tree.scores[node] for node in range(1, len(tree))}


def subtrees(tree: TokenTree, n: int) -> list[set[int]]:
    """Every choice of ``n`` guesses that holds all parents."""
    return [
        {0, *chosen}
        for chosen in itertools.combinations(range(1, len(tree)), n)
        if all(tree.parents[node] in {0, *chosen} for node in chosen)
    ]


@few
@given(trees())
def test_depths_paths_mask_and_reach(tree: TokenTree) -> None:
    mask = tree.mask()
    for node in range(len(tree)):
        above = ancestors(tree, node)
        assert tree.path(node) == tuple(reversed(above))
        assert tree.depths[node] == len(above) - 1
        assert np.flatnonzero(mask[node]).tolist() == sorted(above)
        assert tree.reach[node] == pytest.approx(np.prod([tree.scores[i] for i in above]))


@few
@given(trees())
def test_children_leaves_and_chain(tree: TokenTree) -> None:
    parents = set(tree.parents)
    assert tree.leaves == tuple(node for node in range(len(tree)) if node not in parents)
    assert tree.is_chain == (len(tree.leaves) == 1)
    for node, kids in enumerate(tree.children):
        assert list(kids.values()) == [i for i, parent in enumerate(tree.parents) if parent == node]
        assert all(tree.tokens[kid] == token for token, kid in kids.items())


@few
@given(trees(largest=8), st.integers(-1, 9))
def test_top_is_the_best_subtree_of_its_size(tree: TokenTree, n: int) -> None:
    got = tree.top(n)
    size = min(max(n, 0), tree.draft_n)
    assert got.draft_n == size
    assert edges(got).items() <= edges(tree).items()
    best = max(sum(tree.reach[node] for node in chosen) for chosen in subtrees(tree, size))
    assert sum(got.reach) == pytest.approx(best)


@few
@given(trees(), st.integers(0, 9), st.integers(1, 5))
def test_top_on_few_branches(tree: TokenTree, n: int, leaves: int) -> None:
    got = tree.top(n, leaves)
    assert got.draft_n <= n
    assert len(got.leaves) <= leaves
    assert edges(got).items() <= edges(tree).items()
    if len(tree.top(n).leaves) <= leaves:
        assert edges(got) == edges(tree.top(n))
    if leaves == 1 and n:
        best = max((tree.reach[node] for node in range(1, len(tree)) if tree.depths[node] == 1), default=1.0)
        assert got.draft_n == 0 or got.reach[1] == best


@few
@given(trees(), st.lists(st.floats(0, 3), min_size=10, max_size=10), st.integers(0, 9))
def test_top_is_a_tree_even_where_scores_exceed_one(tree: TokenTree, scores: list[float], n: int) -> None:
    tree = TokenTree(tree.tokens, tree.parents, (1.0, *scores[: tree.draft_n]), tree.sources)
    assert edges(tree.top(n)).items() <= edges(tree).items()


@few
@given(trees(), st.integers(-1, 6))
def test_cut_keeps_what_is_no_deeper(tree: TokenTree, depth: int) -> None:
    shallow = {path: score for path, score in edges(tree).items() if len(path) - 1 <= depth}
    assert edges(tree.cut(depth)) == shallow


@few
@given(trees(root=1), trees(root=1, source="b"))
def test_merge_is_the_union_with_the_higher_scores(one: TokenTree, other: TokenTree) -> None:
    merged, mirrored = edges(one.merge(other)), edges(other.merge(one))
    ours, theirs = edges(one), edges(other)
    assert merged == mirrored
    assert merged == {p: max(ours.get(p, -1.0), theirs.get(p, -1.0)) for p in ours | theirs}


@few
@given(trees(root=1), trees(root=1, source="b"))
def test_merge_names_the_source_of_the_score(one: TokenTree, other: TokenTree) -> None:
    merged = one.merge(other)
    ours, theirs = edges(one), edges(other)
    for node in range(1, len(merged)):
        path = tuple(merged.tokens[i] for i in merged.path(node))
        named = {"a": ours, "b": theirs}[merged.sources[node]]
        assert named[path] == merged.scores[node]
        if path in ours and path in theirs and ours[path] == theirs[path]:
            assert merged.sources[node] == "a"


@few
@given(trees())
def test_merge_with_itself_or_its_root_changes_nothing(tree: TokenTree) -> None:
    assert tree.merge(tree) == tree
    assert tree.merge(TokenTree.root(tree.tokens[0])) == tree


@few
@given(trees(), st.data())
def test_keep_is_the_subtree_of_the_nodes(tree: TokenTree, data: st.DataObject) -> None:
    chosen: set[int] = set()
    for node in data.draw(st.sets(st.integers(0, len(tree) - 1))):
        chosen.update(tree.path(node))
    kept = tree.keep(chosen)
    wanted = {tuple(tree.tokens[i] for i in tree.path(node)): tree.scores[node] for node in chosen - {0}}
    assert edges(kept) == wanted
    assert list(kept.tokens) == [tree.tokens[node] for node in sorted({0, *chosen})]


def test_chain_and_root() -> None:
    chain = TokenTree.chain([5, 6, 7], [0.5, 0.25], "x")
    assert chain == TokenTree((5, 6, 7), (-1, 0, 1), (1.0, 0.5, 0.25), ("", "x", "x"))
    assert chain.is_chain
    assert chain.reach == (1.0, 0.5, 0.125)
    assert TokenTree.root(5) == TokenTree.chain([5])
    assert TokenTree.root(5).leaves == (0,)
    assert TokenTree.root(5).draft_n == 0


@pytest.mark.parametrize(
    ("tokens", "parents", "scores", "sources", "says"),
    [
        ((), (), (), (), "needs a root"),
        ((1, 2), (-1,), (1.0, 1.0), ("", ""), "one length"),
        ((1, 2), (-1, 0), (1.0,), ("", ""), "one length"),
        ((1, 2), (-1, 0), (1.0, 1.0), ("",), "one length"),
        ((1,), (0,), (1.0,), ("",), "node 0 is the root"),
        ((1, 2), (-1, 1), (1.0, 1.0), ("", ""), "parent of node 1"),
        ((1, 2), (-1, -1), (1.0, 1.0), ("", ""), "parent of node 1"),
        ((1, 2, 3), (-1, 2, 0), (1.0,) * 3, ("",) * 3, "parent of node 1"),
        ((1, 2, 2), (-1, 0, 0), (1.0,) * 3, ("",) * 3, "token 2 stands twice under node 0"),
    ],
)
def test_arrays_that_are_no_tree_are_refused(
    tokens: tuple[int, ...],
    parents: tuple[int, ...],
    scores: tuple[float, ...],
    sources: tuple[str, ...],
    says: str,
) -> None:
    with pytest.raises(ValueError, match=says):
        TokenTree(tokens, parents, scores, sources)


def test_trees_over_different_roots_do_not_merge() -> None:
    with pytest.raises(ValueError, match="different pending tokens"):
        TokenTree.root(1).merge(TokenTree.root(2))


def test_a_subtree_without_its_parents_is_refused() -> None:
    with pytest.raises(KeyError):
        TokenTree.chain([1, 2, 3]).keep([2])
