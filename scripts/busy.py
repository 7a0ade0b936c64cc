"""How much speed plain decoding keeps beside a busy machine: ``scripts/busy.py [MODEL]``.

Interleaves quiet and busy stretches of decoding (a CPU hog of as many threads as there are cores runs during the busy
ones), with automatic threads and with fixed counts, and prints medians and shares. As many threads as there are cores
are not among these: they crawl, each waiting for the others to be let go.

The hog runs in the same session, as a job of the same shell does, and in another one, as a program of another terminal
or a service does. Linux shares time between sessions first where ``/proc/sys/kernel/sched_autogroup_enabled`` is 1, and
between threads else: then both are alike.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from localspec.control.threads import core_count
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.models.demo import demo_model
from localspec.types import Finished, GenerationRequest, SamplingParams, SpecParams

TOKENS, ROUNDS = 160, 2


def speed(options: EngineOptions) -> list[float]:
    """Tokens per second of each round, one engine for all."""
    request = GenerationRequest(
        prompt="The history of the town begins",
        max_tokens=TOKENS,
        sampling=SamplingParams(temperature=0, ignore_eos=True),
        spec=SpecParams(depth=0),
    )
    speeds = []
    with load(options) as engine:
        for _ in range(ROUNDS):
            for event in engine.submit(request):
                if isinstance(event, Finished):
                    speeds.append(event.timings.tokens_per_second or 0.0)
    return speeds


@contextmanager
def hogs(n: int, *, apart: bool) -> Iterator[None]:
    """``n`` busy loops, in a session of their own if ``apart``."""
    loops = [sys.executable, "-c", f"import os\nany(not os.fork() for _ in range({n - 1}))\nwhile True: pass"]
    group = {"start_new_session": True} if apart else {"process_group": 0}
    hog = subprocess.Popen(loops, **group)
    try:
        time.sleep(0.2)
        yield
    finally:
        os.killpg(hog.pid, signal.SIGKILL)
        hog.wait()


def main() -> None:
    model = Path(sys.argv[1]) if len(sys.argv) > 1 else demo_model()
    cores = core_count()
    base = EngineOptions(ModelOptions(model), n_ctx=512)
    settings = {"auto": base} | {
        f"-t {n}": replace(base, target=ModelOptions(model, threads=n)) for n in {1, max(cores // 2, 1)}
    }
    quiet: dict[str, list[float]] = {name: [] for name in settings}
    busy: dict[tuple[str, bool], list[float]] = {(name, apart): [] for name in settings for apart in (False, True)}
    for _ in range(2):
        for name, options in settings.items():
            quiet[name] += speed(options)
            for apart in (False, True):
                with hogs(cores, apart=apart):
                    busy[name, apart] += speed(options)
    best = max(median(speeds) for speeds in quiet.values())
    print(f"{'threads':>8}  {'hog':>15}  {'quiet tok/s':>11}  {'busy tok/s':>10}  {'kept':>5}  {'of best quiet':>13}")
    for (name, apart), speeds in busy.items():
        q, b, where = median(quiet[name]), median(speeds), "another session" if apart else "same session"
        print(f"{name:>8}  {where:>15}  {q:11.1f}  {b:10.1f}  {b / q:5.0%}  {b / best:13.0%}")


if __name__ == "__main__":
    main()
