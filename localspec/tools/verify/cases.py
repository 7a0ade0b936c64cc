"""What is tried: drafters, samplers, and shapes of guesses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from localspec.tools.verify.pairwise import covering
from localspec.types import SamplingParams, SpecParams

_OPEN = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)
#: Sentences that begin and end in one way: some tokens are forced, most are not.
_GRAMMAR = 'root ::= ("A" [a-z, ]{4,16} "."){1,9}'
#: One of each option that has a say in what is drawn.
SAMPLERS: Mapping[str, SamplingParams] = {
    "greedy": SamplingParams(temperature=0, seed=1),
    "seeded": SamplingParams(temperature=0.8, seed=7),
    "top-k": replace(_OPEN, top_k=5, seed=2),
    "top-p": replace(_OPEN, top_p=0.7, seed=3),
    "min-p": replace(_OPEN, temperature=1.2, min_p=0.1, seed=4),
    "typical": replace(_OPEN, temperature=1.1, typical_p=0.7, seed=5),
    "hot": SamplingParams(temperature=1.5, seed=6),
    "repeat": SamplingParams(temperature=0, repeat_penalty=1.3, seed=1),
    "repeat-8": SamplingParams(temperature=0, repeat_penalty=1.3, repeat_last_n=8, seed=1),
    "presence": SamplingParams(presence_penalty=0.7, seed=8),
    "frequency": SamplingParams(frequency_penalty=0.4, seed=9),
    "bias": SamplingParams(temperature=0, logit_bias=((11, float("-inf")), (13, 3.0)), seed=1),
    "ignore-eos": SamplingParams(temperature=0, ignore_eos=True, seed=1),
    "min-tokens": SamplingParams(temperature=0, min_tokens=20, seed=1),
    "reversed": SamplingParams(
        repeat_penalty=1.1, samplers=("temperature", "min_p", "top_p", "top_k", "penalties"), seed=10
    ),
    "top-n-sigma": replace(_OPEN, top_n_sigma=1.0, seed=11),
    "xtc": SamplingParams(xtc_probability=0.5, xtc_threshold=0.1, seed=12),
    "dry": SamplingParams(temperature=0, dry_multiplier=0.8, dry_allowed_length=2, dry_penalty_last_n=-1, seed=1),
    "dynatemp": SamplingParams(dynatemp_range=0.5, seed=13),
    "mirostat": SamplingParams(mirostat=2, mirostat_tau=3.0, mirostat_eta=0.2, seed=14),
    "adaptive-p": SamplingParams(adaptive_target=0.4, samplers=("top_k", "min_p", "adaptive_p"), seed=15),
    "grammar": SamplingParams(grammar=_GRAMMAR, seed=16),
}
#: Shapes that always guess; ``given`` is what the request says.
SHAPES: Mapping[str, SpecParams] = {
    "chain": SpecParams(depth=4, nodes=4, mode="fixed"),
    "tree": SpecParams(depth=4, nodes=12, width=3, mode="fixed"),
}
GIVEN = "given"
#: Rows of a pass that the shapes need.
MOST_NODES = max(shape.nodes for shape in SHAPES.values())


@dataclass(frozen=True, slots=True)
class Case:
    """One combination. ``name`` says which."""

    drafters: tuple[str, ...]
    sampler: str
    shape: str
    sampling: SamplingParams
    spec: SpecParams

    @property
    def name(self) -> str:
        return f"{' + '.join(self.drafters)}, {self.shape}"


def cases(
    drafters: Sequence[str], samplers: Sequence[str], shapes: Sequence[str], given: SpecParams
) -> tuple[Case, ...]:
    """A covering array: every drafter (each alone, and all together) meets every sampler and every shape, and every
    sampler every shape."""
    groups = [*((name,) for name in drafters), *([tuple(drafters)] if len(drafters) > 1 else [])]
    known = {GIVEN: given, **SHAPES}
    rows = covering((len(groups), len(samplers), len(shapes)))
    return tuple(
        Case(
            groups[i],
            samplers[j],
            shapes[k],
            SAMPLERS[samplers[j]],
            replace(known[shapes[k]], types=groups[i], accept="draw"),
        )
        for i, j, k in rows
    )
