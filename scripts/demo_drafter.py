"""Goes on with the head that comes with localspec: ``python -m scripts.demo_head WORK [train flags]``.

The head was trained by `localspec train eagle3` alone, on what the demo model wrote by itself (docs/training.md). What
it has written so far lies in ``scripts/demo_texts``, as token ids; the work folder gets a copy, and what is written in
addition is brought back. ``--anew`` begins with an untrained head. The same command goes on after an interruption.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from localspec.models.demo import demo_head

TEXTS = Path(__file__).with_name("demo_texts")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/demo_head.py")
    parser.add_argument("work", type=Path)
    parser.add_argument("--anew", action="store_true")
    args, flags = parser.parse_known_args()
    texts, begun = args.work / "texts", args.work / "begun.gguf"
    texts.mkdir(parents=True, exist_ok=True)
    bring(TEXTS, texts)
    head = demo_head()
    if not args.anew:
        if not begun.exists():  # the run is known by the head that it began with
            shutil.copy(head, begun)
        flags = ["--from", str(begun), *flags]
    command = [sys.executable, "-m", "localspec", "train", "eagle3", "-o", str(head), "--work", str(args.work), *flags]
    done = subprocess.run(command, check=False)
    bring(texts, TEXTS)
    return done.returncode


def bring(source: Path, target: Path) -> None:
    for path in source.glob("*.npz"):
        if not (target / path.name).exists():
            shutil.copy(path, target)


if __name__ == "__main__":
    sys.exit(main())
