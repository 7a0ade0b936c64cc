"""Placement as llama.cpp's log tells it, and the patterns behind -ot and -cmoe."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from localspec.backends.llamacpp.devices import BufferType
from localspec.backends.llamacpp.model import _unlocked
from localspec.backends.llamacpp.overrides import EXPERTS, idle_overrides, patterns
from localspec.backends.llamacpp.placement import flash_attention, layers_by_device, placement, used_devices
from localspec.backends.options import ModelOptions
from localspec.report import load_lines
from localspec.types import EngineInfo, ModelLoad, Placement

SERVER = "127.0.0.1:50052"
BUFFERS = [BufferType(1, "CPU", "CPU"), BufferType(2, f"RPC0[{SERVER}]", "RPC0"), BufferType(3, "CUDA0", "CUDA0")]
LOG = f"""\
llama_prepare_model_devices: using device RPC0 ({SERVER}) (unknown id) - 24105 MiB free
llama_prepare_model_devices: using device CUDA0 (A card) (0000:01:00.0) - 8000 MiB free
load_tensors: layer   0 assigned to device CPU, is_swa = 0
load_tensors: layer   1 assigned to device RPC0, is_swa = 0
load_tensors: layer  12 assigned to device CUDA0, is_swa = 1
load_tensors: layer  13 assigned to device CUDA0, is_swa = 0
load_tensors:   CPU_Mapped model buffer size =    28.69 MiB
load_tensors:   CPU_REPACK model buffer size =     1.00 MiB
load_tensors:    CUDA_Host model buffer size =     0.50 MiB
load_tensors: RPC0[{SERVER}] model buffer size =    92.10 MiB
load_tensors:        CUDA0 model buffer size =    10.00 MiB
load_tensors:   CUDA_Split model buffer size =     7.00 MiB
llama_adapter_lora_init_impl:        CPU LoRA buffer size =     2.00 MiB
llama_context:        CPU  output buffer size =     3.19 MiB
llama_kv_cache: layer   0: dev = CPU
llama_kv_cache: RPC0[{SERVER}] KV buffer size =    11.25 MiB
llama_kv_cache:      CUDA0 KV buffer size =     4.00 MiB
llama_memory_recurrent:      CUDA0 RS buffer size =     1.00 MiB
sched_reserve:        CPU compute buffer size =     9.00 MiB
resolve_fused_ops: Flash Attention enabled
"""
LINES = [(logging.DEBUG, text) for text in LOG.splitlines()]


def mib(size: float) -> int:
    return round(size * 2**20)


def test_placement_of_weights_and_caches() -> None:
    assert placement(LINES, BUFFERS) == (
        Placement("CPU", 1, mib(28.69) + mib(1) + mib(0.5) + mib(2), 0, mib(9)),
        Placement("CUDA0", 2, mib(10), mib(4) + mib(1)),
        Placement("CUDA_Split", 0, mib(7), 0),
        Placement("RPC0", 1, mib(92.10), mib(11.25)),
    )


def test_other_facts_of_the_log() -> None:
    assert layers_by_device(LINES) == {"CPU": 1, "RPC0": 1, "CUDA0": 2}
    assert used_devices(LINES) == "RPC0,CUDA0"
    assert flash_attention(LINES) == "enabled"
    assert flash_attention([(logging.WARNING, "f: Flash Attention not supported, set to disabled")]) == "disabled"
    assert (
        flash_attention([(logging.INFO, "f: enabling flash_attn since it is required for quantized V cache")])
        == "enabled"
    )
    assert flash_attention([]) is None


def test_a_load_as_lines() -> None:
    load = ModelLoad(
        "draft", "small.gguf", (("n_ctx", "512"), ("lora", "none")), (Placement("RPC0", 3, 10**6, 5 * 10**5),)
    )
    info = EngineInfo("a", "b", (), "llamacpp", 1, 1, 1, False, loads=(load,))
    assert load_lines(info) == [
        "draft: small.gguf",
        "  n_ctx    512",
        "  lora     none",
        "  on RPC0  3 layers, 1.0 MB weights, 0.5 MB cache",
    ]


def test_patterns_keep_their_order() -> None:
    options = ModelOptions(Path("m"), tensor_overrides=(("a", "X"), ("b", "CPU")), cpu_moe=2)
    assert patterns(options)[:2] == [("a", "X"), ("b", "CPU")]
    for layer, (pattern, buffer) in enumerate(patterns(options)[2:]):
        assert buffer == "CPU"
        assert re.search(pattern, f"blk.{layer}.ffn_down_exps.weight")
        assert not re.search(pattern, f"blk.{layer + 1}.ffn_down_exps.weight")
    assert patterns(ModelOptions(Path("m"), cpu_moe=-1)) == [(EXPERTS, "CPU")]
    assert patterns(ModelOptions(Path("m"))) == []


@pytest.mark.parametrize("part", ["up", "down", "gate", "gate_up"])
@pytest.mark.parametrize("chunk", ["", "ch"])
def test_what_is_an_expert(part: str, chunk: str) -> None:
    assert re.search(EXPERTS, f"blk.7.ffn_{part}_{chunk}exps.weight")
    assert not re.search(EXPERTS, f"blk.7.ffn_{part}.weight")
    assert not re.search(EXPERTS, f"blk.7.ffn_{part}_shexp.weight")


def test_overrides_that_do_nothing_are_said() -> None:
    lines = [(logging.DEBUG, "tensor blk.0.ffn_up.weight (1 MiB q4_1) buffer type overridden to CPU")]
    options = ModelOptions(
        Path("m"), tensor_overrides=(("ffn_up", "CPU"), ("ffn_Up", "CPU"), ("(?P<", "CPU")), cpu_moe=1
    )
    assert idle_overrides(options, lines) == [
        "-ot ffn_Up=CPU: no tensor has such a name",
        "-cmoe and -ncmoe do nothing here: the model has no experts in these layers",
    ]
    assert idle_overrides(ModelOptions(Path("m")), []) == []


def test_memory_that_cannot_be_locked_is_said() -> None:
    assert _unlocked([(logging.WARNING, "warning: failed to mlock 1-byte buffer (after ...)")]) != []
    assert _unlocked(LINES) == []
