"""Whether the first tokens of many answers come as often as the target says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from localspec.engine import Engine
from localspec.errors import EngineError
from localspec.sampling import SamplerState
from localspec.tools.verify.replay import Replay
from localspec.types import AcceptRule, Failed, Finished, GenerationRequest, SamplingParams, SpecParams

#: Few tokens, so that each pair of them is seen often.
SAMPLING = SamplingParams(temperature=1, top_k=4, top_p=1, min_p=0)
#: It repeats itself, so that every drafter has a guess.
PROMPT = "one two three four, one two three four, one two three four, one two"
TOKENS = 2
#: A sound rule is called faulty this seldom.
LEVEL = 1e-4
_END = -1
_FEWEST = 5.0  # expected counts below this are put together

Text = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chances:
    """Pearson's chi-square test of one acceptance rule: ``answers`` seeds, ``accepted`` guesses that held in them."""

    rule: AcceptRule
    answers: int
    accepted: int
    statistic: float
    freedom: int
    p_value: float

    @property
    def sound(self) -> bool:
        return self.p_value >= LEVEL


def chances(engine: Engine, rule: AcceptRule, seeds: int) -> Chances:
    """The first two tokens of ``seeds`` answers against their law, which plain decoding gives.

    Raises:
        EngineError: an answer failed.
    """
    spec = SpecParams(depth=2, width=2, nodes=5, mode="fixed", accept=rule)
    counts: Counter[Text] = Counter()
    accepted = 0
    ends = engine.target.vocab.end_tokens
    laws = _law(engine, ends)
    for seed in range(seeds):
        sampling = replace(SAMPLING, seed=seed)
        *_, last = engine.submit(GenerationRequest(prompt=PROMPT, max_tokens=TOKENS, sampling=sampling, spec=spec))
        if isinstance(last, Failed):
            raise EngineError(f"an answer failed: {last.message}", hint=last.hint)
        assert isinstance(last, Finished)
        counts[(*last.ids, _END) if last.reason == "stop" else last.ids] += 1
        accepted += last.stats.accepted
    statistic, freedom, p = goodness(counts, laws)
    return Chances(rule, seeds, accepted, statistic, freedom, p)


def _law(engine: Engine, ends: frozenset[int]) -> dict[Text, float]:
    """Text of `TOKENS` tokens, or less up to an end → its probability."""
    prompt = engine.encode(GenerationRequest(prompt=PROMPT))
    state = SamplerState.start(SAMPLING, seed=0, prompt=prompt, end_tokens=ends, n_ctx=engine.target.caps.n_ctx)
    replay = Replay(engine)
    first = state.law(replay.plain(prompt, ())[0])
    laws: dict[Text, float] = {}
    for token, p in first.top(len(first)):
        if token in ends:
            laws[(_END,)] = laws.get((_END,), 0.0) + p
            continue
        second = state.advance(token).law(replay.plain(prompt, (token,))[1])
        for other, q in second.top(len(second)):
            text = (token, _END if other in ends else other)
            laws[text] = laws.get(text, 0.0) + p * q
    return laws


def goodness(counts: Mapping[Text, int], laws: Mapping[Text, float]) -> tuple[float, int, float]:
    """Pearson's statistic, degrees of freedom and p-value. What is expected too seldom is put together; what cannot
    come at all makes the p-value 0."""
    total = sum(counts.values())
    if any(text not in laws for text in counts):
        return math.inf, 0, 0.0
    common = [text for text, p in laws.items() if p * total >= _FEWEST]
    cells = [(counts.get(text, 0), laws[text] * total) for text in common]
    seen, expected = total - sum(n for n, _ in cells), total - sum(e for _, e in cells)
    if expected > 1e-6 * total:
        cells.append((seen, expected))
    statistic = sum((n - e) ** 2 / e for n, e in cells)
    freedom = len(cells) - 1
    return statistic, freedom, upper_tail(statistic, freedom)


def upper_tail(statistic: float, freedom: int) -> float:
    """P(X >= statistic) for X chi-square distributed with so many degrees of freedom; 1 with none. It obeys
    Q(k + 2, x) = Q(k, x) + (x/2)^(k/2) e^(-x/2) / Γ(k/2 + 1), from Q(1, x) = erfc(√(x/2)) or Q(2, x) = e^(-x/2)."""
    if freedom < 1 or statistic <= 0:
        return 1.0
    half = statistic / 2
    tail, k = (math.exp(-half), 2) if freedom % 2 == 0 else (math.erfc(math.sqrt(half)), 1)
    while k < freedom:
        tail += math.exp(k / 2 * math.log(half) - half - math.lgamma(k / 2 + 1))
        k += 2
    return min(tail, 1.0)
