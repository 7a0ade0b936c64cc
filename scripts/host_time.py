"""What localspec adds to llama.cpp: ``scripts/host_time.py [MODEL] [--draft FILE] [--tokens N]``.

Two measurements on one machine in one run:

* Host time: the part of every engine step outside native calls for passes and their rows (``seq_*`` calls count as
  host), against a budget of 0.3 ms + 0.12 ms a draft row at temperature 0, and 0.3 ms a visited node more above it. Run
  it on a quiet machine.
* Plain decoding through the engine against a bare loop over the same native calls (decode one row, read its logits,
  take the largest), in interleaved blocks; the median of the paired ratios.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from localspec.backends.base import Target, Work
from localspec.engine import Engine
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.models.demo import demo_model
from localspec.spec.tree import TokenTree
from localspec.types import GenerationRequest, SamplingParams, SpecParams, Tokens

PROMPT = "Numbers: one two three four five six seven eight nine ten. Numbers: one two three four"


@dataclass
class Clock:
    """Seconds spent in ``llama_decode`` and ``llama_get_logits_ith`` so far."""

    seconds: float = 0.0

    def timing(self, call: Callable[..., int]) -> Callable[..., int]:
        def timed(*args: Any) -> int:
            began = time.perf_counter()
            result = call(*args)
            self.seconds += time.perf_counter() - began
            return result

        return timed


@contextmanager
def timed_native() -> Iterator[Clock]:
    """Times the native calls of every engine that is loaded inside the block, of target and draft alike."""
    import llama_cpp.llama_cpp as lib

    from localspec.backends.llamacpp.native import Native

    clock, decode, row_address = Clock(), lib.llama_decode, vars(Native)["row_address"]
    lib.llama_decode = clock.timing(decode)
    setattr(Native, "row_address", property(lambda native: clock.timing(row_address.func(native))))  # noqa: B010
    try:
        yield clock
    finally:
        lib.llama_decode = decode
        setattr(Native, "row_address", row_address)  # noqa: B010


def host_time(engine: Engine, clock: Clock, temperature: float, spec: SpecParams, n: int) -> tuple[float, float, float]:
    """Medians over the steps of one answer: host ms, budget ms, and their ratio."""
    request = GenerationRequest(
        prompt=PROMPT,
        max_tokens=n,
        sampling=SamplingParams(temperature=temperature, seed=1, ignore_eos=True),
        spec=spec,
    )
    hosts, budgets = [], []
    handle = engine.submit(request)
    over = False
    while not over:
        before, began = clock.seconds, time.perf_counter()
        engine.step()
        host = time.perf_counter() - began - (clock.seconds - before)
        for event in handle.drain():
            over = over or type(event).__name__ in ("Finished", "Failed")
            if isinstance(event, Tokens) and event.step is not None:
                visited = event.step.accepted + 1
                hosts.append(host * 1e3)
                budgets.append(0.3 + 0.12 * event.step.draft_n + (0.3 * visited if temperature > 0 else 0.0))
    hosts, budgets = hosts[2:], budgets[2:]  # the first step reads the prompt, the second fills caches
    ratios = [host / budget for host, budget in zip(hosts, budgets, strict=True)]
    return median(hosts), median(budgets), median(ratios)


def bare_block(target: Target, seq: int, token: int, n: int) -> tuple[float, int]:
    """Seconds for ``n`` tokens in a loop of one-row passes, and the last token."""
    began = time.perf_counter()
    for _ in range(n):
        row = target.forward([Work(seq, TokenTree.root(token))])[0].logits(0)
        target.commit(seq, (0,))
        token = int(np.argmax(row))
    return time.perf_counter() - began, token


def plain_ratio(options: EngineOptions, blocks: int, size: int) -> tuple[float, float]:
    """Median of bare time / engine time over interleaved blocks (1 = no cost), and bare tokens per second."""
    request = GenerationRequest(
        prompt=PROMPT,
        max_tokens=blocks * size + size,
        sampling=SamplingParams(temperature=0, ignore_eos=True),
        spec=SpecParams(depth=0),
    )
    ratios, speeds = [], []
    with load(options) as engine:
        target = engine.target
        handle = engine.submit(request)
        engine.step()
        seq = target.open()
        tokens = engine.encode(request)
        target.forward([Work.prompt(seq, tokens[:-1])])
        target.commit(seq, range(len(tokens) - 1))
        token = tokens[-1]
        for _ in range(blocks):
            bare, token = bare_block(target, seq, token, size)
            began = time.perf_counter()
            for _ in range(size):
                engine.step()
                handle.drain()
            ratios.append(bare / (time.perf_counter() - began))
            speeds.append(size / bare)
        handle.cancel()
    return median(ratios), median(speeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, default=None)
    parser.add_argument("--draft", type=Path, default=None, help="draft model; default: the model itself")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    path = args.model or demo_model()
    model = ModelOptions(path, threads=args.threads)
    draft = ModelOptions(args.draft or path, threads=args.threads)
    base = EngineOptions(model, n_ctx=1024, spec_types=("none",))
    settings = {
        "plain": (base, SpecParams(depth=0)),
        "n-gram chain": (
            EngineOptions(model, n_ctx=1024, spec_types=("ngram-simple",)),
            SpecParams(depth=4, mode="fixed"),
        ),
        "draft chain 4": (
            EngineOptions(model, draft=draft, n_ctx=1024, spec_types=("draft-simple",)),
            SpecParams(depth=4, mode="fixed"),
        ),
        "draft tree 3x4": (
            EngineOptions(model, draft=draft, n_ctx=1024, spec_types=("draft-simple",)),
            SpecParams(depth=4, width=3, nodes=12, mode="fixed"),
        ),
    }
    print(f"{'':16}  {'T':>4}  {'host ms':>8}  {'budget ms':>9}  {'ratio':>6}")
    for name, (options, spec) in settings.items():
        with timed_native() as clock, load(options) as engine:
            for temperature in (0.0, 0.8):
                host, budget, ratio = host_time(engine, clock, temperature, spec, args.tokens)
                print(f"{name:16}  {temperature:4.1f}  {host:8.3f}  {budget:9.3f}  {ratio:6.2f}")
    ratio, speed = plain_ratio(EngineOptions(model, n_ctx=1024, spec_types=("none",), sequences=2), 12, 24)
    print(f"plain decoding through the engine: {ratio:.3f} of a bare loop ({speed:.1f} tok/s bare)")


if __name__ == "__main__":
    main()
