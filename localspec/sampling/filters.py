"""The filters of the sampler chain, each from scores to fewer (or other) scores. Inputs are never written to.

A vocabulary has up to some 262,144 entries and a draw must cost microseconds, so nothing here sorts all of
it: the filters that need an order first find a bound that enough entries reach, and sort only those that do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.errors import ModelFault, UsageError
from localspec.sampling.law import Law, Logits

Index = NDArray[np.intp]

_FOLD = 64
_FIRST_LOOK = 512
_SMALL = 4096
_LEADERS = 3  # looked at, at least, before the rest of a long row is guessed
_GAP_WEIGHT = 4.3  # what lies in a gap between them, in terms of its largest: the median over rows of text and code
_PIECE = 8192
_NOTHING = -1000.0  # e to this is 0 in float32
_LEAST = float(np.finfo(np.float32).min)  # what is below is banned
# Keeps logits / temperature finite: the largest float32 over this still fits a float64.
_COLDEST = 1e-200


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Tokens still in the running. ``ids``: ``[n]``, ascending, or ``None`` for ids 0 to n - 1; ``logits``:
    ``[n]``, -inf where banned. ``known_peak`` is the largest of them, where somebody has looked already."""

    ids: NDArray[np.int32] | None
    logits: Logits
    known_peak: float | None = None

    def peak(self) -> float:
        """The largest score; raises as `require_finite`."""
        return require_finite(float(self.logits.max())) if self.known_peak is None else self.known_peak

    def keep(self, index: Index, peak: float | None = None) -> Scores:
        """Only the entries at ``index``, which ascends. ``peak``: the largest of them, if known."""
        ids = index.astype(np.int32) if self.ids is None else self.ids[index]
        return Scores(ids, self.logits[index], peak)

    def token(self, at: int) -> int:
        return at if self.ids is None else int(self.ids[at])

    def find(self, tokens: NDArray[np.int32]) -> tuple[Index, NDArray[np.bool_]]:
        """Where ``tokens`` (ascending) are: positions of those that are there, and which those are."""
        if self.ids is None:
            there = tokens < len(self.logits)
            return tokens[there].astype(np.intp), there
        at = np.searchsorted(self.ids, tokens)
        there = at < len(self.ids)
        there[there] = self.ids[at[there]] == tokens[there]
        return at[there], there


def require_finite(peak: float) -> float:
    """Checks the largest score of a row. numpy's max and argmax hand a NaN on, so no pass over the row is
    needed.

    Raises:
        ModelFault: it is NaN or +inf.
        UsageError: it is -inf, so nothing may be drawn.
    """
    if peak == -math.inf:
        raise UsageError(
            "no token is left to draw: logit bias, ignore_eos, min_tokens and the grammar ban every one",
            hint="Ban fewer tokens.",
        )
    if not math.isfinite(peak):
        raise ModelFault(
            "the model computes no finite scores (NaN): the file is damaged or the build is broken",
            hint="Check the file's checksum or download it again; if it is sound, try another build.",
        )
    return peak


def to_law(scores: Scores) -> Law:
    """Softmax of what is left, banned tokens dropped."""
    peak = scores.peak()
    if scores.logits.min() == -math.inf:
        scores = scores.keep((scores.logits > -math.inf).nonzero()[0])
    logp = scores.logits.astype(np.float64)
    logp -= peak
    logp -= math.log(float(np.exp(logp).sum()))
    ids = np.arange(len(logp), dtype=np.int32) if scores.ids is None else scores.ids
    return Law(ids, logp)


def best(scores: Scores, k: int) -> tuple[tuple[int, float], ...]:
    """The ``k`` likeliest tokens with their softmax probabilities, best first; of equals the lower id first. In a long
    row the probabilities are a little off, all by one factor, since the tail is guessed.

    They rank guesses, and how often a guess of some score holds is learnt: the few hundredths are not worth an
    exponential of the whole vocabulary after every pass of a draft model.
    """
    logits = scores.logits
    found, gaps = _leaders(logits, max(k, _LEADERS))
    peak = require_finite(found[0][1])
    if len(logits) < _SMALL:
        total = float(np.add.reduce(np.exp(logits - peak)))
    else:
        total = 0.0
        for _, value in found:
            total += math.exp(value - peak)
        for value, *_ in gaps:
            total += math.exp(value - peak) * _GAP_WEIGHT
    chances = [(scores.token(at), math.exp(value - peak) / total) for at, value in found[:k] if value > -math.inf]
    return tuple(chances)


def _leaders(values: Logits, k: int) -> tuple[list[tuple[int, float]], list[tuple[float, int, int, int]]]:
    """Where the ``k`` largest values are, and what they are; and of each gap between them its largest, where that is
    (negated), and the gap's ends.

    A knock-out of whole runs: after a pass over the weights nothing of ours is in the caches, so that what counts is
    not the work but how much code it runs through, and ``argmax`` is by far the shortest way through numpy.
    """
    start, end = 0, len(values)
    at = int(values.argmax())
    found = [(at, values.item(at))]
    gaps: list[tuple[float, int, int, int]] = []
    while True:
        for a, b in ((start, at), (at + 1, end)):
            if a < b:
                top = a + int(values[a:b].argmax())
                gaps.append((values.item(top), -top, a, b))
        if not gaps or len(found) >= k:
            return found, gaps
        best = max(gaps)
        gaps.remove(best)
        value, at, start, end = best
        at = -at
        found.append((at, value))


def _group_maxima(values: Logits, size: int) -> Logits:
    """The largest of every ``size`` values, and what is left over. Groups are columns of a folded view, whose maxima
    numpy takes with whole vectors."""
    width = len(values) // size
    whole = size * width
    maxima = np.maximum.reduce(values[:whole].reshape(size, width), axis=0)
    return maxima if whole == len(values) else np.concatenate((maxima, values[whole:]))


def greedy(scores: Scores) -> int:
    """The likeliest token; of equals the one with the lowest id."""
    at = int(scores.logits.argmax())
    require_finite(float(scores.logits[at]))
    return scores.token(at)


def likeliest(scores: Scores) -> Scores:
    """That one alone."""
    return scores.keep(np.array([scores.logits.argmax()]))


def top_k(scores: Scores, k: int) -> Scores:
    """The ``k`` best; of equals at the last place the lower ids. ``k <= 0``: off."""
    if not 0 < k < len(scores.logits):
        return scores
    index, peak = _at_least(scores.logits, k)
    if len(index) > k:
        order = np.argsort(-scores.logits[index], kind="stable")
        index = np.sort(index[order[:k]])
    return scores.keep(index, peak)


def top_p(scores: Scores, p: float) -> Scores:
    """The smallest set of the likeliest tokens whose mass is at least ``p``, never empty (arXiv 1904.09751).
    ``p >= 1``: off."""
    if p >= 1:
        return scores
    return scores.keep(_leading(scores.logits, softmax(scores), p, strict=False), scores.known_peak)


def min_p(scores: Scores, p: float) -> Scores:
    """Tokens at least ``p`` times as likely as the likeliest (arXiv 2407.01082). ``p <= 0``: off."""
    if p <= 0:
        return scores
    peak = scores.peak()
    return scores.keep((scores.logits >= peak + math.log(min(p, 1.0))).nonzero()[0], peak)


def typical_p(scores: Scores, p: float) -> Scores:
    """The smallest set of tokens whose surprise is nearest to the entropy with a mass above ``p``, never
    empty (arXiv 2202.00666). ``p >= 1``: off."""
    if p >= 1:
        return scores
    mass = softmax(scores)
    live = (mass > 0).nonzero()[0]
    mass = mass[live]
    surprise = -np.log(mass)
    entropy = float(mass @ surprise)
    return scores.keep(live[_leading(-np.abs(surprise - entropy), mass, p, strict=True)])


def top_n_sigma(scores: Scores, n: float) -> Scores:
    """Tokens whose logit is at most ``n`` standard deviations of all of them below the largest (arXiv 2411.07641).
    ``n <= 0``: off."""
    if n <= 0:
        return scores
    peak = scores.peak()
    live = scores.logits if scores.logits.min() > -math.inf else scores.logits[scores.logits > -math.inf]
    bound = peak - n * float(live.std(dtype=np.float64))
    return scores.keep((scores.logits >= bound).nonzero()[0], peak)


def xtc(scores: Scores, threshold: float) -> Scores:
    """Of the tokens with at least the probability ``threshold`` only the least likely stays (of equals the highest id),
    and with it all that are less likely than that: "exclude top choices",
    https://github.com/oobabooga/text-generation-webui/pull/6335. ``threshold > 0.5``: off."""
    if threshold > 0.5:
        return scores
    bound = log_mass(scores) + math.log(threshold) if threshold > 0 else _LEAST
    top = (scores.logits >= bound).nonzero()[0]
    if len(top) < 2:
        return scores
    last = len(top) - 1 - int(scores.logits[top][::-1].argmin())
    stays = np.ones(len(scores.logits), dtype=np.bool_)
    stays[np.delete(top, last)] = False
    return scores.keep(stays.nonzero()[0], float(scores.logits[top[last]]))


def dynamic_temperature(scores: Scores, t: float, spread: float, exponent: float) -> Scores:
    """Logits over a temperature between ``t - spread`` (0 at least) and ``t + spread``: the nearer to the latter, the
    nearer the entropy is to that of as many equally likely tokens (banned ones do not count), by a power of their ratio
    ("entropy-based dynamic temperature", https://github.com/ggml-org/llama.cpp/pull/4972). At 0 the likeliest is
    left."""
    n = int(np.count_nonzero(scores.logits > -math.inf))
    if n < 2:
        return scores
    total, weighted = _sums(scores.logits, scores.peak())
    entropy = math.log(total) - weighted / total
    share = max(entropy, 0.0) / math.log(n)
    low, high = max(t - spread, 0.0), t + spread
    t = low + (high - low) * share**exponent
    return temperature(scores, t) if t > 0 else likeliest(scores)


def temperature(scores: Scores, t: float) -> Scores:
    """Logits over ``t`` > 0."""
    if t == 1:
        return scores
    t = max(t, _COLDEST)
    peak = None if scores.known_peak is None else scores.known_peak / t
    return Scores(scores.ids, scores.logits.astype(np.float64) / t, peak)


def log_mass(scores: Scores) -> float:
    """The logarithm of the sum of all e^logit, to float32's precision."""
    peak = scores.peak()
    return peak + math.log(_sums(scores.logits, peak)[0])


def _sums(logits: Logits, peak: float) -> tuple[float, float]:
    """The sum of e^x and that of x e^x over x = logit - peak. Piece by piece, which stays in the caches and asks for no
    memory, and in float32, which numpy has vectors for."""
    total = weighted = 0.0
    for start in range(0, len(logits), _PIECE):
        x = np.maximum(logits[start : start + _PIECE] - peak, _NOTHING)
        weights = np.exp(x.astype(np.float32))
        total += float(weights.sum())
        weighted += float((weights * x).sum())
    return total, weighted


def softmax(scores: Scores) -> NDArray[np.float64]:
    """The probability of each entry, ``[n]``; 0 where banned."""
    mass = scores.logits.astype(np.float64)
    mass -= scores.peak()
    np.exp(mass, out=mass)
    mass /= mass.sum()
    return mass


def _at_least(values: Logits, k: int) -> tuple[Index, float]:
    """Positions (ascending) of every value not below some bound that at least ``k`` values reach, and the largest of
    all; values of -inf are left out. 1 <= k <= n.

    The bound is the k-th largest of the maxima of groups: k groups have a member that reaches it.
    """
    fold = min(_FOLD, len(values) // (4 * k))
    maxima = _group_maxima(values, fold) if fold > 1 else values
    peak = require_finite(float(maxima.max()))
    bound = np.partition(maxima, len(maxima) - k)[len(maxima) - k]
    return (values > bound if bound == -math.inf else values >= bound).nonzero()[0], peak


def _leading(values: Logits, mass: NDArray[np.float64], p: float, *, strict: bool) -> Index:
    """Positions (ascending) of the shortest run of the largest ``values``, equals in order of position, whose
    mass reaches ``p`` (exceeds it if ``strict``); everything if none does."""
    n = len(values)
    look = _FIRST_LOOK
    while True:
        if look < n:
            index, _ = _at_least(values, look)
            order = index[np.argsort(-values[index], kind="stable")]
        else:
            order = np.argsort(-values, kind="stable")
        total = np.cumsum(mass[order])
        count = int(np.searchsorted(total, p, side="right" if strict else "left")) + 1
        if count <= len(order) or look >= n:
            return np.sort(order[:count])
        look *= 8
