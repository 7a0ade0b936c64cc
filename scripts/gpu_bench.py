"""What speculative decoding can bring on this GPU: ``python -m scripts.gpu_bench [-o FILE.json] [--seconds N]``.

Needs torch, Triton and this folder, and no model: weights are random, of the shapes of real models, and made on the
device. They run as the torch target runs real ones, short passes as CUDA graphs. Measured are whole steps by rows and
context, the target as the engine calls it, each kernel alone, and how the gain of drafting shrinks as texts run side by
side. Each stands beside its floor: the bytes that it must read, at the bandwidth measured here just before (or its
multiplications, at the rate measured here, where those take longer). How many guesses hold is replayed from recorded
answers of a real model (``tests/control/traces.json``).

``--tiny`` runs all of it at a tiny size, on the CPU where there is no GPU; then its times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from localspec.backends.torch.kernels.dispatch import PLAIN, Choice, choose
from scripts.gpu_measure import (
    TREE,
    Bench,
    Found,
    Spent,
    measure_batch,
    measure_device,
    measure_kernels,
    measure_steps,
    measure_target,
)
from scripts.gpu_model import FORMS, SHAPES, Decoder, Shape, layer_bytes

ROWS = (1, 8, 16, 24, 32, 48, 64)
BATCHES = (1, 4, 8, 16, 32, 64, 128)
#: How much faster EAGLE-2 is said to be on 8 H100 with a model of 70 B, by batch.
PUBLISHED = dict(zip(BATCHES, (3.07, 2.92, 2.74, 2.45, 1.88, 1.35, 1.02), strict=True))
DRAFT_TOKENS = 32000  # of which a head can guess each


@dataclass(frozen=True)
class Plan:
    """What is measured of a model. ``batches``: texts side by side, at the first context; none: not measured."""

    shape: Shape
    form: str
    contexts: tuple[int, ...] = (256, 4096)
    batches: tuple[int, ...] = ()
    rows: tuple[int, ...] = ROWS

    @property
    def name(self) -> str:
        return f"{self.shape.name} {self.form}"


#: The most wanted first: where time runs out, the last are missing.
PLANS = (
    Plan(SHAPES["llama-3-8b"], "bf16", (256, 4096, 32768), BATCHES),
    Plan(SHAPES["llama-3-8b"], "Q4_K_M"),
    Plan(SHAPES["llama-3-8b"], "Q8_0"),
    Plan(SHAPES["qwen3-8b"], "bf16"),
    Plan(SHAPES["llama-3-70b"], "Q4_K_M"),
    Plan(SHAPES["llama-3-70b"], "bf16", rows=(1, 64)),
)
TINY = tuple(Plan(SHAPES["tiny"], form, (16, 64), (1, 4) * (form == "bf16"), (1, 8)) for form in FORMS)


def whole_blocks(tokens: int) -> int:
    """Slots for so many tokens and a tree, in blocks of 64."""
    return -(-(tokens + TREE) // 64) * 64


def measure(bench: Bench, plan: Plan, out: Found) -> None:
    """Fills ``out``, so that what was measured is kept where time or memory runs out."""
    shape, room = plan.shape, whole_blocks(plan.contexts[0])
    longest = whole_blocks(max(plan.contexts))
    free = bench.room_bytes() - layer_bytes(shape, plan.form) * shape.layers
    batches = [texts for texts in plan.batches if texts * room * shape.kv_bytes <= free]
    cache = max(longest, *(texts * room for texts in batches), 0) * shape.kv_bytes
    if bench.cuda:
        torch.cuda.reset_peak_memory_stats()
    decoder = Decoder(shape, plan.form, bench.ops, bench.like, bench.room_bytes() - cache)
    context = plan.contexts[min(1, len(plan.contexts) - 1)]
    out |= {"weights_gb": decoder.bytes_read / 1e9, "layers": shape.layers, "different_layers": decoder.different}
    out |= {"steps": [], "target": [], "kernels": [], "batches": []}
    for one in measure_steps(bench, decoder, plan.rows, plan.contexts, longest):
        out["steps"].append(one)
    for one in measure_target(bench, decoder, plan.rows, context, whole_blocks(context)):
        out["target"].append(one)
    for rows in (plan.rows[0], plan.rows[-1]):
        out["kernels"] += measure_kernels(bench, decoder, rows, context, whole_blocks(context))
    if batches:
        outputs = min(DRAFT_TOKENS, shape.n_vocab)
        head = Decoder(
            replace(shape, layers=1), plan.form, bench.ops, bench.like, bench.room_bytes() - cache, outputs=outputs
        )
        for texts in batches:
            out["batches"].append(measure_batch(bench, decoder, head, texts, plan.contexts[0], room))
            _note_peak(bench, out)
    _note_peak(bench, out)


def _note_peak(bench: Bench, out: Found) -> None:
    out["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9 if bench.cuda else None


# What is told of it


def table(found: Found) -> list[str]:
    device = found["device"]
    speeds = f"{device['bandwidth_gb_s']:.0f} GB/s, {device['product_tflop_s']:.1f} TFLOP/s"
    lines = [f"{device['name']}, torch {device['torch']}: {speeds}", *found["notes"]]
    for name, model in found["models"].items():
        peak = f", peak {model['peak_gb']:.1f} GB" if model.get("peak_gb") else ""
        layers = f"{model['different_layers']} different layers of {model['layers']}"
        lines += ["", f"{name}: {model['weights_gb']:.2f} GB a step, {layers}{peak}"]
        lines += [_step_line(one) for one in model["steps"]]
        lines += [_target_line(one, model["steps"]) for one in model["target"]]
        lines += [_kernel_line(one) for one in model["kernels"]]
        lines += [_batch_line(one) for one in model["batches"]]
    return lines


def _step_line(one: Found) -> str:
    share = f"{one['floor_ms'] / one['ms']:.0%}"
    head = f"  step, {one['rows']:3} rows, context {one['context']:6}"
    return f"{head}: {one['ms']:9.3f} ms, floor {one['floor_ms']:9.3f} ms, {share}"


def _target_line(one: Found, steps: list[Found]) -> str:
    """Beside it what the device alone takes, where that was measured."""
    told = f"  target, {one['rows']:5} rows, context {one['context']:6}: {one['ms']:9.3f} ms"
    same = [step["ms"] for step in steps if (step["rows"], step["context"]) == (one["rows"], one["context"])]
    return told + "".join(f", of which the host's {1e3 * (one['ms'] - ms):.0f} µs" for ms in same)


def _kernel_line(one: Found) -> str:
    times = f"{one['us']:10.1f} µs, floor {one['floor_us']:8.1f} µs, {one['gb_s']:6.0f} GB/s"
    return f"  {one['kernel']:22} {one['rows']:3} rows: {times}"


def _batch_line(one: Found) -> str:
    def gain(draft: Any) -> str:
        return f"{draft['name']} ({draft['tokens']:.2f} tokens) ×{draft['gain']:.2f}, floor ×{draft['gain_floor']:.2f}"

    best, tree = max(one["drafts"][:-1], key=lambda draft: draft["gain"]), one["drafts"][-1]
    told = f"  {one['texts']:3} texts: plain {one['plain_ms']:8.3f} ms; {gain(best)}; {gain(tree)}"
    return f"{told}; EAGLE-2 published ×{PUBLISHED[one['texts']]}"


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="scripts/gpu_bench.py", description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a tiny model, on the CPU where there is no GPU")
    parser.add_argument("--plain", action="store_true", help="what torch has, in place of Triton's kernels")
    parser.add_argument("--only", default="", metavar="TEXT", help="models whose name has this, such as Q4_K_M")
    parser.add_argument("--seconds", type=float, default=500, help="to begin nothing after (default: 500)")
    parser.add_argument("-o", "--output", type=Path, default=Path("gpu_bench.json"), help="default: gpu_bench.json")
    args = parser.parse_args(argv)
    if not args.tiny and not torch.cuda.is_available():
        sys.exit("gpu_bench: torch sees no GPU; --tiny runs all of it at a tiny size")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    choice = Choice(PLAIN) if args.plain else choose(device)
    like = torch.empty(0, dtype=torch.bfloat16 if device.type == "cuda" else torch.float32, device=device)
    bench = Bench(device, choice.ops, like, time.monotonic() + args.seconds)
    plans = [plan for plan in (TINY if args.tiny else PLANS) if args.only in plan.name]
    with torch.inference_mode():
        found = run(bench, plans, [choice.note] * bool(choice.note), tiny=args.tiny)
    args.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(found)))
    print(f"\nAll of it: {args.output}")


def run(bench: Bench, plans: list[Plan], notes: list[str], *, tiny: bool) -> Found:
    found: Found = {"device": measure_device(bench, tiny=tiny), "notes": notes, "models": {}}
    for plan in plans:
        out: Found = {}
        try:
            measure(bench, plan, out)
        except Spent:
            notes.append(f"no time for all of {plan.name}, and for what comes after it")
            break
        except torch.OutOfMemoryError:
            notes.append(f"no memory for all of {plan.name}")
        finally:
            if out:
                found["models"][plan.name] = out
            if bench.cuda:
                torch.cuda.empty_cache()
    return found


if __name__ == "__main__":
    main()
