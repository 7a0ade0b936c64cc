"""The samplers that come last and learn from what was drawn. Immutable: what is learnt makes a new one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from localspec.sampling import filters
from localspec.sampling.filters import Scores
from localspec.types import SamplingParams

_WIDTH, _PEAK, _SHARPNESS = 0.3, 5.0, 10.0  # of adaptive-p, as llama.cpp has them


@dataclass(frozen=True, slots=True)
class Mirostat:
    """Mirostat 2.0 (Basu et al., arXiv 2007.14966): tokens whose surprise is above ``mu`` bits are left out, and ``mu``
    follows the surprise of what is drawn, so that it stays around ``tau``; ``eta`` is the learning rate."""

    tau: float
    eta: float
    mu: float

    def apply(self, scores: Scores) -> Scores:
        """What may be drawn; the likeliest token at least."""
        peak = scores.peak()
        bound = filters.log_mass(scores) - self.mu * math.log(2)
        if bound > peak:
            return filters.likeliest(scores)
        return scores.keep((scores.logits >= bound).nonzero()[0], peak)

    def learn(self, scores: Scores, token: int) -> Mirostat:
        """After ``token`` was drawn from ``scores``, as they come in."""
        p = filters.to_law(self.apply(scores)).p(token)
        return replace(self, mu=self.mu - self.eta * (-math.log2(p) - self.tau)) if p > 0 else self


@dataclass(frozen=True, slots=True)
class AdaptiveP:
    """Adaptive-p (https://github.com/ggml-org/llama.cpp/pull/17927): tokens whose probability is near a target are
    preferred, and the target is moved so that the probabilities of what is drawn average ``target``. ``total`` is the
    sum of those, the older the less by powers of ``decay``, and ``weight`` that of the powers."""

    target: float
    decay: float
    total: float
    weight: float

    def apply(self, scores: Scores) -> Scores:
        """Scores that fall off with the distance from the target: quadratically near to it, linearly far from it."""
        live = (scores.logits > -math.inf).nonzero()[0]
        mass = filters.softmax(scores)[live]
        target = min(max(2 * self.target - self.total / self.weight, 0.0), 1.0)
        distance = np.abs(mass - target) / _WIDTH
        return Scores(scores.keep(live).ids, _PEAK - _SHARPNESS * distance**2 / (1 + distance))

    def learn(self, scores: Scores, token: int) -> AdaptiveP:
        """After ``token`` was drawn from ``scores``, as they come in."""
        p = filters.to_law(scores).p(token)
        return replace(self, total=p + self.decay * self.total, weight=1 + self.decay * self.weight)


Learner = Mirostat | AdaptiveP


def learner(params: SamplingParams) -> Learner | None:
    """The one that these options ask for, before it has learnt anything."""
    if params.mirostat:
        return Mirostat(params.mirostat_tau, params.mirostat_eta, 2 * params.mirostat_tau)
    target, decay = params.adaptive_target, params.adaptive_decay
    if "adaptive_p" in params.samplers and target >= 0:
        return AdaptiveP(target, decay, target / (1 - decay), 1 / (1 - decay))
    return None
