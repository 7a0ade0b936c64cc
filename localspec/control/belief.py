"""How far a drafter's scores can be trusted.

A score is what a drafter says of its guess: a softmax probability, a share of matches. How often such guesses hold is
counted, by bins of the score: for this conversation, and for all of them as what is believed where little was seen.
Old counts fade, since texts change.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable

from localspec.spec.tree import TokenTree

EDGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
BINS = len(EDGES) + 1
_MIDDLES = tuple((a + b) / 2 for a, b in zip((0.0, *EDGES), (*EDGES, 1.0), strict=True))
_WEIGHT = 4.0  # trials that a prior counts for
_MOOD_KEEP, _MOOD_WEIGHT, _MOOD_SLACK = 0.85, 1.0, 1.15
_DOUBT = 0.5


def score_bin(score: float) -> int:
    return bisect(EDGES, score)


class Counts:
    """Trials and hits by bin, fading: a trial ``1 / (1 - keep)`` trials ago in its bin counts for a third."""

    def __init__(self, keep: float, prior: Callable[[int], float]) -> None:
        self._keep = keep
        self._prior = prior
        self._hits = [0.0] * BINS
        self._trials = [0.0] * BINS
        self._held = self._tried = 0.0  # their sums

    def add(self, at: int, hit: bool) -> None:
        hits, trials = self._hits[at] * self._keep + hit, self._trials[at] * self._keep + 1
        self._held += hits - self._hits[at]
        self._tried += trials - self._trials[at]
        self._hits[at], self._trials[at] = hits, trials

    def chance(self, at: int) -> float:
        return (self._hits[at] + _WEIGHT * self._prior(at)) / (self._trials[at] + _WEIGHT)

    @property
    def rate(self) -> float:
        """Share of all trials that held."""
        return (self._held + 1) / (self._tried + 2)


class Chat:
    """What is known of one drafter in one conversation: counts by bin, and the *mood*. Where a text changes its kind,
    every bin would have to find out by itself; the share of the last guesses that held, of those that should have,
    tells all of them within a few trials."""

    def __init__(self, overall: Counts) -> None:
        self._counts = Counts(0.95, overall.chance)
        self._held = self._due = _MOOD_WEIGHT

    def add(self, at: int, hit: bool) -> None:
        self._held = self._held * _MOOD_KEEP + (1 - _MOOD_KEEP) * _MOOD_WEIGHT + hit
        self._due = self._due * _MOOD_KEEP + (1 - _MOOD_KEEP) * _MOOD_WEIGHT + self._counts.chance(at)
        self._counts.add(at, hit)

    def doubt(self) -> None:
        """The text is another now: what held in the last one may hold no more, until a guess has shown it."""
        self._held = min(self._held, _DOUBT * self._due)

    def chance(self, at: int) -> float:
        mood = min(_MOOD_SLACK * self._held / self._due, 1.0)  # a single miss is no change of mood
        return self._counts.chance(at) * mood


class Beliefs:
    """What is known of one drafter, over all conversations and in each."""

    def __init__(self) -> None:
        # At first a score is worth half what it says, and half what guesses of this drafter were worth so far.
        self._overall = Counts(0.99, lambda at: (_MIDDLES[at] + self._overall.rate) / 2)
        self._mine: dict[int, Chat] = {}

    def of(self, seq: int) -> Callable[[float], float]:
        """What a score is worth in conversation ``seq``: the probability that such a guess holds."""
        chance = self._mine.get(seq, self._overall).chance
        return lambda score: chance(score_bin(score))

    def doubt(self, seq: int) -> None:
        """The text of conversation ``seq`` is another now."""
        self._mine.setdefault(seq, Chat(self._overall)).doubt()

    def forget(self, seq: int) -> None:
        """Conversation ``seq`` is no more; what it taught about all of them stays."""
        self._mine.pop(seq, None)

    def learn(self, seq: int, tree: TokenTree, tokens: tuple[int, ...]) -> tuple[int, int]:
        """Judges a proposal along the tokens that came, verified or not: every child of a node on the way was tried.
        Returns how deep the way went, and the edges tried on it."""
        mine = self._mine.setdefault(seq, Chat(self._overall))
        node: int | None = 0
        depth = tried = 0
        for token in tokens:
            if node is None or not tree.children[node]:
                break
            tried += 1
            for guess, child in tree.children[node].items():
                at = score_bin(tree.scores[child])
                mine.add(at, guess == token)
                self._overall.add(at, guess == token)
            node = tree.children[node].get(token)
            depth += node is not None
        return depth, tried


def believed(tree: TokenTree, belief: Callable[[float], float]) -> TokenTree:
    """The tree with what is believed of its guesses in place of their scores."""
    return tree.rescored((1.0, *map(belief, tree.scores[1:])))
