"""Goes on with a drafter that comes with localspec: ``python -m scripts.demo_drafter eagle3|draft WORK [train flags]``.

They were trained by `localspec train` alone, on what the demo model wrote by itself (docs/training.md). What it has
written so far lies in ``scripts/demo_texts``, as token ids; the work folder gets a copy, and what is written besides is
brought back. ``--anew`` begins with an untrained one. The same command goes on after an interruption.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from localspec.models.demo import DEMO_DRAFT, DEMO_HEAD, beside

TEXTS = Path(__file__).with_name("demo_texts")
NAMES = {"eagle3": DEMO_HEAD, "draft": DEMO_DRAFT}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/demo_drafter.py")
    parser.add_argument("kind", choices=NAMES)
    parser.add_argument("work", type=Path)
    parser.add_argument("--anew", action="store_true")
    args, flags = parser.parse_known_args()
    texts, begun = args.work / "texts", args.work / "begun.gguf"
    texts.mkdir(parents=True, exist_ok=True)
    bring(TEXTS, texts)
    drafter = beside(NAMES[args.kind])
    if not args.anew:
        if not begun.exists():  # the run is known by the drafter that it began with
            shutil.copy(drafter, begun)
        flags = ["--from", str(begun), *flags]
    command = [sys.executable, "-m", "localspec", "train", args.kind, "-o", str(drafter), "--work", str(args.work)]
    done = subprocess.run([*command, *flags], check=False)
    bring(texts, TEXTS)
    return done.returncode


def bring(source: Path, target: Path) -> None:
    for path in source.glob("*.npz"):
        if not (target / path.name).exists():
            shutil.copy(path, target)


if __name__ == "__main__":
    sys.exit(main())
