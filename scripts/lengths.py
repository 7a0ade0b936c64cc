"""How many tokens a step of fixed shape brings, by category: ``python -m scripts.lengths [flags]``.

Every prompt is answered with a chain of four guesses and with a tree of sixteen nodes (width 4), by each drafter file
and by ``ngram-simple``; no controller, no clock. ``mean accepted length`` counts steps that had a guess, ``tokens a
step`` all of them. Answers that differ from plain decoding are counted, too.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from localspec.engine import Engine
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.models.demo import DEMO_DRAFTERS, demo_drafter, demo_model
from localspec.tools import bench
from localspec.tools.prompts import Prompt, built_in, read_prompts
from localspec.types import Failed, Finished, GenerationRequest, SamplingParams, SpecParams, SpecStats

SHAPES = {
    "chain of 4": SpecParams(depth=4, nodes=4, width=1, mode="fixed"),
    "tree of 16": SpecParams(depth=5, nodes=16, width=4, mode="fixed"),
}
PLAIN = SpecParams(mode="off")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/lengths.py", description=__doc__)
    parser.add_argument("-m", "--model", type=Path, default=None, help="the target; default: the demo model")
    parser.add_argument(
        "--drafter", action="append", metavar="NAME=FILE", help="repeatable; default: those that come along"
    )
    parser.add_argument("--prompts", type=Path, help="as bench reads them; default: the prompts of bench")
    parser.add_argument("-n", type=int, default=64, help="tokens an answer")
    parser.add_argument("--temp", type=float, default=0.0)
    parser.add_argument("-t", "--threads", type=int, default=2)
    args = parser.parse_args()

    prompts = read_prompts(args.prompts) if args.prompts else built_in(bench.__name__)
    sampling = SamplingParams(temperature=args.temp, seed=1)
    target = ModelOptions(args.model or demo_model(), threads=args.threads, threads_batch=args.threads)
    base = EngineOptions(target, n_ctx=4096, tree_nodes=16, measure=False)
    files = dict(
        one.split("=", 1) for one in args.drafter or [f"{name}={demo_drafter(name)}" for name in DEMO_DRAFTERS]
    )
    engines = {
        name: replace(base, draft=replace(target, path=Path(path)), spec_types=None) for name, path in files.items()
    }
    engines["ngram-simple"] = replace(base, spec_types=("ngram-simple",))
    plain: Mapping[str, Finished] = {}
    lines: dict[str, dict[str, SpecStats]] = {}
    for name, options in engines.items():
        with load(options) as engine:
            only = tuple(kind for kind in engine.info.drafters if kind.startswith(("draft-", "ngram-")))
            plain = plain or answers(engine, prompts, sampling, PLAIN, args.n)
            for shape, spec in SHAPES.items():
                ends = answers(engine, prompts, sampling, replace(spec, types=only), args.n)
                differ = sum(ends[key].ids != plain[key].ids for key in ends)
                label = f"{name}, {shape}"
                print(f"{label}: {differ} of {len(ends)} answers differ", file=sys.stderr, flush=True)
                lines[label] = by_category(prompts, ends)
    print(*table(lines), sep="\n")


def answers(
    engine: Engine, prompts: Iterable[Prompt], sampling: SamplingParams, spec: SpecParams, n: int
) -> dict[str, Finished]:
    """The end of each answer, one after the other."""
    ends = {}
    for prompt in prompts:
        request = GenerationRequest(messages=prompt.messages, max_tokens=n, sampling=sampling, spec=spec)
        for event in engine.submit(request):
            if isinstance(event, Failed):
                sys.exit(f"an answer failed: {event.message}")
            if isinstance(event, Finished):
                ends[prompt.id] = event
    return ends


def by_category(prompts: Iterable[Prompt], ends: Mapping[str, Finished]) -> dict[str, SpecStats]:
    sums: dict[str, SpecStats] = defaultdict(SpecStats)
    for prompt in prompts:
        for key in (prompt.category, "all"):
            sums[key] += ends[prompt.id].stats
    return sums


def table(lines: Mapping[str, Mapping[str, SpecStats]]) -> Iterable[str]:
    """Mean accepted length (tokens a step), a row a setting and a column a category."""
    columns: Sequence[str] = list(next(iter(lines.values())))
    yield "| | " + " | ".join(columns) + " |"
    yield "| --- |" + " ---: |" * len(columns)
    for label, stats in lines.items():
        cells = (f"{stats[one].mean_length or 1:.2f} ({stats[one].tokens_per_step or 1:.2f})" for one in columns)
        yield f"| {label} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
