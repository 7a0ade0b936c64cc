#!/usr/bin/env python3
"""A hundred answers by JSON schemas: valid, the same with guesses and without, and how fast.

    python -m scripts.grammar TARGET [--draft FILE] [--requests 100] [--skip 0] [--tokens 700] [--spec auto]

Every request is answered by the target alone and with guesses, in turn; half of them greedy, half at temperature 0.8.
No schema leaves the size of its texts open: a small model may never come to an end by itself. Meant for an F32 target
(scripts/dequantize.py), on a fixed number of threads and with F32 caches: rounding is far below what a fault would
show. ``--skip`` leaves out the first so many, for runs in pieces. Exits with 1 if an answer is cut, is not of its
schema, or differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count, islice, product
from pathlib import Path
from typing import Any

from localspec.control import core_count
from localspec.engine import Engine
from localspec.grammar import schema_grammar
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.types import Failed, Finished, GenerationRequest, Message, SamplingParams, SpecParams, Tokens
from tests.support.json_schema import fits

_TEXT = {"type": "string", "minLength": 1, "maxLength": 40}
_NUMBER = {"type": "integer", "minimum": 1, "maximum": 99}
_LABEL = {"type": "string", "maxLength": 12}
_YEAR = {"type": "integer", "minimum": 1000, "maximum": 2100}


def _object(properties: dict[str, Any], *, optional: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, **more}


SCHEMAS: dict[str, Any] = {
    "person": _object(
        {"name": _TEXT, "age": {"type": "integer", "minimum": 0, "maximum": 120}, "married": {"type": "boolean"}}
    ),
    "choice": _object(
        {"sentiment": {"enum": ["positive", "negative", "neutral"]}, "confidence": {"enum": ["low", "medium", "high"]}}
    ),
    "list": {"type": "array", "items": _TEXT, "minItems": 2, "maxItems": 5},
    "books": _object(
        {
            "books": {
                "type": "array",
                "items": _object({"title": _TEXT, "author": _TEXT, "year": _YEAR}),
                "minItems": 2,
                "maxItems": 3,
            }
        }
    ),
    "event": _object(
        {
            "description": _TEXT,
            "start_date": {"type": "string", "format": "date"},
            "number_of_guests": {"type": ["integer", "null"], "minimum": 1, "maximum": 500},
        }
    ),
    "shape": {
        "anyOf": [
            _object({"kind": {"const": "circle"}, "radius": _NUMBER}),
            _object({"kind": {"const": "rectangle"}, "width": _NUMBER, "height": _NUMBER}),
        ]
    },
    "tree": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": _object(
                {"label": _LABEL, "children": {"type": "array", "items": {"$ref": "#/$defs/leaf"}, "maxItems": 3}}
            ),
            "leaf": _object({"label": _LABEL}),
        },
    },
    "address": _object(
        {
            "street": _TEXT,
            "city": _TEXT,
            "postal_code": {"type": "string", "pattern": "^[0-9]{5}$"},
            "country": _TEXT,
        },
        optional=("country",),
    ),
    "scores": _object({"english": _NUMBER, "maths": _NUMBER, "music": _NUMBER}, optional=("maths", "music")),
    "code": _object(
        {
            "language": {"enum": ["python", "rust", "javascript", "haskell"]},
            "uses_recursion": {"type": "boolean"},
            "identifier": {"type": "string", "pattern": "^[a-z_]{1,16}$"},
        }
    ),
}
SUBJECTS = ("Ada Lovelace", "a rainy day", "the sea", "a small village", "a good dinner", "an old computer")


@dataclass(frozen=True, slots=True)
class Run:
    """One answer: why it ended, its text and tokens, and the seconds from its first token to the last."""

    reason: str
    text: str
    ids: tuple[int, ...]
    seconds: float
    by_source: dict[str, tuple[int, int]]


def answer(engine: Engine, wish: GenerationRequest) -> Run:
    began = time.perf_counter()
    text = ""
    for event in engine.submit(wish):
        if isinstance(event, Failed):
            sys.exit(f"an answer failed: {event.message}")
        if isinstance(event, Tokens):
            text += event.text
        if isinstance(event, Finished):
            by_source = {one.name: (one.draft_n, one.accepted) for one in event.stats.by_source}
            return Run(event.reason, text, event.ids, time.perf_counter() - began - event.timings.prompt_s, by_source)
    raise AssertionError("an answer never ended")


def wishes(n: int, tokens: int, skip: int = 0) -> list[tuple[str, GenerationRequest]]:
    found = []
    for number, (subject, name) in zip(count(), islice(product(SUBJECTS * n, SCHEMAS), n), strict=False):
        grammar = schema_grammar(json.dumps(SCHEMAS[name]))
        sampling = SamplingParams(temperature=0.8 if number % 2 else 0.0, seed=number, grammar=grammar)
        text = f"Write a JSON object ({name}) about {subject}."
        found.append((name, GenerationRequest(messages=(Message("user", text),), max_tokens=tokens, sampling=sampling)))
    return found[skip:]


def is_valid(text: str, schema: Any) -> bool:
    try:
        return fits(json.loads(text), schema, schema)
    except ValueError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=700)
    parser.add_argument("--spec", choices=("auto", "fixed"), default="auto")
    args = parser.parse_args()

    def model(path: Path) -> ModelOptions:
        return ModelOptions(path, threads=core_count(), cache_type_k="f32", cache_type_v="f32")

    draft = None if args.draft is None else model(args.draft)
    options = EngineOptions(model(args.target), draft=draft, n_ctx=1024, n_batch=512, flash_attn="off")
    guessing = SpecParams(depth=16 if args.spec == "auto" else 4, mode=args.spec)
    seconds, sources, ends = [0.0, 0.0], Counter[str](), Counter[str]()
    valid = equal = tokens = 0
    asked = wishes(args.requests, args.tokens, args.skip)
    with load(options) as engine:
        for number, (name, wish) in enumerate(asked):
            pair = [replace(wish, spec=SpecParams(mode="off")), replace(wish, spec=guessing)]
            order = (0, 1) if number % 2 else (1, 0)
            runs = {which: answer(engine, pair[which]) for which in order}
            plain, ours = runs[0], runs[1]
            seconds = [seconds[0] + plain.seconds, seconds[1] + ours.seconds]
            tokens += len(ours.ids)
            ends[ours.reason] += 1
            for source, (drafted, accepted) in ours.by_source.items():
                sources.update({f"{source} drafted": drafted, f"{source} accepted": accepted})
            if ours.ids == plain.ids:
                equal += 1
            else:
                print(f"differs: {name}\n  {plain.text!r}\n  {ours.text!r}")
            if ours.reason == "stop" and is_valid(ours.text, SCHEMAS[name]):
                valid += 1
            elif ours.reason == "stop":
                print(f"not of its schema: {name}\n  {ours.text!r}")
    complete = ends["stop"]
    print(f"{len(asked)} answers, {tokens} tokens; {equal} equal; {valid} of {complete} complete ones valid")
    print(f"ended by length: {ends['length']}; {', '.join(f'{n} {what}' for what, n in sorted(sources.items()))}")
    print(f"plain {seconds[0]:.1f} s, with guesses {seconds[1]:.1f} s: {seconds[0] / seconds[1]:.2f} times as fast")
    sys.exit(0 if equal == valid == len(asked) else 1)


if __name__ == "__main__":
    main()
