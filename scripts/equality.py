"""The long form of the equality tests: ``scripts/equality.py TARGET DRAFT [--wrong FILE] [--only NAME] [--tokens N]``.

Every drafter x chain and tree x sampler option on ten prompts: the ids must be those of the target alone. Meant for an
F32 target (scripts/dequantize.py), where rounding is far below what a fault would show; runs on one thread with F32
caches and without flash attention, for the same reason. ``--wrong`` names a draft model that is always wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from localspec.drafters.registry import MAKERS
from localspec.engine import Engine
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.types import Failed, Finished, GenerationRequest, Message, SamplingParams, SpecParams

PROMPTS = (
    "What is the capital of France?",
    "Write a Python function that returns the n-th Fibonacci number.",
    "The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the",
    "List five fruits, one a line.",
    "Once upon a time, in a village by the sea, there lived",
    "Repeat this text three times: the rain in Spain stays mainly in the plain.",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,",
    "Erkläre auf Deutsch, was ein Baum ist. 😀",
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n",
    '{"name": "Ada", "age": 36}\n{"name": "Bob", "age": 41}\n{"name": "',
)
BASIC = {
    "greedy": SamplingParams(temperature=0, seed=1),
    "seeded 0.8": SamplingParams(temperature=0.8, seed=7),
}
OPTIONS = {
    "top-k": SamplingParams(temperature=1, seed=2, top_k=5, top_p=1, min_p=0),
    "top-p": SamplingParams(temperature=1, seed=3, top_k=0, top_p=0.7, min_p=0),
    "min-p": SamplingParams(temperature=1.2, seed=4, top_k=0, top_p=1, min_p=0.1),
    "typical-p": SamplingParams(temperature=1.1, seed=5, typical_p=0.7, top_k=0),
    "temperature 1.5": SamplingParams(temperature=1.5, seed=6),
    "repeat": SamplingParams(temperature=0, seed=1, repeat_penalty=1.3),
    "repeat, window 8": SamplingParams(temperature=0, seed=1, repeat_penalty=1.3, repeat_last_n=8),
    "presence": SamplingParams(temperature=0.8, seed=8, presence_penalty=0.7),
    "frequency": SamplingParams(temperature=0.8, seed=9, frequency_penalty=0.4),
    "bias": SamplingParams(temperature=0, seed=1, logit_bias=((260, -float("inf")), (4649, -100.0), (216, 3.0))),
    "ignore-eos": SamplingParams(temperature=0, seed=1, ignore_eos=True),
    "min-tokens": SamplingParams(temperature=0, seed=1, min_tokens=20),
    "dry": SamplingParams(temperature=0, seed=1, dry_multiplier=0.8),
    "dry, whole text": SamplingParams(
        temperature=0.8,
        seed=11,
        dry_multiplier=2,
        dry_allowed_length=1,
        dry_penalty_last_n=-1,
        dry_sequence_breakers=(),
    ),
    "top-n-sigma": SamplingParams(temperature=1.5, seed=12, top_n_sigma=1, top_k=0, top_p=1, min_p=0),
    "xtc": SamplingParams(temperature=0.8, seed=13, xtc_probability=0.5, xtc_threshold=0.1),
    "dynatemp": SamplingParams(temperature=0.8, seed=14, dynatemp_range=0.7, dynatemp_exponent=1.5),
    "mirostat": SamplingParams(temperature=1, seed=15, mirostat=2, mirostat_tau=3, mirostat_eta=0.3),
    "adaptive-p": SamplingParams(
        temperature=1, seed=16, adaptive_target=0.5, adaptive_decay=0.8, samplers=("min_p", "temperature", "adaptive_p")
    ),
    "samplers reversed": SamplingParams(
        temperature=0.9, seed=10, samplers=("temperature", "min_p", "top_p", "top_k", "penalties"), repeat_penalty=1.1
    ),
}
SHAPES = {
    "chain": SpecParams(depth=4, nodes=4, mode="fixed"),
    "tree": SpecParams(depth=4, nodes=12, width=3, mode="fixed"),
}


def answers(engine: Engine, asked: Sequence[GenerationRequest]) -> list[Finished]:
    """The end of each answer; as many at once as the engine holds."""
    handles = [engine.submit(one) for one in asked]
    ends: dict[int, Finished] = {}
    while len(ends) < len(handles):
        engine.step()
        for handle in handles:
            for event in handle.drain():
                if isinstance(event, Failed):
                    sys.exit(f"an answer failed: {event.message}")
                if isinstance(event, Finished):
                    ends[handle.number] = event
    return [ends[handle.number] for handle in handles]


def wishes(sampling: SamplingParams, spec: SpecParams, prompts: Iterable[str], n: int) -> list[GenerationRequest]:
    return [
        GenerationRequest(messages=(Message("user", text),), max_tokens=n, sampling=sampling, spec=spec)
        for text in prompts
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--wrong", type=Path)
    parser.add_argument("--only", help="one drafter of the table")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--option-tokens", type=int, default=24)
    args = parser.parse_args()

    def model(path: Path) -> ModelOptions:
        return ModelOptions(path, threads=1, threads_batch=1, cache_type_k="f32", cache_type_v="f32")

    base = EngineOptions(model(args.target), n_ctx=2560, n_batch=512, flash_attn="off", sequences=10)
    engines = {
        "draft-simple": replace(base, draft=model(args.draft), spec_types=("draft-simple",)),
        **{name: replace(base, spec_types=(name,)) for name in MAKERS},
        "all that need no model": replace(base, spec_types=tuple(MAKERS)),
        "draft-simple + ngram-simple": replace(
            base, draft=model(args.draft), spec_types=("draft-simple", "ngram-simple")
        ),
    }
    if args.wrong is not None:
        wrong = replace(base, draft=model(args.wrong), spec_types=("draft-simple",))
        engines["draft-simple, always wrong"] = wrong
    if args.only is not None:
        engines = {args.only: engines[args.only]}
    settings: list[tuple[str, SamplingParams, tuple[str, ...], int]]
    settings = [(name, one, PROMPTS, args.tokens) for name, one in BASIC.items()]
    settings += [(name, one, PROMPTS[:4], args.option_tokens) for name, one in OPTIONS.items()]
    plain = {}
    with load(replace(base, spec_types=("none",))) as engine:
        for name, sampling, prompts, n in settings:
            plain[name] = [one.ids for one in answers(engine, wishes(sampling, SpecParams(depth=0), prompts, n))]
    print("| drafter | shape | sampler | tokens | steps | alpha | equal |\n| --- | --- | --- | --: | --: | --: | --- |")
    unequal = 0
    for drafter, options in engines.items():
        with load(options) as engine:
            for shape, spec in SHAPES.items():
                for name, sampling, prompts, n in settings:
                    ends = answers(engine, wishes(sampling, spec, prompts, n))
                    equal = sum(end.ids == ids for end, ids in zip(ends, plain[name], strict=True))
                    unequal += len(ends) - equal
                    stats = [end.stats for end in ends]
                    tested = sum(one.tested for one in stats)
                    alpha = f"{sum(one.accepted for one in stats) / tested:.3f}" if tested else "-"
                    tokens, steps = sum(one.emitted for one in stats), sum(one.steps for one in stats)
                    print(
                        f"| {drafter} | {shape} | {name} | {tokens} | {steps} | {alpha} | {equal} of {len(ends)} |",
                        flush=True,
                    )
    sys.exit(f"{unequal} answers differ: look at each for a near-tie" if unequal else 0)


if __name__ == "__main__":
    main()
