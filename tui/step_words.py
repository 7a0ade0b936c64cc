"""One verify step in a line: what was guessed, what of it held, and what the target drew itself."""

from __future__ import annotations

from collections.abc import Iterable

from localspec.talk.trace import AnswerTrace, Step
from localspec.tui.tree_view import DRAWN, KEPT, REJECTED
from localspec.tui.visible import visible

#: Rejected guesses that are named, and cells of a token.
MOST_REJECTED, CELLS = 6, 16


def step_words(trace: AnswerTrace) -> str:
    """The newest step of an answer: ``step 3: 2 of 3 guesses held  ✓␣cat  ✓␣sat  ✗␣on  →␣down``; nothing before the
    first. Without its tree nobody knows what was rejected, nor what held and is no part of the text: an end token."""
    if not trace.steps:
        return ""
    step = trace.steps[-1]
    tree, own = trace.tree(step), trace.drawn(step)
    held = [token.piece for token in trace.tokens_of(step)[: step.stats.accepted]]
    rejected: list[bytes] = []
    if tree is not None and tree.pieces:
        held = [tree.pieces[node] for node in tree.path]
        rejected = [piece for node, piece in enumerate(tree.pieces) if node and node not in tree.path]
    more = len(rejected) - MOST_REJECTED
    parts = [headline(step), *_signed(KEPT, held), *_signed(REJECTED, rejected[:MOST_REJECTED])]
    parts += [f"{REJECTED} {more} more"] if more > 0 else []
    return "  ".join([*parts, *_signed(DRAWN, [] if own is None else [own.piece])])


def headline(step: Step) -> str:
    """How the guesses of a step fared."""
    if not step.stats.draft_n:
        return f"step {step.number}: nothing was guessed"
    guesses = "guess" if step.stats.draft_n == 1 else "guesses"
    return f"step {step.number}: {step.stats.accepted} of {step.stats.draft_n} {guesses} held"


def _signed(sign: str, pieces: Iterable[bytes]) -> list[str]:
    return [f"{sign}{visible(piece, CELLS)}" for piece in pieces]
