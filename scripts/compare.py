#!/usr/bin/env python3
"""Does speculation pay on this machine? Plain and speculative decoding, interleaved, in one engine.

    scripts/compare.py [MODEL] [--draft FILE] [--rounds 5] [--tokens 96] [-t N]

Each round runs plain decoding first and then every setting, on the same prompt at temperature 0 and without an end,
so that all make the same number of tokens; what is compared is always of one round. Prints a Markdown table: medians
of the rounds.
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
NGRAM = SpecParams(depth=8, types=("ngram-simple",))
DRAFT = SpecParams(depth=4, types=("draft-simple",))


@dataclass(frozen=True, slots=True)
class Run:
    """One answer: tokens per second, mean accepted length, α, and the tokens."""

    speed: float
    length: float | None
    alpha: float | None
    ids: tuple[int, ...]


def settings(draft: bool) -> dict[str, SpecParams]:
    """Name → setting; plain decoding first."""
    found = {
        "plain": PLAIN,
        "ngram-simple, chain of 8": NGRAM,
        "ngram-simple, tree of 12": replace(NGRAM, width=2, nodes=12),
    }
    if draft:
        found |= {
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


def measure(engine: Engine, ways: dict[str, SpecParams], rounds: int, tokens: int) -> dict[tuple[str, str], list[Run]]:
    """(kind of prompt, setting) → its runs, one a round."""
    runs: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for kind, prompt in PROMPTS.items():
        for spec in ways.values():  # caches fill, buffers are made, graphs are built
            run(engine, prompt, spec, 16)
        for _ in range(rounds):
            for name, spec in ways.items():
                runs[kind, name].append(run(engine, prompt, spec, tokens))
    return runs


def table(runs: dict[tuple[str, str], list[Run]], names: list[str]) -> str:
    """A row a setting; each cell: speed against plain decoding of the same round, (mean length, α)."""
    kinds = list(PROMPTS)
    lines = ["| | " + " | ".join(kinds) + " | same text |", "| --- |" + " ---: |" * (len(kinds) + 1)]
    for name in names:
        cells, same, total = [], 0, 0
        for kind in kinds:
            plain, mine = runs[kind, "plain"], runs[kind, name]
            same += sum(a.ids == b.ids for a, b in zip(plain, mine, strict=True))
            total += len(mine)
            cells.append(cell(plain, mine, name == "plain"))
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {same}/{total} |")
    return "\n".join(lines)


def cell(plain: list[Run], mine: list[Run], base: bool) -> str:
    if base:
        return f"{median(one.speed for one in mine):.1f} tok/s"
    ratio = median(b.speed / a.speed for a, b in zip(plain, mine, strict=True))
    lengths = [one.length for one in mine if one.length is not None]
    alphas = [one.alpha for one in mine if one.alpha is not None]
    if not lengths or not alphas:
        return f"×{ratio:.2f} (no guess)"
    return f"×{ratio:.2f} ({median(lengths):.1f}, {median(alphas):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="target; default: the demo model")
    parser.add_argument("--draft", type=Path, help="draft model, for the settings with one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("-t", "--threads", type=int, help="default: as localspec chooses")
    args = parser.parse_args()
    target = ModelOptions(args.model or demo_model(), threads=args.threads)
    types = ("ngram-simple", "draft-simple") if args.draft else ("ngram-simple",)
    pair = ModelOptions(args.draft, threads=args.threads) if args.draft else None
    ways = settings(draft=args.draft is not None)
    with load(EngineOptions(target, draft=pair, spec_types=types, n_ctx=1024)) as engine:
        runs = measure(engine, ways, args.rounds, args.tokens)
    pairing = f" with draft {args.draft.name}" if args.draft else ""
    print(f"{target.path.name}{pairing}, {args.rounds} rounds of {args.tokens} tokens, {os.cpu_count()} cores")
    print(f"({platform.machine()}), {datetime.date.today().isoformat()}. Speed against plain (mean length, α):\n")
    print(table(runs, list(ways)))


if __name__ == "__main__":
    main()
