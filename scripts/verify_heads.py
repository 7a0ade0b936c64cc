"""`localspec verify` with a drafter of every kind that reads hidden states or masks: ``python -m scripts.verify_heads
TARGET [verify flags]``.

``TARGET`` is SmolLM2 (scripts/dequantize.py writes it as F32). The demo model's head is the one that guesses well; all
others are random, the worst case: next to nothing that they guess holds, and every step takes it back. Layers for
multi-token prediction come with models of their own: tests/real/test_predictors.py has those.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from localspec.models.demo import DEMO_DRAFT, DEMO_HEAD, demo_drafter
from tests.support.gguf_blocks import TinyBlock
from tests.support.gguf_files import TokenizerKeys
from tests.support.gguf_heads import TinyHead
from tests.support.hub_eagle import TinyEagle
from tests.support.hub_folders import TinyHub, TinyHydra, TinyMedusa

N, WIDTH, LAYERS, READS, MASK = 49152, 576, 30, (2, 15, 27), 16
FLAGS = ("--shapes", "chain,tree", "--sampler-sets", "greedy,seeded")


def drafters(folder: Path, target: Path) -> dict[str, tuple[str, Path]]:
    """Name → ``--spec-type`` and what ``-md`` names."""
    keys = TokenizerKeys.read(target)
    masked = keys.with_integer("tokenizer.ggml.mask_token_id", MASK)
    block = TinyBlock(N, WIDTH, READS, heads=9, kv_heads=3, depth=1)
    spark = TinyBlock(N, WIDTH, READS, heads=9, kv_heads=3, depth=1, rank=16, confident=True)
    first = TinyEagle(N, WIDTH, LAYERS, kind="eagle", width=WIDTH, heads=9, kv_heads=3)
    third = TinyEagle(N, WIDTH, LAYERS, width=WIDTH, heads=9, kv_heads=3, reads=READS, guessable=tuple(range(0, N, 6)))
    return {
        DEMO_HEAD: ("draft-eagle3", demo_drafter(DEMO_HEAD)),
        DEMO_DRAFT: ("draft-simple", demo_drafter(DEMO_DRAFT)),
        "EAGLE-3, GGUF": ("draft-eagle3", TinyHead(N, WIDTH, READS).write(folder / "eagle3.gguf", keys)),
        "EAGLE-1": ("draft-eagle", first.write(folder / "eagle")),
        "EAGLE-3, folder": ("draft-eagle3", third.write(folder / "eagle3")),
        "Medusa": ("draft-medusa", TinyMedusa(N, WIDTH, layers=1, layout="shared").write(folder / "medusa")),
        "Hydra": ("draft-hydra", TinyHydra(N, WIDTH, heads=2).write(folder / "hydra")),
        "PARD": ("draft-pard", TinyHub(N, mask=MASK).write(folder / "pard", keys)),
        "DFlash": ("draft-dflash", block.write(folder / "dflash.gguf", masked)),
        "DSpark": ("draft-dspark", spark.write(folder / "dspark.gguf", masked)),
    }


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    target, flags = Path(sys.argv[1]), sys.argv[2:]
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (kind, path) in drafters(Path(folder), target).items():
            print(f"\n== {name}", flush=True)
            command = [sys.executable, "-m", "localspec", "verify", "-m", str(target), "-md", str(path)]
            worst = max(worst, subprocess.run([*command, "--spec-type", kind, *FLAGS, *flags], check=False).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
