"""One verify step in a line: what was guessed, what of it held, and what the target drew itself."""

from __future__ import annotations

from localspec.talk.trace import AnswerTrace, Step
from localspec.tui.tree_view import DRAWN, KEPT, REJECTED
from localspec.tui.visible import visible

#: Rejected guesses that are named, and cells of a token.
MOST_REJECTED, CELLS = 6, 16


def step_words(trace: AnswerTrace) -> str:
    """The newest step of an answer: ``step 3: 2 of 3 guesses held  ✓␣cat  ✓␣sat  ✗␣on  →␣down``; nothing before the
    first. Tokens that are held back are not in it."""
    if not trace.steps:
        return ""
    step = trace.steps[-1]
    held = [f"{KEPT if token.source else DRAWN}{visible(token.piece, CELLS)}" for token in trace.tokens_of(step)]
    at = step.stats.accepted
    return "  ".join([headline(step), *held[:at], *_rejected(trace, step), *held[at:]])


def headline(step: Step) -> str:
    """How the guesses of a step fared."""
    if not step.stats.draft_n:
        return f"step {step.number}: nothing was guessed"
    guesses = "guess" if step.stats.draft_n == 1 else "guesses"
    return f"step {step.number}: {step.stats.accepted} of {step.stats.draft_n} {guesses} held"


def _rejected(trace: AnswerTrace, step: Step) -> list[str]:
    tree = trace.tree(step)
    if tree is None:
        return []
    nodes = [node for node in range(1, len(tree.tokens)) if node not in tree.path]
    more = len(nodes) - MOST_REJECTED
    named = [f"{REJECTED}{visible(tree.pieces[node], CELLS)}" for node in nodes[:MOST_REJECTED]]
    return [*named, f"{REJECTED} {more} more"] if more > 0 else named
