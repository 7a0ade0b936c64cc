"""The whole check: every case on every prompt, the control beside it, and the two acceptance rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from localspec.engine import Engine
from localspec.engine.samplers import Samplers
from localspec.tools.prompts import Prompt
from localspec.tools.verify.cases import Case
from localspec.tools.verify.chances import Chances, chances
from localspec.tools.verify.judge import (
    Control,
    Difference,
    Judge,
    Verdict,
    allowed_differences,
    control,
    parted,
    states,
)
from localspec.tools.verify.replay import Answer, Replay, answer
from localspec.types import AcceptRule, GenerationRequest, SamplingParams, SpecParams

PLAIN = SpecParams(depth=0)
#: The second is not an exact engine's.
RULES: tuple[AcceptRule, ...] = ("draw", "ratio")
NONE = Control(0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Compared:
    """One prompt in one case: tokens of the plain answer, positions up to where the answers part, guesses that held."""

    prompt: str
    tokens: int
    compared: int
    accepted: int
    difference: Difference | None

    @property
    def verdict(self) -> Verdict:
        return "equal" if self.difference is None else self.difference.verdict


@dataclass(slots=True)
class CaseResult:
    """All prompts of one case. ``allowed`` is how many may differ by rounding if they do so as often as the control."""

    case: Case
    prompts: list[Compared] = field(default_factory=list)
    allowed: float = 0.0

    @property
    def differences(self) -> int:
        return sum(one.difference is not None for one in self.prompts)

    @property
    def verdict(self) -> Verdict:
        if any(one.verdict == "fault" for one in self.prompts) or self.differences > self.allowed:
            return "fault"
        return "rounding" if self.differences else "equal"


@dataclass(frozen=True, slots=True)
class Checked:
    """All of it. ``control`` sums over all texts: what happens to them without a single guess."""

    cases: tuple[CaseResult, ...]
    control: Control
    chances: tuple[Chances, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        found = {one.verdict for one in self.cases} | {"equal" if one.sound else "fault" for one in self.chances}
        return "fault" if "fault" in found else "rounding" if "rounding" in found else "equal"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is checked: cases, prompts, tokens an answer, seeds for the test of the acceptance rules (0: none)."""

    cases: tuple[Case, ...]
    prompts: tuple[Prompt, ...]
    tokens: int
    seeds: int


def verify(engine: Engine, plan: Plan, progress: Callable[[float], object] = lambda share: None) -> Checked:
    """Answers every prompt plainly and in every case, and judges each difference. Needs an engine of two sequences or
    more: the control has another text in the cache. An exact engine needs none, and no difference is allowed to it.

    Raises:
        UsageError: a prompt does not fit into the context.
        EngineError: an answer failed.
    """
    results = {case: CaseResult(case) for case in plan.cases}
    exact = engine.info.exact is not None
    rules = RULES if plan.seeds and not exact else RULES[: bool(plan.seeds)]
    samplers = Samplers(engine.target.vocab, engine.target.caps.n_ctx)
    controls: list[Control] = []
    by_sampler = [list(group) for _, group in groupby(sorted(plan.cases, key=_sampler), key=_sampler)]
    done, steps = 0, len(plan.prompts) * len(by_sampler) + len(rules)
    for group in by_sampler:
        for prompt in plan.prompts:
            found, allowed = _compared(engine, samplers, prompt, group, plan.tokens)
            controls.append(allowed)
            for case, one in zip(group, found, strict=True):
                results[case].prompts.append(one)
            done += 1
            progress(done / steps)
    whole = Control(
        sum(one.positions for one in controls),
        sum(one.flips for one in controls),
        max((one.moved for one in controls), default=0.0),
    )
    for result in results.values():
        compared = sum(one.compared for one in result.prompts)
        result.allowed = 0 if exact else allowed_differences(compared, whole.flips, whole.positions)
    tests = []
    for rule in rules:
        tests.append(chances(engine, rule, plan.seeds))
        done += 1
        progress(done / steps)
    return Checked(tuple(results.values()), whole, tuple(tests))


def _sampler(case: Case) -> str:
    return case.sampler


def _compared(
    engine: Engine, samplers: Samplers, prompt: Prompt, cases: Sequence[Case], tokens: int
) -> tuple[list[Compared], Control]:
    """One prompt by one sampler in several cases, and the control on its text."""
    sampling = cases[0].sampling
    plain = answer(engine, _request(engine, prompt, sampling, PLAIN, tokens))
    replay, target = Replay(engine), engine.target
    rows = replay.plain(plain.prompt, plain.ids)
    at = list(states(samplers.start(sampling, plain.prompt), plain.ids, rows))
    allowed = NONE if engine.info.exact is not None else control(at, rows, replay.moved(plain.prompt, plain.ids))

    def piece(token: int) -> str:
        return target.vocab.piece(token, special=True).decode("utf-8", "replace")

    judge = Judge(plain, rows, at, allowed, target.vocab.end_tokens, piece)
    found = []
    for case in cases:
        ours = answer(engine, _request(engine, prompt, sampling, case.spec, tokens), trace=True)
        position = parted(plain, ours)
        difference = None if position is None else _judged(engine, judge, ours, position)
        compared = len(plain.ids) if position is None else position + 1
        found.append(Compared(prompt.id, len(plain.ids), compared, ours.accepted, difference))
    return found, allowed


def _judged(engine: Engine, judge: Judge, ours: Answer, position: int) -> Difference:
    return judge.judge(ours, position, Replay(engine).as_verified(ours, position))


def _request(
    engine: Engine, prompt: Prompt, sampling: SamplingParams, spec: SpecParams, tokens: int
) -> GenerationRequest:
    templated = engine.info.has_template
    return GenerationRequest(
        prompt=None if templated else prompt.text,
        messages=prompt.messages if templated else None,
        max_tokens=tokens,
        sampling=sampling,
        spec=spec,
    )


def record(checked: Checked) -> dict[str, Any]:
    """All of it as one JSON object."""
    return {
        "verdict": checked.verdict,
        "control": {**asdict(checked.control), "bound": checked.control.bound},
        "cases": [
            {
                "drafters": list(one.case.drafters),
                "sampler": one.case.sampler,
                "shape": one.case.shape,
                "sampling": asdict(one.case.sampling),
                "speculation": asdict(one.case.spec),
                "verdict": one.verdict,
                "differences": one.differences,
                "differences_allowed": one.allowed,
                "prompts": [{**asdict(prompt), "verdict": prompt.verdict} for prompt in one.prompts],
            }
            for one in checked.cases
        ],
        "acceptance_rules": [{**asdict(one), "sound": one.sound} for one in checked.chances],
    }
