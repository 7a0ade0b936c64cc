#!/usr/bin/env python3
"""Compares builds of llama-cpp-python: milliseconds of a pass of 1, 4, 8 and 16 rows.

    scripts/measure_build.py --wheel gcc=a/llama_cpp_python-….whl --wheel clang=b/….whl --model m.gguf

A build is a wheel (unpacked to a temporary folder) or a folder that holds ``llama_cpp``. Each runs in a
process of its own, with the extra weight layouts on and off. The processes are asked for short bursts in
turn, so that a busy neighbour disturbs all of them alike. Shown are medians, and the median of the ratios
to the first build of the same round: a ratio below 1 is faster than the first build.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROWS = (1, 4, 8, 16)
PREFIX = 64
# Idle OpenMP threads spin for up to 200 ms and would steal from the next process's burst.
PAUSE = 0.25


@dataclass(frozen=True)
class Build:
    """One build of llama_cpp with one setting: ``name`` for the table, ``folder`` to import it from."""

    name: str
    folder: Path
    extra_bufts: bool


class Worker:
    """A process that has one model loaded with one build."""

    def __init__(self, build: Build, model: Path, threads: int) -> None:
        command = [sys.executable, __file__, "--child", str(model), str(int(build.extra_bufts)), str(threads)]
        # An installed llama_cpp comes after the one that is measured.
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(build.folder), *_dependencies()])}
        self._process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.name = build.name

    def burst(self, rows: int, passes: int) -> float:
        """Median milliseconds of ``passes`` passes of ``rows`` rows.

        Raises:
            RuntimeError: the process died, as it does where the build uses instructions that do not work.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(f"{rows} {passes}\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"{self.name}: the process ended with code {self._process.wait()}")
        times: list[float] = json.loads(line)
        return median(times)

    def close(self) -> None:
        # communicate closes both pipes; the child leaves at the end of its input.
        self._process.communicate()


def _dependencies() -> list[str]:
    return [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]


def serve(model_path: str, extra_bufts: bool, threads: int) -> None:
    """The child: reads ``rows passes`` lines, answers each with a JSON list of milliseconds."""
    import llama_cpp as ll

    ll.llama_backend_init()
    model_params = ll.llama_model_default_params()
    model_params.use_extra_bufts = extra_bufts
    model = ll.llama_model_load_from_file(model_path.encode(), model_params)
    params = ll.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = 512, 64, 64
    params.n_threads = params.n_threads_batch = threads
    context = ll.llama_init_from_model(model, params)
    batch = ll.llama_batch_init(64, 0, 1)
    memory = ll.llama_get_memory(context)
    _decode(ll, context, batch, 0, PREFIX)
    for line in sys.stdin:
        rows, passes = map(int, line.split())
        times = []
        for _ in range(passes):
            start = time.perf_counter()
            _decode(ll, context, batch, PREFIX, rows)
            times.append(1e3 * (time.perf_counter() - start))
            ll.llama_memory_seq_rm(memory, 0, PREFIX, -1)
        print(json.dumps(times), flush=True)


def _decode(ll: Any, context: Any, batch: Any, position: int, rows: int) -> None:
    batch.n_tokens = rows
    for row in range(rows):
        batch.token[row] = 100 + 7 * row
        batch.pos[row] = position + row
        batch.n_seq_id[row] = 1
        batch.seq_id[row][0] = 0
        batch.logits[row] = 1
    if code := ll.llama_decode(context, batch):
        raise SystemExit(f"llama_decode: {code}")
    ll.llama_synchronize(context)


def compare(
    builds: list[Build], model: Path, *, rounds: int, passes: int, threads: int
) -> dict[tuple[str, int], list[float]]:
    """(build, rows) → one median burst time in milliseconds per round; rounds pair up across builds."""
    workers = [Worker(build, model, threads) for build in builds]
    times: dict[tuple[str, int], list[float]] = {(b.name, rows): [] for b in builds for rows in ROWS}
    try:
        for number in range(-1, rounds):
            # The order turns by one each round, so that none always follows the same neighbour.
            turn = number % len(workers)
            for rows in ROWS:
                for worker in workers[turn:] + workers[:turn]:
                    ms = worker.burst(rows, passes)
                    if number >= 0:  # round -1 warms up
                        times[worker.name, rows].append(ms)
                    time.sleep(PAUSE)
    finally:
        for worker in workers:
            worker.close()
    return times


def table(builds: list[Build], times: dict[tuple[str, int], list[float]]) -> str:
    """One line a build: milliseconds and, in brackets, the median ratio to the first build."""
    lines = [f"{'build':<24}" + "".join(f"{rows:>5} rows       " for rows in ROWS)]
    for build in builds:
        cells = []
        for rows in ROWS:
            own, first = times[build.name, rows], times[builds[0].name, rows]
            ratio = median(a / b for a, b in zip(own, first, strict=True))
            cells.append(f"{median(own):8.2f} ({ratio:4.2f})")
        lines.append(f"{build.name:<24}" + "  ".join(cells))
    return "\n".join(lines)


def unpack(wheel: Path, folder: Path) -> Path:
    """Where to import the build from: ``wheel`` itself if it is a folder, else what it unpacks to."""
    if wheel.is_dir():
        return wheel
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        serve(sys.argv[2], sys.argv[3] == "1", int(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description="Compare builds of llama-cpp-python on this machine.")
    parser.add_argument("--wheel", action="append", required=True, metavar="NAME=PATH", help="a wheel or folder")
    parser.add_argument("--model", action="append", required=True, type=Path)
    parser.add_argument("--extra-bufts", choices=["on", "off", "both"], default="both")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--passes", type=int, default=6, help="passes a burst")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    settings = {"on": [True], "off": [False], "both": [True, False]}[args.extra_bufts]
    with tempfile.TemporaryDirectory() as temp:
        builds = []
        for number, item in enumerate(args.wheel):
            name, _, path = item.rpartition("=")
            folder = unpack(Path(path), Path(temp, str(number)))
            builds += [Build(f"{name or Path(path).stem} {'extra' if on else 'plain'}", folder, on) for on in settings]
        for model in args.model:
            times = compare(builds, model, rounds=args.rounds, passes=args.passes, threads=args.threads)
            print(f"{model.name}, {args.threads} threads, median ms of a pass (ratio to the first build)")
            print(table(builds, times), flush=True)


if __name__ == "__main__":
    main()
