"""The sampler's state of one sequence: everything that decides the token at one output position.

Immutable. A walk over a tree of guesses makes a state for each position it reaches; those of guesses that do
not stand are dropped, and nothing has to be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from localspec.grammar import Matcher
from localspec.sampling import filters
from localspec.sampling.filters import Scores
from localspec.sampling.law import Law
from localspec.sampling.noise import Stream, gumbel
from localspec.sampling.penalties import Window, penalise
from localspec.sampling.residual import ResidualDraw
from localspec.types import SamplingParams

Row = NDArray[np.float32]

_POOL, _LEAST_POOL = 4, 64  # tokens looked at for one that is wanted, and at all


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What of the request's options is the same at every position. ``steps`` are the samplers that can
    matter, in order; ``bias_ids`` ascend, and all ids are below ``reach``."""

    steps: tuple[str, ...]
    bias_ids: NDArray[np.int32]
    bias: NDArray[np.float32]
    end_ids: tuple[int, ...]
    reach: int

    @classmethod
    def of(cls, params: SamplingParams, end_tokens: Collection[int]) -> Plan:
        bias: dict[int, float] = {}
        for token, value in params.logit_bias:
            bias[token] = bias.get(token, 0.0) + value
        ids = sorted(bias)
        return cls(
            _steps(params),
            np.array(ids, dtype=np.int32),
            np.array([bias[token] for token in ids], dtype=np.float32),
            tuple(end_tokens),
            max((*ids, *end_tokens), default=-1) + 1,
        )

    def below(self, n: int) -> Plan:
        """Without the ids from ``n`` on: a draft model's row may be shorter than they go."""
        kept = int(self.bias_ids.searchsorted(n))
        ends = tuple(token for token in self.end_ids if token < n)
        return Plan(self.steps, self.bias_ids[:kept], self.bias[:kept], ends, min(self.reach, n))


def _penalises(params: SamplingParams) -> bool:
    return params.repeat_last_n != 0 and (
        params.repeat_penalty != 1 or params.frequency_penalty != 0 or params.presence_penalty != 0
    )


def _steps(params: SamplingParams) -> tuple[str, ...]:
    active = {
        "penalties": _penalises(params),
        "top_k": params.top_k > 0,
        "typ_p": params.typical_p < 1,
        "top_p": params.top_p < 1,
        "min_p": params.min_p > 0,
        "temperature": True,
    }
    steps = [name for name in params.samplers if active.get(name, False)]
    if params.temperature > 0:
        return tuple(steps)
    # Greedy: at the temperature step one token is left, so later steps do nothing; and filters keep the best,
    # so those with nothing after them that could change the order do nothing either.
    steps = list(takewhile(lambda name: name != "temperature", steps))
    while steps and steps[-1] in ("top_k", "top_p", "min_p"):
        steps.pop()
    return tuple(steps)


@dataclass(frozen=True, slots=True, eq=False)
class SamplerState:
    """How the token of output position ``index`` (tokens decided so far) is decided.

    The order is llama.cpp's: ``logit_bias`` first, then end tokens are banned (``ignore_eos``, or ``index <
    min_tokens``), then ``params.samplers`` in turn. A temperature <= 0 is greedy even where the list leaves
    ``temperature`` out. Rows are float32 ``[n_vocab]`` and only read.

    What ``grammar`` does not allow is banned before all of that, and where its text is complete end tokens are not: the
    request's distribution is that of the samplers over the allowed tokens. (llama.cpp draws without the grammar first,
    and once more with it in front where that failed: greedy, the same; else a mixture of this distribution and of what
    the filters leave of the whole vocabulary.)

    Methods that read a row raise `ModelFault` for NaN scores and `UsageError` if every token is banned.
    """

    params: SamplingParams
    seed: int
    index: int
    plan: Plan
    window: Window
    grammar: Matcher | None = None

    @classmethod
    def start(
        cls,
        params: SamplingParams,
        *,
        seed: int,
        prompt: Sequence[int],
        end_tokens: Collection[int],
        n_ctx: int,
        grammar: Matcher | None = None,
    ) -> SamplerState:
        """The state for the first output token. ``params`` passed `localspec.sampling.check`; ``grammar`` is the
        beginning of ``params.grammar``."""
        size = 0
        if _penalises(params):
            size = n_ctx if params.repeat_last_n < 0 else params.repeat_last_n
        return cls(params, seed, 0, Plan.of(params, end_tokens), Window.of(prompt, size), grammar)

    @property
    def greedy(self) -> bool:
        return self.params.temperature <= 0

    def advance(self, token: int, row: Callable[[], Row] | None = None) -> SamplerState:
        """The state after ``token`` was decided. ``row`` fetches what it was decided from, for samplers that learn from
        it; none here does."""
        grammar = None if self.grammar is None else self.grammar.advance(token)
        return SamplerState(self.params, self.seed, self.index + 1, self.plan, self.window.push(token), grammar)

    def law(self, row: Row) -> Law:
        """The request's distribution at this position; all on one token if greedy."""
        scores = self._scores(row)
        return Law.certain(filters.greedy(scores)) if self.greedy else filters.to_law(scores)

    def draw(self, row: Row) -> int:
        """The request's token at this position: a pure function of the row, the seed and this state."""
        if self.params.temperature <= 0:
            return self._best(row)
        law = self.law(row)
        return law.draw(self.noise(law.ids))

    def noise(self, ids: NDArray[np.int32] | Sequence[int]) -> NDArray[np.float64]:
        """The Gumbel noise that ``draw`` uses for ``ids`` at this position."""
        return gumbel(self.seed, Stream.TARGET, self.index, ids)

    def guesses(self, row: Row, k: int, *, allowed: int | None = None) -> tuple[tuple[int, float], ...]:
        """The ``k`` tokens most likely to be drawn at this position if the target's row is like ``row`` (a draft
        model's, whose length may differ; ids from ``allowed`` on do not count), each with the chance that it is.

        Above temperature 0 the noise is known, so the chance is a matter of how far the noisy scores lie apart: the
        first guess is the very token that ``draw(row)`` gives.
        """
        if allowed is not None and allowed < len(row):
            row = row[:allowed]
        if self.greedy and k == 1 and self.grammar is None:
            token = self._best(row)
            return ((token, filters.chance(row, token)),)
        scores = self._scores(row, k)
        if self.greedy:
            return filters.best(scores, k)
        law = filters.to_law(scores)
        return filters.best(Scores(law.ids, law.logp + self.noise(law.ids)), k)

    def draft_law(self, row: Row, *, allowed: int | None = None) -> Law:
        """The same chain over a draft model's row, whose length may differ; ids from ``allowed`` on are dropped."""
        return filters.to_law(self._scores(row[:allowed]))

    def draft_noise(self, ids: NDArray[np.int32] | Sequence[int], *, salt: int = 0) -> NDArray[np.float64]:
        """Gumbel noise for drawing guesses under the rule ``ratio``, independent of all noise the target
        uses. ``salt`` tells nodes of one depth apart."""
        return gumbel(self.seed, Stream.DRAFT, self.index, ids, salt)

    def residual(self, row: Row, law: Law | None, node: int) -> ResidualDraw:
        """The target's law at ``node`` of a tree, ready to test the node's children, which were drawn from
        ``law`` one after the other without replacement (``None``: chosen without chance)."""
        return ResidualDraw(self.law(row), law, seed=self.seed, index=self.index, node=node)

    def _best(self, row: Row) -> int:
        """The likeliest token. Where nothing but bans could change it, the row is not copied for them."""
        if not self.plan.steps and not len(self.plan.bias_ids):
            token = int(row.argmax())
            banned = self._bans_ends and token in self.plan.end_ids
            if not banned and (self.grammar is None or self.grammar.allows(token)):
                filters.require_finite(row.item(token))
                return token
        return filters.greedy(self._scores(row, 1))

    @property
    def _bans_ends(self) -> bool:
        bans = self.params.ignore_eos or self.index < self.params.min_tokens
        return bans and (self.grammar is None or not self.grammar.must_end)

    def _scores(self, row: Row, best: int | None = None) -> Scores:
        """``best``: a greedy caller looks at no more than so many of the likeliest."""
        row, steps = self._biased(row), self.plan.steps
        if self.grammar is None:
            scores = Scores(None, row)
        else:
            few = self.params.top_k if steps[:1] == ("top_k",) else best if self.greedy and not steps else None
            scores = _within(self.grammar, row, few)
        for step in steps:
            scores = self._apply(step, scores)
        return scores

    def _biased(self, row: Row) -> Row:
        plan, bans_ends = self.plan, self._bans_ends
        if not bans_ends and not len(plan.bias_ids):
            return row
        if plan.reach > len(row):
            plan = plan.below(len(row))
        row = row.copy()
        if len(plan.bias_ids):
            row[plan.bias_ids] += plan.bias
        if bans_ends:
            for token in plan.end_ids:
                row[token] = -np.inf
        return row

    def _apply(self, step: str, scores: Scores) -> Scores:
        params = self.params
        match step:
            case "penalties":
                return penalise(
                    scores,
                    self.window,
                    repeat=params.repeat_penalty,
                    frequency=params.frequency_penalty,
                    presence=params.presence_penalty,
                )
            case "top_k":
                return filters.top_k(scores, params.top_k)
            case "typ_p":
                return filters.typical_p(scores, params.typical_p)
            case "top_p":
                return filters.top_p(scores, params.top_p)
            case "min_p":
                return filters.min_p(scores, params.min_p)
            case "temperature":
                return filters.temperature(scores, params.temperature)
        raise AssertionError(step)


def _within(grammar: Matcher, row: Row, few: int | None) -> Scores:
    """The scores of what ``grammar`` allows. Where the ``few`` likeliest of them will do, most places in a text are
    settled by a look at some more than that; their mask, which costs a walk over the vocabulary, is not made."""
    if few is not None:
        pool = filters.top_k(Scores(None, row), max(_POOL * few, _LEAST_POOL))
        if pool.ids is not None:
            allowed = grammar.allowed(pool.ids)
            if len(allowed) >= few:
                return pool.keep(allowed)
    return Scores(None, grammar.ban(row))
