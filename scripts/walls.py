"""Is ``auto`` ever slower than plain decoding? ``python -m scripts.walls [-m MODEL …] [--whole] [bench flags]``.

Every model (default: the demo model) under every kind of drafter that needs no training, the controller deciding, each
answer beside a plain one. Three prompts of each category; ``--whole`` takes all thirty and three rounds: a matter
of hours. The tables (Markdown) go to stdout and, as each is done, to the end of ``--log``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from localspec.models.demo import demo_model
from localspec.tools import bench

DRAFTERS = ("suffix", "ngram-simple", "draft-simple")
PER_CATEGORY = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/walls.py")
    parser.add_argument("-m", "--model", action="append", help="a GGUF file; repeatable")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--log", type=Path, default=Path("walls.log"))
    args, flags = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.jsonl"
        prompts.write_text("".join(chosen(None if args.whole else PER_CATEGORY)), encoding="utf-8")
        rounds = "3" if args.whole else "2"
        models = args.model or [str(demo_model())]
        return max(measure(model, ["--prompts", str(prompts), "-r", rounds, *flags], args.log) for model in models)


def chosen(per_category: int | None) -> Iterator[str]:
    """The lines of the prompts that come along: the first so many of each category, or all."""
    seen: dict[str, int] = {}
    for line in (Path(bench.__file__).parent / "prompts.jsonl").read_text(encoding="utf-8").splitlines(keepends=True):
        category = json.loads(line)["category"]
        seen[category] = seen.get(category, 0) + 1
        if per_category is None or seen[category] <= per_category:
            yield line


def measure(model: str, flags: list[str], log: Path) -> int:
    """One table on stdout and in the log; the exit code of bench."""
    settings = [word for drafter in DRAFTERS for word in ("--setting", f"{drafter}=--spec-type {drafter}")]
    command = [sys.executable, "-m", "localspec", "bench", "--no-tuned", "-m", model, "-md", "demo", *settings, *flags]
    run = subprocess.run([*command, "-o", "md"], stdout=subprocess.PIPE, text=True, check=False)
    print(run.stdout, flush=True)
    with log.open("a", encoding="utf-8") as out:
        out.write(run.stdout + "\n")
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
