#!/usr/bin/env python3
"""Does speculation pay on this machine? Plain and speculative decoding, interleaved, in one engine.

    scripts/compare.py [MODEL] [--draft FILE] [--rounds 5] [--tokens 96] [-t N]

Each setting is paired with a plain run on the same prompt right beside it, before it in one round and after it in the
next, at temperature 0 and without an end, so that both make the same number of tokens. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from localspec import (
    EngineOptions,
    Finished,
    GenerationRequest,
    Message,
    ModelOptions,
    SamplingParams,
    SpecParams,
    load,
)
from localspec.engine import Engine
from localspec.models.demo import demo_model

LETTER = """Dear neighbours,
the water will be turned off on Tuesday from nine in the morning until noon, because the pump in the cellar is being
replaced. Please fill a bucket or two the evening before. The laundry room stays closed until Wednesday. If you have
questions, ring at the second floor on the left, or leave a note in the green letter box beside the stairs.
With kind regards, the house committee"""

PROMPTS = {
    "edit": f"Repeat this letter word for word, but write Friday instead of Tuesday:\n\n{LETTER}",
    "list": "Write a numbered list of thirty animals. Each line is: number, animal, where it lives.",
    "prose": "Tell a short story about a lighthouse keeper who finds a bottle with a map in it.",
}

PLAIN = SpecParams(depth=0)
NGRAM = SpecParams(depth=8, types=("ngram-simple",), mode="fixed")
DRAFT = SpecParams(depth=4, types=("draft-simple",), mode="fixed")


@dataclass(frozen=True, slots=True)
class Run:
    """One answer: tokens per second, mean accepted length, α, and the tokens."""

    speed: float
    length: float | None
    alpha: float | None
    ids: tuple[int, ...]


#: (kind of prompt, setting) → pairs of a plain run and its own, one a round.
Pairs = dict[tuple[str, str], list[tuple[Run, Run]]]


def settings(draft: bool) -> dict[str, SpecParams]:
    """Name → setting."""
    found = {
        "suffix, auto": SpecParams(depth=16, width=2, types=("suffix",)),
        "ngram-simple, auto": SpecParams(depth=16, width=2, types=("ngram-simple",)),
        "ngram-simple, chain of 8": NGRAM,
        "ngram-simple, tree of 12": replace(NGRAM, width=2, nodes=12),
    }
    if draft:
        found |= {
            "suffix + draft-simple, auto": SpecParams(depth=16, types=("suffix", "draft-simple")),
            "draft-simple, auto": SpecParams(depth=16, types=("draft-simple",)),
            "draft-simple, chain of 4": DRAFT,
            "draft-simple, tree of 8": replace(DRAFT, width=2, nodes=8),
        }
    return found


def run(engine: Engine, prompt: str, spec: SpecParams, tokens: int) -> Run:
    sampling = SamplingParams(temperature=0, ignore_eos=True)
    asked = {"max_tokens": tokens, "sampling": sampling, "spec": spec}
    if engine.info.has_template:
        request = GenerationRequest(messages=(Message("user", prompt),), **asked)  # type: ignore[arg-type]
    else:
        request = GenerationRequest(prompt=prompt, **asked)  # type: ignore[arg-type]
    *_, last = engine.submit(request)
    if not isinstance(last, Finished):
        raise SystemExit(f"no answer: {last}")
    return Run(last.timings.tokens_per_second or 0.0, last.stats.mean_length, last.stats.alpha, last.ids)


def measure(engine: Engine, ways: dict[str, SpecParams], rounds: int, tokens: int) -> Pairs:
    for prompt in PROMPTS.values():
        for spec in (PLAIN, *ways.values()):  # caches fill, buffers are made, graphs are built
            run(engine, prompt, spec, 8)
    pairs: Pairs = defaultdict(list)
    for turn in range(rounds):
        for kind, prompt in PROMPTS.items():
            for name, spec in ways.items():
                if turn % 2:
                    mine = run(engine, prompt, spec, tokens)
                    plain = run(engine, prompt, PLAIN, tokens)
                else:
                    plain = run(engine, prompt, PLAIN, tokens)
                    mine = run(engine, prompt, spec, tokens)
                pairs[kind, name].append((plain, mine))
    return pairs


def table(pairs: Pairs) -> str:
    """A row a setting; each cell: median of the speeds against plain decoding, their range, mean length, α."""
    names = list(dict.fromkeys(name for _, name in pairs))
    lines = ["| | " + " | ".join(PROMPTS) + " | same text |", "| --- |" + " --- |" * (len(PROMPTS) + 1)]
    speeds = [f"{plain_speed(pairs, kind):.1f} tok/s" for kind in PROMPTS]
    lines.append("| plain | " + " | ".join(speeds) + " | |")
    for name in names:
        mine = [pairs[kind, name] for kind in PROMPTS]
        same = [a.ids == b.ids for runs in mine for a, b in runs]
        lines.append(f"| {name} | " + " | ".join(map(cell, mine)) + f" | {sum(same)}/{len(same)} |")
    return "\n".join(lines)


def plain_speed(pairs: Pairs, kind: str) -> float:
    return median(plain.speed for (of, _), runs in pairs.items() if of == kind for plain, _ in runs)


def cell(runs: list[tuple[Run, Run]]) -> str:
    ratios = sorted(mine.speed / plain.speed for plain, mine in runs)
    text = f"×{median(ratios):.2f} [{ratios[0]:.1f}–{ratios[-1]:.1f}]"
    lengths = [mine.length for _, mine in runs if mine.length is not None]
    alphas = [mine.alpha for _, mine in runs if mine.alpha is not None]
    return f"{text}, {median(lengths):.1f}, {median(alphas):.2f}" if lengths and alphas else f"{text}, no guess"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="target; default: the demo model")
    parser.add_argument("--draft", type=Path, help="draft model, for the settings with one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("-t", "--threads", type=int, help="default: as localspec chooses")
    args = parser.parse_args()
    target = ModelOptions(args.model or demo_model(), threads=args.threads)
    types = ("suffix", "ngram-simple", *(("draft-simple",) if args.draft else ()))
    pair = ModelOptions(args.draft, threads=args.threads) if args.draft else None
    ways = settings(draft=args.draft is not None)
    with load(EngineOptions(target, draft=pair, spec_types=types, n_ctx=1024)) as engine:
        pairs = measure(engine, ways, args.rounds, args.tokens)
    name = f"`{target.path.name}`" + (f", draft `{args.draft.name}`" if args.draft else "")
    machine = f"{os.cpu_count()} cores, {platform.machine()}, {datetime.date.today().isoformat()}"
    print(f"{name}: {args.rounds} rounds of {args.tokens} tokens; {machine}\n")
    print(table(pairs))


if __name__ == "__main__":
    main()
