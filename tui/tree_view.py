"""The token tree of one verify step as lines of text.

The path that held runs straight down on the left; guesses that did not hold hang beside the token they would have
followed. A guess that is the only one after its parent stands right below it, so a chain is a list. Signs tell what
became of each; colour only repeats them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from textual.content import Content

from localspec.tui.marks import NO_MARKS
from localspec.tui.visible import visible
from localspec.types import TokenInfo, TreeTrace

KEPT, REJECTED, DRAWN, PENDING = "✓", "✗", "→", "•"
#: What the signs mean, for a legend.
SIGNS = (f"{PENDING} last token", f"{KEPT} held", f"{REJECTED} not drawn", f"{DRAWN} the target's own")

_NUMBERS = len(" 0.00 0.00")
_NARROWEST = 6  # cells of a token's text that stay, however deep it hangs


@dataclass(frozen=True, slots=True)
class _Row:
    """A node and the guides before its sign."""

    node: int
    guides: str


def tree_lines(
    tree: TreeTrace,
    width: int,
    height: int | None = None,
    *,
    drawn: TokenInfo | None = None,
    marks: Mapping[str, str] = NO_MARKS,
) -> list[Content]:
    """A line for each node: sign, text, the draft's and the target's probability given the tokens before it.

    Args:
        width: cells a line may take.
        height: lines there may be, at least 1; nodes that do not fit are counted in the last line. The path goes before
            its branches, and a parent before its children. ``None``: no limit.
        drawn: what the target drew at the end of the path, if that is known.
        marks: of drafters, to stand before what they guessed.
    """
    extra = 0 if drawn is None else 1
    shown = _chosen(tree, len(tree.tokens) if height is None else height - extra)
    hidden = len(tree.tokens) - len(shown)
    rows = _rows(tree, shown)
    lines = [_node(tree, row, width, marks) for row in rows]
    if drawn is not None and (height is None or height > extra):
        lines.append(_line("", DRAWN, visible(drawn.piece), None, drawn.target_p, width, "bold"))
    if hidden:
        lines.append(Content.styled(f"… {hidden} more".ljust(width)[:width], "dim"))
    return lines


def _chosen(tree: TreeTrace, room: int) -> set[int]:
    """Nodes that are shown on ``room`` lines, one of which counts the others if there are any."""
    if len(tree.tokens) <= room:
        return set(range(len(tree.tokens)))
    path = (0, *tree.path)
    order = [*path, *(node for node in range(len(tree.tokens)) if node not in path)]
    return set(order[: max(room - 1, 0)])


def _rows(tree: TreeTrace, shown: Collection[int]) -> list[_Row]:
    children: dict[int, list[int]] = {node: [] for node in shown}
    for node in sorted(shown):
        if node:
            children[tree.parents[node]].append(node)
    return list(_walk(tree, children)) if shown else []


def _walk(tree: TreeTrace, children: dict[int, list[int]]) -> Iterator[_Row]:
    """Depth first without recursion: a chain may be longer than Python's stack."""
    path = (0, *tree.path)
    waiting = [_Row(0, "")]
    while waiting:
        row = waiting.pop()
        yield row
        main = _main_child(tree, path, row.node, children[row.node])
        below = row.guides.replace("├", "│")
        if main is not None:
            waiting.append(_Row(main, below))
        branches = [child for child in children[row.node] if child != main]
        waiting += [_Row(child, f"{below}├") for child in reversed(branches)]


def _main_child(tree: TreeTrace, path: tuple[int, ...], node: int, children: list[int]) -> int | None:
    """The child that goes on below its parent: on the path the next of the path, after its end none (the target's own
    token comes there), elsewhere the likeliest."""
    if node in path:
        return next((child for child in children if child in path), None)
    return max(children, key=lambda child: tree.scores[child], default=None)


def _node(tree: TreeTrace, row: _Row, width: int, marks: Mapping[str, str]) -> Content:
    text = marks.get(tree.sources[row.node], "") + _text(tree, row.node)
    if row.node == 0:
        return _line(row.guides, PENDING, text, None, None, width, "")
    held = row.node in tree.path
    target_p = tree.target_p[row.node] if tree.target_p else None
    sign, style = (KEPT, "$text-success") if held else (REJECTED, "dim")
    return _line(row.guides, sign, text, tree.scores[row.node], target_p, width, style)


def _text(tree: TreeTrace, node: int) -> str:
    return visible(tree.pieces[node]) if tree.pieces else f"token {tree.tokens[node]}"


def _line(
    guides: str, sign: str, text: str, draft_p: float | None, target_p: float | None, width: int, style: str
) -> Content:
    room = max(width - _NUMBERS, 0)
    most = max(room - _NARROWEST, 0)  # where branches hang deeper, the guides next to the token stay
    head = guides[max(len(guides) - most, 0) :]
    left = Content.assemble(Content.styled(head, "dim"), (f"{sign} {text}", style)).truncate(
        room, ellipsis=True, pad=True
    )
    numbers = f" {_probability(draft_p)} {_probability(target_p)}"
    left = left.truncate(room, ellipsis=True, pad=True)
    return Content.assemble(left, (numbers, "dim" if style == "dim" else "")).truncate(width)


def _probability(p: float | None) -> str:
    """Four cells. What is not quite 0 or 1 does not look as if it were."""
    if p is None:
        return "    "
    if 0 < p < 0.005:
        return "<.01"
    return ">.99" if 0.995 <= p < 1 else f"{p:.2f}"
