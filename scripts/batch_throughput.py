"""Tokens a second of many answers at a time: ``python -m scripts.batch_throughput [-m MODEL] [--server LLAMA_SERVER]``.

For every number of answers at a time, all ways take turns in every round: guesses as they pay (auto), always (fixed),
never (off); and, with ``--server``, llama.cpp's own server with as many slots, with its unified cache and with a cache
for each slot. One client asks all of them: as many threads as there are answers at a time, each with the next prompt
when its last one is answered. In a round all are asked the same but for a number in front, which is new each time, so
that nobody finds a prompt in a cache; answers have one length.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

from localspec.backends.options import ModelOptions
from localspec.control.threads import core_count
from localspec.engine_options import EngineOptions
from localspec.errors import EngineError
from localspec.host import HostedEngine
from localspec.models.demo import demo_model
from localspec.tools.prompts import built_in
from localspec.tools.stats import spread
from localspec.types import Finished, GenerationRequest, SamplingParams, SpecMode, SpecParams
from scripts.peer import free_port, wait_for

MODES: tuple[SpecMode, ...] = ("auto", "fixed", "off")
DEPTHS = {"auto": 16, "fixed": 3, "off": 0}


@dataclass(frozen=True, slots=True)
class Count:
    """Tokens of an answer, guesses that were verified for it and those that held."""

    tokens: int
    guesses: int = 0
    held: int = 0


class Side(Protocol):
    """Answers one prompt; any thread may ask."""

    def __call__(self, prompt: str) -> Count: ...


@dataclass(frozen=True, slots=True)
class Ours:
    engine: HostedEngine
    spec: SpecParams
    tokens: int

    def __call__(self, prompt: str) -> Count:
        sampling = SamplingParams(temperature=0.0, ignore_eos=True)
        request = GenerationRequest(prompt=prompt, max_tokens=self.tokens, sampling=sampling, spec=self.spec)
        for event in self.engine.submit(request):
            if isinstance(event, Finished):
                return Count(len(event.ids), event.stats.draft_n, event.stats.accepted)
        raise EngineError("an answer failed")


@dataclass(frozen=True, slots=True)
class Theirs:
    url: str
    tokens: int

    def __call__(self, prompt: str) -> Count:
        wish = {"prompt": prompt, "n_predict": self.tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
        request = urllib.request.Request(
            f"{self.url}/completion", json.dumps(wish).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as response:
            return Count(json.load(response)["tokens_predicted"])


@dataclass(frozen=True, slots=True)
class Stretch:
    """What came of some prompts."""

    tokens: int
    guesses: int
    held: int
    seconds: float

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/batch_throughput.py")
    parser.add_argument("-m", "--model", type=Path, default=demo_model())
    parser.add_argument("-md", "--model-draft", type=Path)
    parser.add_argument("--server", type=Path, metavar="LLAMA_SERVER")
    parser.add_argument("-np", "--parallel", default="1,4,16,32", help="a comma list")
    parser.add_argument("-c", "--ctx-size", type=int, default=8192)
    parser.add_argument("-n", "--predict", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lines", type=int, help="prompts a stretch; default: 2 for each at a time, at least 8")
    args = parser.parse_args()
    for parallel in map(int, args.parallel.split(",")):
        measure(args, parallel)
    return 0


def measure(args: argparse.Namespace, parallel: int) -> None:
    lines = args.lines or max(2 * parallel, 8)
    numbers = count()
    with ExitStack() as stack:
        sides = all_sides(args, parallel, stack)
        found: dict[str, list[Stretch]] = {name: [] for name in sides}
        for round_ in range(-1, args.rounds):  # the first does not count: threads and costs are learnt
            turn = round_ % len(sides)
            for name in [*sides][turn:] + [*sides][:turn]:
                done = stretch(sides[name], new_prompts(round_ * lines, lines, numbers), parallel)
                if round_ >= 0:
                    found[name].append(done)
    report(parallel, found)


def all_sides(args: argparse.Namespace, parallel: int, stack: ExitStack) -> dict[str, Side]:
    threads = core_count()
    draft = None if args.model_draft is None else ModelOptions(args.model_draft, threads=threads)
    options = EngineOptions(
        ModelOptions(args.model, threads=threads), draft, n_ctx=args.ctx_size, sequences=parallel, most_waiting=48
    )
    engine = stack.enter_context(HostedEngine(options))
    sides: dict[str, Side] = {
        mode: Ours(engine, SpecParams(mode=mode, depth=DEPTHS[mode]), args.predict) for mode in MODES
    }
    if args.server is not None:
        for name, flag in (("server, unified", "--kv-unified"), ("server, split", "--no-kv-unified")):
            url = stack.enter_context(served(args, parallel, flag))
            sides[name] = Theirs(url, args.predict)
    return sides


@contextmanager
def served(args: argparse.Namespace, parallel: int, flag: str) -> Iterator[str]:
    port, threads = free_port(), str(core_count())
    same = ("-m", str(args.model), "-c", str(args.ctx_size), "-t", threads, "-tb", threads, "-fa", "on")
    own = ("-np", str(parallel), flag, "-cram", "0", "--host", "127.0.0.1", "--port", str(port))
    child = subprocess.Popen([args.server, *same, *own], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(url, child)
        yield url
    finally:
        child.terminate()
        child.wait()


def new_prompts(first: int, n: int, numbers: Iterator[int]) -> list[str]:
    """So many of the prompts of bench, from the ``first`` on; they begin differently each time, so that no cache knows
    them."""
    known = built_in("localspec.tools.bench")
    return [f"{next(numbers):05} {known[(first + i) % len(known)].text}\n\n" for i in range(n)]


def stretch(side: Side, prompts: Sequence[str], parallel: int) -> Stretch:
    began = time.perf_counter()
    with ThreadPoolExecutor(parallel) as pool:
        counts = list(pool.map(side, prompts))
    seconds = time.perf_counter() - began
    return Stretch(
        sum(one.tokens for one in counts),
        sum(one.guesses for one in counts),
        sum(one.held for one in counts),
        seconds,
    )


def report(parallel: int, found: dict[str, list[Stretch]]) -> None:
    """Speeds, and what each way is to the others of its round."""
    print(f"\n{parallel} at a time: tokens a second, median of {len(found['off'])} [95 %]")
    for name, stretches in found.items():
        speeds = spread([[one.speed] for one in stretches])
        ratio = compared(stretches, found["off"])
        guesses, held = (sum(getattr(one, key) for one in stretches) for key in ("guesses", "held"))
        told = f", {held}/{guesses} guesses held" if guesses else ""
        print(f"  {name:16} {speeds.median:7.1f} [{speeds.low:6.1f} {speeds.high:6.1f}]  {ratio} of off{told}")
    better = [max(one.speed, other.speed) for one, other in zip(found["fixed"], found["off"], strict=True)]
    medians = {mode: spread([[one.speed] for one in found[mode]]).median for mode in MODES}
    best = max(medians["fixed"], medians["off"])
    paired = spread([[one.speed / most] for one, most in zip(found["auto"], better, strict=True)])
    print(
        f"  auto is {medians['auto'] / best:.3f} of the better median; {paired.median:.3f} of the better of each round"
    )
    for name in found:
        if name.startswith("server"):
            print(f"  auto is {compared(found['auto'], found[name])} of {name}")
    sys.stdout.flush()


def compared(ours: Sequence[Stretch], theirs: Sequence[Stretch]) -> str:
    ratios = spread([[one.speed / other.speed] for one, other in zip(ours, theirs, strict=True)])
    return f"{ratios.median:.3f} [{ratios.low:.3f} {ratios.high:.3f}]"


if __name__ == "__main__":
    sys.exit(main())
