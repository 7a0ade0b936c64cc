"""What a pass of a head takes beside one of its target: ``python -m scripts.head_time HEAD [-m TARGET] [-n N]``.

One row each, in turns on one machine in one run: the target as it is, the target giving the states that the head reads,
and the head. Printed are medians of the times and of the paired ratios to the target as it is. Run it on a quiet
machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from localspec.backends.base import Target, Work
from localspec.backends.llamacpp import LlamaHead, LlamaModel, LlamaOptions, LlamaTarget, Native
from localspec.models.demo import demo_model
from localspec.spec.tree import TokenTree

TEXT = 32  # tokens in the cache before a pass


def opened(target: Target, work: Callable[[int], Work]) -> int:
    """A sequence with some text; ``work``: its first pass."""
    seq = target.open()
    target.forward([work(seq)])
    target.commit(seq, range(TEXT))
    return seq


def timed(target: Target, work: Work) -> float:
    """Seconds of a pass and of reading its row; it leaves nothing."""
    began = time.perf_counter()
    target.forward([work])[0].logits(0)
    took = time.perf_counter() - began
    target.commit(work.seq, ())
    return took


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/head_time.py", description=__doc__)
    parser.add_argument("head", type=Path)
    parser.add_argument("-m", "--model", type=Path, default=None, help="the target; default: the demo model")
    parser.add_argument("-n", type=int, default=100, help="rounds")
    parser.add_argument("-t", "--threads", type=int, default=2)
    args = parser.parse_args()

    native = Native()
    context = {"n_ctx": 512, "threads": args.threads, "threads_batch": args.threads}
    options, of_head = (LlamaOptions(path, **context) for path in (args.model or demo_model(), args.head))
    target = LlamaTarget(LlamaModel(native, options), options)
    head = LlamaHead(LlamaModel(native, of_head), of_head, target)

    tokens = list(range(1000, 1000 + TEXT))
    states = np.zeros((TEXT, head.model.n_embd), np.float32)
    root = TokenTree.root(1000)
    plain = Work(opened(target, lambda seq: Work.prompt(seq, tokens)), root)
    giving = Work(plain.seq, root, features=head.layers)
    drafting = Work(opened(head, lambda seq: Work.prompt(seq, tokens, states=states)), root, states=states[:1])
    passes = {"target": (target, plain), "target, giving states": (target, giving), "head": (head, drafting)}
    times = {name: [timed(*one)] for name, one in passes.items()}
    for _ in range(args.n):
        for name, one in passes.items():
            times[name].append(timed(*one))
    print(f"{'':22}  {'ms':>7}  {'of target':>9}")
    for name, seconds in times.items():
        ratio = median(mine / its for mine, its in zip(seconds, times["target"], strict=True))
        print(f"{name:22}  {median(seconds) * 1e3:7.2f}  {ratio:9.3f}")
    head.close_all()
    target.close_all()


if __name__ == "__main__":
    main()
