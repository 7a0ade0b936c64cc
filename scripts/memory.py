"""Peak memory of ``complete`` against what it must hold: ``scripts/memory.py [MODEL] [-md DRAFT] [-c N]``.

Runs the real command and samples the memory of its whole process tree (PSS: shared pages are counted once), and beside
it the same processes without a model. The difference should be the file, the cache and at most 150 MB; with a draft
model its file and cache more.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import psutil

from localspec.models.demo import demo_model

IDLE = "import localspec.loading, localspec.backends.llamacpp as b, localspec.engine, time; b.Native(); time.sleep(2)"
PARENT = "import localspec.cli.app, localspec.cli.complete, time; time.sleep(2)"


def peak_pss(command: list[str]) -> float:
    """Largest sum of PSS over the process tree, in MB."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    peak, watched = 0.0, psutil.Process(process.pid)
    while process.poll() is None:
        total = 0.0
        try:
            for one in [watched, *watched.children(recursive=True)]:
                total += one.memory_full_info().pss / 1e6
        except psutil.Error:
            continue
        peak = max(peak, total)
        time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"{command} failed with code {process.returncode}")
    return peak


def cache_mb(model: Path, n_ctx: int) -> tuple[float, int]:
    """Megabytes of the key and value cache in f16, and the context length."""
    import gguf

    fields = gguf.GGUFReader(model).fields
    arch = str(fields["general.architecture"].contents())

    def number(key: str) -> int:
        return int(fields[f"{arch}.{key}"].contents())

    heads, heads_kv = number("attention.head_count"), number("attention.head_count_kv")
    width = number("embedding_length") // heads * heads_kv
    length = n_ctx or number("context_length")
    return 2 * 2 * width * number("block_count") * length / 1e6, length


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, default=None)
    parser.add_argument("-md", dest="draft", type=Path, default=None)
    parser.add_argument("-c", dest="n_ctx", type=int, default=0)
    args = parser.parse_args()
    model = args.model or demo_model()
    idle = peak_pss([sys.executable, "-c", IDLE]) + peak_pss([sys.executable, "-c", PARENT])
    command = [sys.executable, "-m", "localspec", "complete", "-m", str(model), "-c", str(args.n_ctx), "-n", "48"]
    command += ["-p", "The history of the town " * 20]
    must = 0.0
    for path in (model, args.draft):
        if path is not None:
            cache, length = cache_mb(path, args.n_ctx)
            must += path.stat().st_size / 1e6 + cache
            print(f"{path.name}: file {path.stat().st_size / 1e6:.0f} MB, cache {cache:.0f} MB ({length} tokens)")
    used = peak_pss(command + (["-md", str(args.draft)] if args.draft else []))
    print(f"without a model {idle:.0f} MB, peak {used:.0f} MB: {used - idle:.0f} MB more")
    print(f"files and caches {must:.0f} MB, so {used - idle - must:+.0f} MB beside them (budget 150)")


if __name__ == "__main__":
    main()
