"""The sampler's state of one sequence: everything that decides the token at one output position.

Immutable. A walk over a tree of guesses makes a state for each position it reaches; those of guesses that do
not stand are dropped, and nothing has to be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from localspec.grammar import Matcher
from localspec.sampling import filters
from localspec.sampling.dry import Breakers, Repeats, dry
from localspec.sampling.filters import Scores
from localspec.sampling.law import Law
from localspec.sampling.learners import Learner, learner
from localspec.sampling.noise import Stream, gumbel, uniform
from localspec.sampling.penalties import Window, penalise
from localspec.sampling.residual import ResidualDraw
from localspec.types import SamplingParams

Row = NDArray[np.float32]

_POOL, _LEAST_POOL = 4, 64  # tokens looked at for one that is wanted, and at all


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What of the request's options is the same at every position. ``steps`` are the samplers that can
    matter, in order; ``bias_ids`` ascend, and all ids are below ``reach``. ``as_is``: greedy, and only bans and a
    grammar can change which token is the likeliest."""

    greedy: bool
    steps: tuple[str, ...]
    bias_ids: NDArray[np.int32]
    bias: NDArray[np.float32]
    end_ids: tuple[int, ...]
    reach: int
    as_is: bool

    @classmethod
    def of(cls, params: SamplingParams, end_tokens: Collection[int]) -> Plan:
        bias: dict[int, float] = {}
        for token, value in params.logit_bias:
            bias[token] = bias.get(token, 0.0) + value
        ids = sorted(bias)
        greedy, steps = _greedy(params), _steps(params)
        return cls(
            greedy,
            steps,
            np.array(ids, dtype=np.int32),
            np.array([bias[token] for token in ids], dtype=np.float32),
            tuple(end_tokens),
            max((*ids, *end_tokens), default=-1) + 1,
            greedy and not steps and not ids,
        )

    def below(self, n: int) -> Plan:
        """Without the ids from ``n`` on: a draft model's row may be shorter than they go."""
        kept = int(self.bias_ids.searchsorted(n))
        ends = tuple(token for token in self.end_ids if token < n)
        return replace(
            self, bias_ids=self.bias_ids[:kept], bias=self.bias[:kept], end_ids=ends, reach=min(self.reach, n)
        )


def _dynamic(params: SamplingParams) -> bool:
    return params.dynatemp_range > 0 and "temperature" in params.samplers and not params.mirostat


def _greedy(params: SamplingParams) -> bool:
    return params.temperature <= 0 and not _dynamic(params)


def _active(params: SamplingParams) -> dict[str, bool]:
    """Samplers and whether their options turn them on."""
    penalises = params.repeat_penalty != 1 or params.frequency_penalty != 0 or params.presence_penalty != 0
    return {
        "penalties": params.repeat_last_n != 0 and penalises,
        "dry": params.dry_multiplier > 0 and params.dry_penalty_last_n != 0,
        "top_n_sigma": params.top_n_sigma > 0,
        "top_k": params.top_k > 0,
        "typ_p": params.typical_p < 1,
        "top_p": params.top_p < 1,
        "min_p": params.min_p > 0,
        "xtc": params.xtc_probability > 0 and params.xtc_threshold <= 0.5,
        "temperature": True,
    }


def _steps(params: SamplingParams) -> tuple[str, ...]:
    if params.mirostat:
        return () if _greedy(params) else ("temperature",)
    active = _active(params)
    steps = [name for name in params.samplers if active.get(name, False)]
    if not _greedy(params):
        return tuple(steps)
    # Greedy: at the temperature step one token is left, so later steps do nothing; and filters keep the best,
    # so those with nothing after them that could change the order do nothing either.
    steps = list(takewhile(lambda name: name != "temperature", steps))
    while steps and steps[-1] in ("top_n_sigma", "top_k", "top_p", "min_p"):
        steps.pop()
    return tuple(steps)


@dataclass(frozen=True, slots=True, eq=False)
class SamplerState:
    """How the token of output position ``index`` (tokens decided so far) is decided.

    The order is llama.cpp's: ``logit_bias`` first, then end tokens are banned (``ignore_eos``, or ``index <
    min_tokens``), then ``params.samplers`` in turn (of which ``mirostat`` leaves the temperature), then the ``learner``
    if there is one. A temperature <= 0 is greedy even where the list leaves ``temperature`` out. Rows are float32
    ``[n_vocab]`` and only read.

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
    repeats: Repeats
    learner: Learner | None
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
        breakers: Breakers | None = None,
        grammar: Matcher | None = None,
    ) -> SamplerState:
        """The state for the first output token. ``params`` passed `localspec.sampling.check`; ``breakers`` are its
        ``dry_sequence_breakers`` as tokens, ``grammar`` is the beginning of ``params.grammar``."""
        plan = Plan.of(params, end_tokens)

        def size(step: str, last_n: int) -> int:
            return 0 if step not in plan.steps else n_ctx if last_n < 0 else last_n

        return cls(
            params,
            seed,
            0,
            plan,
            Window.of(prompt, size("penalties", params.repeat_last_n)),
            Repeats.of(prompt, size("dry", params.dry_penalty_last_n), breakers or Breakers.of()),
            None if plan.greedy else learner(params),
            grammar,
        )

    @property
    def greedy(self) -> bool:
        return self.plan.greedy

    def advance(self, token: int, row: Callable[[], Row] | None = None) -> SamplerState:
        """The state after ``token`` was decided. ``row`` fetches what it was decided from, for samplers that learn from
        it; without it they learn nothing, which will do for guesses."""
        learner = self.learner
        if learner is not None and row is not None:
            learner = learner.learn(self._filtered(row()), token)
        return SamplerState(
            self.params,
            self.seed,
            self.index + 1,
            self.plan,
            self.window.push(token),
            self.repeats.push(token),
            learner,
            None if self.grammar is None else self.grammar.advance(token),
        )

    def law(self, row: Row) -> Law:
        """The request's distribution at this position; all on one token if greedy."""
        scores = self._scores(row)
        return Law.certain(filters.greedy(scores)) if self.greedy else filters.to_law(scores)

    def draw(self, row: Row) -> int:
        """The request's token at this position: a pure function of the row, the seed and this state."""
        if self.greedy:
            return self._best(row)
        law = self.law(row)
        return law.draw(self.noise(law.ids))

    def takes(self, token: int, peak: float) -> bool:
        """Whether ``draw`` gives ``token`` for any row of which this is the likeliest, of equals the lowest, with the
        score ``peak``: then the row itself need not be known. Raises as what reads one."""
        banned = self._bans_ends and token in self.plan.end_ids
        if not self.plan.as_is or banned or not (self.grammar is None or self.grammar.allows(token)):
            return False
        filters.require_finite(peak)
        return True

    @property
    def likeliest(self) -> bool:
        """Whether ``guesses`` are the likeliest tokens of any row, as it is, at this position and all later ones."""
        return self.plan.as_is and self.grammar is None and not self._bans_ends

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
        if self.plan.as_is and self.grammar is None:
            return self._unbanned(row, k)
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

    def _unbanned(self, row: Row, k: int) -> tuple[tuple[int, float], ...]:
        """The ``k`` likeliest tokens where nothing but bans of end tokens could change them: the row is not copied."""
        found = filters.best(Scores(None, row), k)
        if self._bans_ends:
            ends = self.plan.end_ids
            if any(token in ends for token, _ in found):
                found = filters.best(Scores(None, row), k + len(ends))
                found = tuple([guess for guess in found if guess[0] not in ends][:k])
        return found

    def _best(self, row: Row) -> int:
        """The likeliest token. Where nothing but bans could change it, the row is not copied for them."""
        if self.plan.as_is:
            token = int(row.argmax())
            if self.takes(token, row.item(token)):
                return token
        return filters.greedy(self._scores(row, 1))

    @property
    def _bans_ends(self) -> bool:
        bans = self.params.ignore_eos or self.index < self.params.min_tokens
        return bans and (self.grammar is None or not self.grammar.must_end)

    @property
    def _xtc_coin(self) -> bool:
        return bool(uniform(self.seed, Stream.XTC, self.index, (0,))[0] <= self.params.xtc_probability)

    def _scores(self, row: Row, best: int | None = None) -> Scores:
        """``best``: a greedy caller looks at no more than so many of the likeliest."""
        scores = self._filtered(row, best)
        return scores if self.learner is None else self.learner.apply(scores)

    def _filtered(self, row: Row, best: int | None = None) -> Scores:
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
            case "dry":
                return dry(
                    scores,
                    self.repeats,
                    multiplier=params.dry_multiplier,
                    base=params.dry_base,
                    allowed=params.dry_allowed_length,
                )
            case "top_n_sigma":
                return filters.top_n_sigma(scores, params.top_n_sigma)
            case "top_k":
                return filters.top_k(scores, params.top_k)
            case "typ_p":
                return filters.typical_p(scores, params.typical_p)
            case "top_p":
                return filters.top_p(scores, params.top_p)
            case "min_p":
                return filters.min_p(scores, params.min_p)
            case "xtc":
                return filters.xtc(scores, params.xtc_threshold) if self._xtc_coin else scores
            case "temperature" if _dynamic(params):
                return filters.dynamic_temperature(
                    scores, max(params.temperature, 0.0), params.dynatemp_range, params.dynatemp_exponent
                )
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
