"""A training run that can die at any moment: what it knows lies in its folder, and it goes on from there.

Each step's rows follow from the step's number and from what was seen before it, so an interrupted run ends with the
weights of one that was not.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from localspec.errors import UsageError
from localspec.train.learner import Acceptance, Learner, acceptance
from localspec.train.muon import Muon
from localspec.train.notes import Notes, joined
from localspec.train.whole import whole

#: Texts of a step.
ROWS = 3
#: Steps until the rate of learning is reached, and the share of a budget in which it falls to 0.
_WARM_UP, _COOL_DOWN = 20, 0.3
#: Rates: of matrices, whose steps have the size of the matrix (Muon), and of everything else (Adam).
_MATRIX_RATE, _RATE = 0.02, 5e-4
#: Of parameters that have a row a token: a head's begin as the target's own, those of a draft model as their shadow.
_TABLE_RATES = {"output": _RATE, "token_embd": 3e-3}
#: The weights that are kept are a mean over about so many of the last steps, and never over more than a share of all.
_MEMORY, _MEMORY_SHARE = 100, 0.1
_GRADIENT = 1.0


@dataclass(frozen=True, slots=True)
class Point:
    """The learning curve at one moment: tokens learned from (a text counts each time), and what is accepted."""

    tokens: int
    acceptance: Acceptance


@dataclass(slots=True)
class State:
    """What a run knows besides weights: ``visits`` are how often each row of each part was learned from, ``seconds``
    what all of it took."""

    step: int = 0
    tokens: int = 0
    loss: float = float("nan")
    seconds: float = 0.0
    visits: dict[str, list[int]] = field(default_factory=dict)
    curve: list[Point] = field(default_factory=list)


class Run:
    """Training of ``learner`` on notes that may become more while it goes."""

    def __init__(self, learner: Learner, file: Path, seed: int = 0) -> None:
        self.learner, self.state = learner, State()
        self._file, self._seed = file, seed
        self._optimisers = _optimisers(learner.module)
        self._mean = {name: value.detach().clone() for name, value in learner.module.state_dict().items()}
        if file.exists():
            self._load(_kept(file))

    @property
    def weights(self) -> Mapping[str, Tensor]:
        """The weights to keep."""
        return self._mean

    def passes(self, parts: Mapping[str, Notes]) -> float:
        """How often a row of ``parts`` was learned from, on average."""
        visits = [count for name, notes in parts.items() for count in self._visits(name, notes)]
        return float(np.mean(visits)) if visits else 0.0

    def step(self, parts: Mapping[str, Notes], done: float) -> None:
        """Learns from some rows of ``parts``; ``done`` is the share of the budget that is spent."""
        rng = np.random.default_rng([self._seed, self.state.step])
        notes = self._pick(parts, rng)
        rate = min(1.0, (self.state.step + 1) / _WARM_UP, (1 - done) / _COOL_DOWN)
        for optimiser in self._optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["full_lr"] * max(rate, 0.0)
            optimiser.zero_grad(set_to_none=True)
        loss = self.learner.loss(notes, rng)
        loss.backward()
        nn.utils.clip_grad_norm_(self.learner.module.parameters(), _GRADIENT)
        for optimiser in self._optimisers:
            optimiser.step()
        state = self.state
        state.step += 1
        state.tokens += notes.tokens.numel()
        now = float(loss.detach())
        state.loss = now if np.isnan(state.loss) else 0.95 * state.loss + 0.05 * now
        self._remember()

    def measure(self, held: list[Notes]) -> Point:
        """Adds a point to the curve."""
        module = self.learner.module
        now = {name: value.clone() for name, value in module.state_dict().items()}
        module.load_state_dict(self._mean)
        point = Point(self.state.tokens, acceptance(self.learner, held))
        module.load_state_dict(now)
        self.state.curve.append(point)
        return point

    def save(self) -> None:
        """The state in the file is this one or the one before, whole."""
        kept: dict[str, Any] = {
            "weights": self.learner.module.state_dict(),
            "mean": self._mean,
            "optimisers": [one.state_dict() for one in self._optimisers],
            "state": self.state,
        }
        with whole(self._file) as part:
            torch.save(kept, part)

    def _load(self, kept: Mapping[str, Any]) -> None:
        self.learner.module.load_state_dict(kept["weights"])
        self._mean, self.state = kept["mean"], kept["state"]
        for one, state in zip(self._optimisers, kept["optimisers"], strict=True):
            one.load_state_dict(state)

    def _visits(self, name: str, notes: Notes) -> list[int]:
        return self.state.visits.setdefault(name, [0] * len(notes.tokens))

    def _pick(self, parts: Mapping[str, Notes], rng: np.random.Generator) -> Notes:
        """Rows at random, those that were seen less the likelier: new text is learned from soon, old text again."""
        places = [(name, row) for name, notes in parts.items() for row in range(len(notes.tokens))]
        seen = np.array([count for name, notes in parts.items() for count in self._visits(name, notes)])
        share = 1.0 / (1.0 + seen - seen.min()) ** 2
        picked = rng.choice(len(places), min(ROWS, len(places)), replace=False, p=share / share.sum())
        for at in picked:
            name, row = places[at]
            self.state.visits[name][row] += 1
        return joined([parts[name].rows([row]) for name, row in (places[at] for at in picked)])

    @torch.no_grad()
    def _remember(self) -> None:
        rest = max(1 / _MEMORY, 1 / (1 + _MEMORY_SHARE * self.state.step))
        for name, value in self.learner.module.state_dict().items():
            self._mean[name].lerp_(value, rest)


def _kept(file: Path) -> Mapping[str, Any]:
    """Raises `UsageError`: the file was damaged from outside; this program replaces it whole."""
    try:
        # A work folder may come from anywhere: it holds numbers, and nothing in it is run.
        with torch.serialization.safe_globals([State, Point, Acceptance]):
            found: Mapping[str, Any] = torch.load(file, weights_only=True)
    except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError):
        hint = "Remove it: the texts are kept, and learning begins again."
        raise UsageError(f"{file} cannot be read, or is damaged", hint=hint) from None
    return found


def _optimisers(module: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for matrices between states, Adam for tables of tokens and for scales: a table has rows of its own to move,
    and no directions that all of them share."""
    named = dict(module.named_parameters())
    matrices = [one for name, one in named.items() if one.ndim == 2 and name not in _TABLE_RATES]
    others = [
        {"params": [one], "lr": _TABLE_RATES.get(name, _RATE)}
        for name, one in named.items()
        if one.ndim != 2 or name in _TABLE_RATES
    ]
    found = [Muon(matrices, lr=_MATRIX_RATE), torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0)]
    for optimiser in found:
        for group in optimiser.param_groups:
            group["full_lr"] = group["lr"]
    return found
