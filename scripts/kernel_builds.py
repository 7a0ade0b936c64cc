"""Compiles the Triton kernels for cards that need not be there: ``python -m scripts.kernel_builds [--fast] [NAME…]``.

What is compiled is what would be launched, in shapes of Llama-3-8B and Qwen3-8B and some that are harder. Of each
build it tells registers, memory that registers spilled to (there must be none), shared memory, and the instructions
that matter: tensor cores, and copies from memory that nobody waits for. ``--json`` writes all of it for the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

# Kernels are not compiled where they are interpreted.
os.environ["TRITON_INTERPRET"] = "0"

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from localspec.backends.torch.kernels import commit, gated, norm, quant_matmul, rope_write, top_k, tree_attention
from localspec.backends.torch.kernels.jit import Card, Launch
from localspec.backends.torch.kernels.planes import Planes

#: Compute capability → a usual card of it.
CARDS = {
    sm: Card(processors, sm // 10)
    for sm, processors in ((80, 108), (86, 82), (89, 128), (90, 132), (100, 148), (120, 170))
}
#: What is looked for in the code, before the last compiler, which takes none of it away.
INSTRUCTIONS = {
    "mma": r"\bmma\.sync\b|\bwgmma\.mma_async\b|\btcgen05\.mma\b",
    "wgmma": r"\bwgmma\.mma_async\b",
    "tcgen05": r"\btcgen05\.mma\b",
    "async copy": r"\bcp\.async\.c[ag]\b",
    "wide async copy": r"\bcp\.async\.cg\b.*\b0x10\b",
    "wide load": r"\bld\.global\S*\.(?:v4\.b32|v2\.b64)\b",
    "wide store": r"\bst\.global\S*\.(?:v4\.b32|v2\.b64)\b",
}
_TYPES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int8: "i8",
    torch.uint8: "u8",
}


@dataclass(frozen=True, slots=True)
class Build:
    """One kernel for one card. ``spilled``: bytes a thread of local memory; ``found``: instructions by name."""

    name: str
    capability: int
    registers: int
    spilled: int
    shared: int
    found: dict[str, int]
    seconds: float


def compiled(launch: Launch, capability: int) -> Any:
    """As the launch would compile it on a card of that capability: numbers that 16 divides are known to be so, and
    memory begins where 16 divides it."""
    names = launch.kernel.arg_names
    signature, constants, known = {}, dict(launch.constants), {}
    for at, (name, value) in enumerate(zip(names, launch.args, strict=False)):
        if isinstance(value, Tensor):
            signature[name] = f"*{_TYPES[value.dtype]}"
            known[(at,)] = [["tt.divisibility", 16]]
        elif isinstance(value, float):
            signature[name] = "fp32"
        elif launch.kernel.params[at].do_not_specialize:
            signature[name] = "i32"
        elif value == 1:
            signature[name], constants[name] = "constexpr", 1
        else:
            signature[name] = "i32"
            if value % 16 == 0:
                known[(at,)] = [["tt.divisibility", 16]]
    signature |= dict.fromkeys(launch.constants, "constexpr")
    source = ASTSource(
        launch.kernel,
        {name: signature[name] for name in names},
        {(names.index(name),): value for name, value in constants.items()},
        known,
    )
    options = {"num_warps": launch.warps, "num_stages": launch.stages}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def build(name: str, launch: Launch, capability: int) -> Build:
    began = time.perf_counter()
    made = compiled(launch, capability)
    usage = _usage(made.asm["cubin"])
    registers, spilled = (int(re.search(rf"\b{word}:(\d+)", usage)[1]) for word in ("REG", "STACK"))  # type: ignore[index]
    found = {word: len(re.findall(pattern, made.asm["ptx"])) for word, pattern in INSTRUCTIONS.items()}
    seconds = round(time.perf_counter() - began, 2)
    return Build(name, capability, registers, spilled, made.metadata.shared, found, seconds)


def _usage(cubin: bytes) -> str:
    """What a program takes."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# What is compiled


def _empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Without memory: only its shape and type are asked for."""
    return torch.empty(shape, dtype=dtype, device="meta")


def _ints(*shape: int) -> Tensor:
    return _empty(*shape, dtype=torch.int32)


def _pool(kv_heads: int, each: int) -> Tensor:
    """Of 8192 slots, as the target has it: heads first."""
    return _empty(kv_heads, 8192, each).transpose(0, 1)


def attention(
    nodes: int, card: Card, *, heads: int = 32, kv_heads: int = 8, each: int = 128, window: int = 0
) -> list[Launch]:
    forest = tree_attention.Forest(
        _ints(2), _ints(1), _ints(1), _ints(nodes), _empty(nodes, dtype=torch.int64), _ints(1, 8192)
    )
    q, pool = _empty(nodes, heads, each), _pool(kv_heads, each)
    sizes = {"heads": heads, "kv_heads": kv_heads, "each": each}
    tiles = tree_attention.Tiles.of(card, nodes=nodes, sequences=1, size=2, **sizes)
    sight = tree_attention.Sight(window=window)
    return tree_attention.launches(q, pool, pool, forest, _empty(nodes, heads, each), tiles, sight, nodes)


def normed(card: Card, *, width: int = 4096, add: bool = True) -> Launch:
    x, weight, out = _empty(64, width), _empty(width), _empty(64, width)
    return norm.launch(x, weight, 1e-5, _empty(64, width) if add else None, out, out)


def turned(card: Card, *, halves: bool = False, norms: bool = False, each: int = 128, turned: int = 128) -> Launch:
    qkv, pool = _empty(64, 48 * each), _pool(8, each)
    q, k, v = (part.unflatten(1, (-1, each)) for part in qkv.split([32 * each, 8 * each, 8 * each], dim=1))
    angle = _empty(64, turned // 2, dtype=torch.float32)
    weights = rope_write.HeadNorms(_empty(each), _empty(each), 1e-6) if norms else None
    return rope_write.launch(q, k, v, rope_write.Turn(angle, angle, halves), _ints(64), pool, pool, weights)


def opened(card: Card, *, gelu: bool = False) -> Launch:
    gate, up = _empty(64, 28672).chunk(2, dim=1)
    return gated.launch(gate, up, _empty(64, 14336), gelu)


def committed(card: Card) -> Launch:
    return commit.commit_launch(_ints(4, 8192), _ints(4), _ints(4), _ints(4, 64), _ints(4))


def moved(card: Card) -> Launch:
    return commit.move_launch(_empty(64, 8192, 1024), _ints(1), _ints(64), _ints(1))


def topped(card: Card, *, count: int = 10) -> list[Launch]:
    return top_k.launches(
        _empty(64, 128256), _empty(64, count, dtype=torch.float32), _empty(64, count, dtype=torch.int32)
    )


def product(kind: str, rows: int, card: Card, *, width: int = 4096, columns: int = 4096) -> Launch:
    x, splits = _empty(rows, columns), quant_matmul.splits_of(card, width, columns)
    out = _empty(splits, rows, width, dtype=torch.float32)
    planes = Planes(kind, width, columns, _parts(kind, width, columns))
    return quant_matmul.launch(x, planes, out, triton.language.bfloat16, card)


def _parts(kind: str, n: int, k: int) -> tuple[Tensor, ...]:
    low, high = (_empty(k // 128, n, each, dtype=torch.uint8) for each in (64, 32))
    match kind:
        case "Q8_0":
            return _empty(k // 64, n, 64, dtype=torch.int8), _ints(k // 64, n)
        case "Q4_K":
            return low, _ints(k // 128, n), _ints(k // 128, n), _ints(k // 256, n)
        case _:
            return low, high, _ints(k // 64, n), _ints(k // 256, n)


#: Name → the launch on a card. Those of ``FAST`` are compiled by the tests.
BUILDS: dict[str, Callable[[Card], Launch]] = {
    "attention, 64 nodes": lambda card: attention(64, card)[0],
    "attention, 16 nodes": lambda card: attention(16, card)[0],
    "attention, 1 node": lambda card: attention(1, card)[0],
    "attention, 64 nodes, window": lambda card: attention(64, card, window=512)[0],
    "attention, 64 nodes, heads of 64": lambda card: attention(64, card, each=64)[0],
    "attention, 64 nodes, heads of 96": lambda card: attention(64, card, each=96)[0],
    "attention, 64 nodes, heads of 256": lambda card: attention(64, card, heads=8, kv_heads=4, each=256)[0],
    "attention, 64 nodes, no sharing": lambda card: attention(64, card, heads=32, kv_heads=32)[0],
    "attention, merged": lambda card: attention(64, card)[1],
    "sum and norm": normed,
    "norm of 8192": lambda card: normed(card, width=8192, add=False),
    "norm of 3072 and sum": lambda card: normed(card, width=3072),
    "turn and write": turned,
    "turn by halves, norms and write": lambda card: turned(card, halves=True, norms=True),
    "turn in part and write": lambda card: turned(card, halves=True, each=96, turned=64),
    "gate": opened,
    "gate of gemma": lambda card: opened(card, gelu=True),
    "commit": committed,
    "move of rows": moved,
    "top 10": lambda card: topped(card)[0],
    "top 10, merged": lambda card: topped(card)[1],
    "top 64": lambda card: topped(card, count=64)[0],
    **{
        f"{kind}, {rows} rows": partial(product, kind, rows)
        for kind in ("Q8_0", "Q4_K", "Q6_K")
        for rows in (1, 32, 64)
    },
}
FAST = (
    *("attention, 64 nodes", "attention, 1 node", "attention, merged", "sum and norm", "turn and write", "gate"),
    *("commit", "move of rows", "top 10", "top 10, merged", "Q8_0, 64 rows", "Q4_K, 64 rows", "Q6_K, 64 rows"),
)


def builds(names: list[str], capabilities: list[int]) -> Iterator[Build]:
    for name in names:
        for capability in capabilities:
            yield build(name, BUILDS[name](CARDS[capability]), capability)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/kernel_builds.py", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the kernels; default: all")
    parser.add_argument("--fast", action="store_true", help="those that the tests compile")
    parser.add_argument("--sm", type=int, nargs="+", choices=CARDS, default=list(CARDS), help="default: all")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE")
    args = parser.parse_args()
    names = [name for name in (FAST if args.fast else BUILDS) if not args.names or name in args.names]
    torch.set_num_threads(1)
    made = []
    print(f"{'':34} {'sm':>4} {'regs':>5} {'spill':>5} {'shared':>7} {'s':>5}  instructions")
    for one in builds(names, args.sm):
        made.append(asdict(one))
        told = ", ".join(f"{word} {n}" for word, n in one.found.items() if n)
        sizes = f"{one.registers:5} {one.spilled:5} {one.shared:7} {one.seconds:5.1f}"
        print(f"{one.name:34} {one.capability:4} {sizes}  {told}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(one["spilled"] for one in made))


if __name__ == "__main__":
    main()
