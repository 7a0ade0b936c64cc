from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from textual.content import Content

from localspec.tui.tree_view import DRAWN, KEPT, PENDING, REJECTED, tree_lines
from localspec.types import TokenInfo, TreeTrace

CHAIN = TreeTrace(
    (1, 2, 3, 4),
    (-1, 0, 1, 2),
    (1.0, 0.9, 0.8, 0.7),
    ("", "a", "a", "a"),
    (1, 2),
    (b"The", b" cat", b" sat", b" on"),
    (None, 0.95, 0.999, 0.001),
)
FORKS = TreeTrace(
    (1, 2, 3, 4, 5, 6, 7),
    (-1, 0, 0, 1, 1, 2, 4),
    (1.0, 0.6, 0.3, 0.5, 0.4, 0.2, 0.9),
    ("", "a", "b", "a", "a", "b", "a"),
    (1, 4),
    (b"The", b" cat", b" dog", b" ran", b" sat", b" barked", b" up"),
    (None, 0.8, 0.1, 0.2, 0.6, 0.01, 0.3),
)
OWN = TokenInfo(9, b" down", target_p=0.55)


def texts(lines: list[Content]) -> list[str]:
    return [line.plain.rstrip() for line in lines]


def test_a_chain_is_a_list() -> None:
    assert texts(tree_lines(CHAIN, 30, drawn=OWN)) == [
        "• The",
        "✓ ␣cat               0.90 0.95",
        "✓ ␣sat               0.80 >.99",
        "├✗ ␣on               0.70 <.01",
        "→ ␣down                   0.55",
    ]


def test_the_path_runs_down_on_the_left_and_branches_hang_beside_it() -> None:
    assert texts(tree_lines(FORKS, 30, drawn=OWN, marks={"a": "ᵃ", "b": "ᵇ"})) == [
        "• The",
        "├✗ ᵇ␣dog             0.30 0.10",
        "│✗ ᵇ␣barked          0.20 0.01",
        "✓ ᵃ␣cat              0.60 0.80",
        "├✗ ᵃ␣ran             0.50 0.20",
        "✓ ᵃ␣sat              0.40 0.60",
        "├✗ ᵃ␣up              0.90 0.30",
        "→ ␣down                   0.55",
    ]


def test_what_does_not_fit_is_counted_and_the_path_goes_first() -> None:
    lines = texts(tree_lines(FORKS, 30, 6, drawn=OWN))
    assert [line[:8] for line in lines] == ["• The", "├✗ ␣dog ", "✓ ␣cat  ", "✓ ␣sat  ", "→ ␣down ", "… 3 more"]
    assert texts(tree_lines(FORKS, 30, 1, drawn=OWN)) == ["… 7 more"]
    assert len(tree_lines(FORKS, 30, 8, drawn=OWN)) == 8


def test_a_rejected_guess_is_dimmed_and_a_held_one_is_not() -> None:
    held, rejected = tree_lines(CHAIN, 30)[1], tree_lines(CHAIN, 30)[3]
    assert "dim" in {str(span.style) for span in rejected.spans}
    assert all("dim" not in str(span.style) for span in held.spans)


def test_a_tree_without_texts_shows_ids() -> None:
    bare = TreeTrace((1, 2), (-1, 0), (1.0, 0.5), ("", "a"), ())
    assert texts(tree_lines(bare, 30)) == ["• token 1", "├✗ token 2           0.50"]


def test_texts_are_no_markup_and_no_control_characters() -> None:
    nasty = TreeTrace((1, 2), (-1, 0), (1.0, 0.5), ("", "a"), (), (b"[red]", b"\x1b[2J\n"), (None, 0.5))
    assert texts(tree_lines(nasty, 40))[0] == "• [red]"
    assert "\\x1b[2J↵" in texts(tree_lines(nasty, 40))[1]


@st.composite
def trees(draw: st.DrawFn) -> TreeTrace:
    count = draw(st.integers(1, 40))
    parents = [-1, *(draw(st.integers(0, node - 1)) for node in range(1, count))]
    path: list[int] = []
    for _ in range(draw(st.integers(0, 6))):
        if children := [node for node in range(count) if parents[node] == (path[-1] if path else 0)]:
            path.append(draw(st.sampled_from(children)))
    scores = tuple(draw(st.floats(0, 1)) for _ in range(count))
    pieces = tuple(f"<{node}>".encode() for node in range(count))
    target_p = (None, *(draw(st.floats(0, 1)) for _ in range(count - 1)))
    return TreeTrace(tuple(range(count)), tuple(parents), scores, ("a",) * count, tuple(path), pieces, target_p)


@settings(max_examples=200, deadline=None)
@given(
    tree=trees(),
    height=st.none() | st.integers(1, 45),
    drawn=st.none() | st.just(OWN),
    width=st.integers(0, 60),
)
def test_every_node_stands_there_once_or_is_counted(
    tree: TreeTrace, height: int | None, drawn: TokenInfo | None, width: int
) -> None:
    wide = texts(tree_lines(tree, 120, height, drawn=drawn))
    nodes = [int(found[1]) for line in wide if (found := re.search("<([0-9]+)>", line))]
    more = [int(found[1]) for line in wide if (found := re.fullmatch("… ([0-9]+) more", line))]
    assert len(set(nodes)) == len(nodes)
    assert len(nodes) + sum(more) == len(tree.tokens)
    assert height is None or len(wide) <= height
    assert height is not None or not more
    assert all(tree.parents[node] in (-1, *nodes) for node in nodes)
    signs = {int(line.split("<")[1].split(">")[0]): line.split("<")[0].strip()[-1] for line in wide if "<" in line}
    for node, sign in signs.items():
        assert sign == (PENDING if node == 0 else KEPT if node in tree.path else REJECTED)
    assert sum(line.lstrip("│├").startswith(DRAWN) for line in wide) == (drawn is not None and height != 1)
    assert all(line.cell_length <= width for line in tree_lines(tree, width, height, drawn=drawn))


def test_a_very_deep_chain_is_drawn() -> None:
    count = 3000
    deep = TreeTrace(tuple(range(count)), tuple(range(-1, count - 1)), (0.5,) * count, ("a",) * count, ())
    assert len(tree_lines(deep, 30)) == count
    comb = TreeTrace(
        tuple(range(99)), (-1, *(0 if i % 2 else i - 1 for i in range(1, 99))), (0.5,) * 99, ("a",) * 99, ()
    )
    assert len(tree_lines(comb, 20)) == 99
