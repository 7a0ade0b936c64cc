"""The same text from both backends: ``scripts/torch_equality.py TARGET [--prompts N] [--tokens N]``.

Greedy answers of torch in float32 and of llama.cpp to the same prompts must be the same, up to near-ties, each of which
is shown: the two tokens, how far apart llama.cpp scores them, and how far both backends are apart there. Before that
stands by how much the scores behind the prompt differ, as a share of all of them. Meant for an F32 target
(scripts/dequantize.py), where rounding is small; runs llama.cpp on one thread with F32 caches and without flash
attention, for the same reason. Exit code 1 if a text parts from the other anywhere else, or scores differ by more than
0.002.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from localspec.backends.base import Row, Target, Work
from localspec.engine import Engine
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.spec.tree import TokenTree
from localspec.tools.prompts import Prompt, built_in
from localspec.types import Failed, Finished, GenerationRequest, SamplingParams, SpecParams

#: Scores that are nearer than this may change places: ten times what both backends are apart on F32 weights.
NEAR = 0.02
#: Share by which all scores of a row may differ.
CLOSE = 2e-3
CHUNK = 128


@dataclass(frozen=True)
class Parting:
    """Where two answers part: which tokens, their distance in llama.cpp's scores, and the largest difference between
    the backends' scores there."""

    at: int
    ours: int
    theirs: int
    gap: float
    apart: float


@dataclass(frozen=True)
class Compared:
    """``error``: of the scores behind the prompt; ``parting`` is ``None`` where both answers are the same."""

    error: float
    parting: Parting | None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=64)
    asked = parser.parse_args(arguments)
    prompts = built_in("localspec.tools.bench")[: asked.prompts]
    own = ModelOptions(asked.target, threads=1, threads_batch=1, cache_type_k="f32", cache_type_v="f32")
    options = EngineOptions(own, spec_types=(), n_ctx=2048, n_batch=512, measure=False)
    with (
        load(replace(options, backend="llamacpp", flash_attn="off")) as theirs,
        load(replace(options, backend="torch")) as ours,
    ):
        found = [told(prompt, compared(ours, theirs, prompt, asked.tokens)) for prompt in prompts]
    parted, error = [one.parting for one in found if one.parting is not None], max(one.error for one in found)
    faults = [one for one in parted if one.gap > NEAR]
    print(
        f"{len(prompts)} texts: {len(prompts) - len(parted)} the same, {len(parted) - len(faults)} part at a near-tie,"
        f" {len(faults)} otherwise; scores differ by {error:.1e} at most"
    )
    return 1 if faults or error > CLOSE else 0


def told(prompt: Prompt, found: Compared) -> Compared:
    one = found.parting
    what = (
        "the same"
        if one is None
        else f"token {one.at} is {one.ours} for {one.theirs}, {one.gap:.5f} apart (the backends {one.apart:.5f})"
    )
    print(f"{prompt.id}: {found.error:.1e}, {what}", flush=True)
    return found


def compared(ours: Engine, theirs: Engine, prompt: Prompt, tokens: int) -> Compared:
    asked = (
        GenerationRequest(messages=prompt.messages)
        if theirs.info.has_template
        else GenerationRequest(prompt=prompt.text)
    )
    text = tuple(theirs.encode(asked))
    greedy, alone = SamplingParams(temperature=0, seed=1), SpecParams(mode="off")
    wish = GenerationRequest(tokens=text, max_tokens=tokens, sampling=greedy, spec=alone)
    mine, other = (row(engine, text) for engine in (ours, theirs))
    error = float(np.linalg.norm(mine - other) / np.linalg.norm(other))
    return Compared(error, parting(ours, theirs, wish, text))


def parting(ours: Engine, theirs: Engine, wish: GenerationRequest, text: Sequence[int]) -> Parting | None:
    mine, other = ids(ours, wish), ids(theirs, wish)
    at = next((i for i, (one, two) in enumerate(zip(mine, other, strict=False)) if one != two), None)
    if at is None:
        return None if len(mine) == len(other) else Parting(min(len(mine), len(other)), -1, -1, np.inf, np.inf)
    read = [*text, *other[:at]]
    rows = [row(engine, read) for engine in (ours, theirs)]
    gap = float(rows[1][other[at]] - rows[1][mine[at]])
    return Parting(at, mine[at], other[at], gap, float(np.abs(rows[0] - rows[1]).max()))


def ids(engine: Engine, wish: GenerationRequest) -> tuple[int, ...]:
    for event in engine.submit(wish):
        if isinstance(event, Failed):
            raise SystemExit(event.message)
        if isinstance(event, Finished):
            return event.ids
    raise SystemExit("an answer never ended")


def row(engine: Engine, text: Sequence[int]) -> Row:
    """Scores behind ``text``, read into a cache that holds nothing else."""
    engine.forget()
    target: Target = engine.target
    seq = target.open()
    for start in range(0, len(text) - 1, CHUNK):
        piece = text[start : min(start + CHUNK, len(text) - 1)]
        target.forward([Work.prompt(seq, piece)])
        target.commit(seq, range(len(piece)))
    found = target.forward([Work(seq, TokenTree.root(text[-1]))])[0].logits(0).copy()
    target.close(seq)
    return found


if __name__ == "__main__":
    sys.exit(main())
