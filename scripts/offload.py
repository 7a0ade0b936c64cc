"""Shows where target and draft model lie under several sets of flags, without a GPU.

    python -m scripts.offload [-m MODEL] [-n TOKENS]

Two RPC servers on this machine stand for two GPUs. For each set of flags: what lies on which device, and whether the
answer is the one of the CPU alone, token for token.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from localspec.loading import EngineOptions, ModelOptions, load
from localspec.models.demo import demo_model
from localspec.report import placement_text
from localspec.types import EngineInfo, Finished, GenerationRequest, SamplingParams, SpecParams
from tests.support.rpc import rpc_servers

PROMPT = "The three primary colours are"
CPU = ("none",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path, help="target and draft model; default: the demo model")
    parser.add_argument("-n", "--predict", type=int, default=24, metavar="N", help="tokens of each answer")
    args = parser.parse_args()
    model = args.model or demo_model()
    with rpc_servers(2) as servers:
        print(f"RPC0 is {servers[0]}, RPC1 is {servers[1]}; target and draft are {model.name}\n")
        plain = answer(without_draft(combinations(model, servers)["-dev none -devd none"]), args.predict)[1]
        for flags, options in combinations(model, servers).items():
            info, tokens = answer(options, args.predict)
            print(f"{flags}\n{table(info)}\n  text: {verdict(tokens, plain)}\n")


def combinations(model: Path, servers: tuple[str, ...]) -> dict[str, EngineOptions]:
    """Flags → options. Without mmap, so that the bytes of each device are exact; and without repacking, as the servers:
    it has other kernels, which round in another way."""
    one = ModelOptions(model, threads=1, mmap=False, repack=False)
    base = EngineOptions(one, draft=one, n_ctx=512, n_batch=256, n_ubatch=256, rpc=servers, measure=False)

    def pair(target: ModelOptions, draft: ModelOptions) -> EngineOptions:
        return replace(base, target=target, draft=draft)

    on_cpu, on_0, on_1 = (replace(one, devices=devices) for devices in (CPU, ("RPC0",), ("RPC1",)))
    return {
        "-dev none -devd none": pair(on_cpu, on_cpu),
        "-dev RPC0 -devd none": pair(on_0, on_cpu),
        "-dev none -devd RPC1": pair(on_cpu, on_1),
        "-ngl 10 -ts 3,1 -devd RPC1": pair(replace(one, gpu_layers=10, tensor_split=(3, 1)), on_1),
        "-dev RPC0 -ot ffn_(up|down|gate)=CPU -devd RPC1 -ngld 8": pair(
            replace(on_0, tensor_overrides=(("ffn_(up|down|gate)", "CPU"),)), replace(on_1, gpu_layers=8)
        ),
        "-dev RPC0 -nkvo -devd RPC1 -otd attn_=RPC1,ffn_=CPU": pair(
            replace(on_0, kv_offload=False),
            replace(on_1, tensor_overrides=(("attn_", "RPC1"), ("ffn_", "CPU"))),
        ),
    }


def without_draft(options: EngineOptions) -> EngineOptions:
    return replace(options, draft=None, spec_types=("none",))


def answer(options: EngineOptions, n: int) -> tuple[EngineInfo, tuple[int, ...]]:
    """One greedy answer of ``n`` tokens, with trees where there is a draft model."""
    request = GenerationRequest(
        prompt=PROMPT,
        max_tokens=n,
        sampling=SamplingParams(temperature=0.0, seed=1, ignore_eos=True),
        spec=SpecParams(depth=4, nodes=8, width=2, mode="fixed"),
    )
    with load(options) as engine:
        finished = next(event for event in engine.submit(request) if isinstance(event, Finished))
        return engine.info, finished.ids


def table(info: EngineInfo) -> str:
    return "\n".join(
        f"  {load.role:<7}{place.device:<6}{placement_text(place)}" for load in info.loads for place in load.placement
    )


def verdict(tokens: tuple[int, ...], plain: tuple[int, ...]) -> str:
    if tokens == plain:
        return f"as the target alone on the CPU ({len(plain)} tokens)"
    at = next((i for i, (one, other) in enumerate(zip(tokens, plain, strict=False)) if one != other), len(plain))
    return f"parts from the CPU's at token {at}"


if __name__ == "__main__":
    main()
