"""Kills a batch at random moments and lets it go on: ``python -m scripts.batch_kill [-m MODEL] [--kills N]``.

One run goes through; another is killed (SIGKILL, also while it loads) and resumed, again and again. In the end both
outputs must hold the same answers, each line once. Without ``-m`` the model is the demo model with its weights in F32,
where rounding cannot make texts part.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from localspec.models.demo import demo_model
from scripts.dequantize import requantize

TOPICS = ("a river", "old maps", "bread", "a lighthouse", "winter", "trains", "the moon", "bees", "glass", "a violin")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/batch_kill.py")
    parser.add_argument("-m", "--model", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--lines", type=int, default=60)
    parser.add_argument("-n", "--predict", type=int, default=24)
    parser.add_argument("-np", "--parallel", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        model = args.model or requantize(demo_model(), place / "f32.gguf", "f32")
        source, whole, pieces = (place / f"{name}.jsonl" for name in ("in", "whole", "pieces"))
        source.write_text("".join(json.dumps(line) + "\n" for line in prompts(args.lines)))
        flags = ("-m", str(model), "-n", str(args.predict), "-s", str(args.seed), "-np", str(args.parallel))
        run(source, whole, flags).wait()
        kills = killed(source, pieces, flags, args.kills, random.Random(args.seed))
        code = run(source, pieces, flags).wait()
        return report(whole, pieces, args.lines, kills, code)


def prompts(n: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for i in range(n):
        text = f"Write two sentences about {TOPICS[i % len(TOPICS)]}, number {i}."
        item = {"messages": [{"role": "user", "content": text}]} if i % 2 else {"prompt": text}
        items.append({"id": f"line-{i}", **item, **({"temp": 0} if i % 3 else {})})
    return items


def run(source: Path, out: Path, flags: tuple[str, ...]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "localspec", "batch", str(source), "-o", str(out), "--resume", *flags]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def killed(source: Path, out: Path, flags: tuple[str, ...], kills: int, rng: random.Random) -> int:
    """How often it was killed: every fifth time at any moment, even while it loads, else when it wrote a line more,
    and then some; it may end before."""
    for kill in range(kills):
        process, before = run(source, out, flags), lines_in(out)
        if kill % 5 == 4:
            time.sleep(rng.uniform(0.1, 2.0))
        else:
            while process.poll() is None and lines_in(out) == before:
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 1.0))
        if process.poll() is not None:
            return kill
        process.kill()
        process.wait()
        torn = "" if not out.exists() or out.read_bytes()[-1:] in (b"", b"\n") else ", the last one torn"
        print(f"kill {kill + 1}: {lines_in(out)} lines are out{torn}", flush=True)
    return kills


def report(whole: Path, pieces: Path, lines: int, kills: int, code: int) -> int:
    first, second = (answers(path) for path in (whole, pieces))
    differ = [line for line in first if first[line] != second.get(line)]
    twice, lost = lines_in(pieces) - len(second), lines - len(second)
    print(f"{kills} kills; exit code {code}; {lost} lost, {twice} twice, {len(differ)} differ")
    return 0 if code == 0 and not (lost or twice or differ) else 1


def lines_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def answers(path: Path) -> dict[int, tuple[Any, ...]]:
    records = map(json.loads, path.read_text().splitlines())
    return {one["line"]: (one["id"], one["text"], tuple(one["tokens"]), one["seed"]) for one in records}


if __name__ == "__main__":
    sys.exit(main())
