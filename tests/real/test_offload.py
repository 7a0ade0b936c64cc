"""Layers, caches and single tensors go where they are sent: two RPC servers stand for two GPUs."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.backends.llamacpp import LlamaModel, LlamaOptions, LlamaTarget, Native
from localspec.backends.llamacpp import context as native_context
from localspec.backends.llamacpp.context import check_room
from localspec.backends.llamacpp.placement import layers_by_device, used_devices
from localspec.backends.memory import ROOM
from localspec.errors import ExitCode, NetworkError, OutOfMemory, UsageError
from localspec.host import HostedEngine
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.report import load_lines
from localspec.types import EngineInfo, Failed, Finished, GenerationRequest, Message, Placement
from scripts.offload import answer, combinations, without_draft
from tests.real.support import GREEDY, TREE
from tests.support.rpc import free_port, rpc_processes, rpc_servers

LAYERS = 31  # of SmolLM2, with the output layer


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, ...]]:
    with rpc_servers(2) as found:
        yield found


def names(servers: tuple[str, ...]) -> tuple[str, ...]:
    """What the devices are called: ggml counts on with every new server of a process."""
    native = Native(rpc=servers)
    return tuple(next(one.name for one in native.devices.offload() if one.server == server) for server in servers)


def named(options: EngineOptions, servers: tuple[str, ...]) -> EngineOptions:
    """``RPC0`` and ``RPC1`` as they are called in this process."""
    real = dict(zip(("RPC0", "RPC1"), names(servers), strict=True))

    def rename(model: ModelOptions) -> ModelOptions:
        devices = None if model.devices is None else tuple(real.get(name, name) for name in model.devices)
        overrides = tuple((pattern, real.get(name, name)) for pattern, name in model.tensor_overrides)
        return replace(model, devices=devices, tensor_overrides=overrides)

    draft = None if options.draft is None else rename(options.draft)
    return replace(options, target=rename(options.target), draft=draft, rpc=servers)


def where(info: EngineInfo, servers: tuple[str, ...]) -> dict[str, dict[str, Placement]]:
    """Role → device, as ``RPC0`` and ``RPC1`` → what lies there."""
    short = dict(zip(names(servers), ("RPC0", "RPC1"), strict=True))
    return {load.role: {short.get(one.device, one.device): one for one in load.placement} for load in info.loads}


@pytest.fixture(scope="module")
def plain(smol: Path) -> tuple[int, ...]:
    """The target alone on the CPU."""
    return answer(without_draft(combinations(smol, ())["-dev none -devd none"]), 12)[1]


# Flags → layers of the target and the draft by device.
LAYOUTS = {
    "-dev none -devd none": ({"CPU": LAYERS}, {"CPU": LAYERS}),
    "-dev RPC0 -devd none": ({"CPU": 0, "RPC0": LAYERS}, {"CPU": LAYERS}),
    "-dev none -devd RPC1": ({"CPU": LAYERS}, {"CPU": 0, "RPC1": LAYERS}),
    "-ngl 10 -ts 3,1 -devd RPC1": ({"CPU": 21, "RPC0": 8, "RPC1": 2}, {"CPU": 0, "RPC1": LAYERS}),
    "-dev RPC0 -ot ffn_(up|down|gate)=CPU -devd RPC1 -ngld 8": (
        {"CPU": 0, "RPC0": LAYERS},
        {"CPU": 23, "RPC1": 8},
    ),
    "-dev RPC0 -nkvo -devd RPC1 -otd attn_=RPC1,ffn_=CPU": (
        {"CPU": 0, "RPC0": LAYERS},
        {"CPU": 0, "RPC1": LAYERS},
    ),
}


def test_every_combination_is_looked_at(smol: Path) -> None:
    assert list(combinations(smol, ())) == list(LAYOUTS)


@pytest.mark.parametrize("flags", LAYOUTS)
def test_layers_lie_where_they_are_sent_and_the_text_stays(
    smol: Path, servers: tuple[str, ...], plain: tuple[int, ...], flags: str
) -> None:
    info, tokens = answer(named(combinations(smol, servers)[flags], servers), len(plain))
    assert tokens == plain
    found = where(info, servers)
    for role, layers in zip(("target", "draft"), LAYOUTS[flags], strict=True):
        assert {device: one.layers for device, one in found[role].items()} == layers
        for device, one in found[role].items():
            assert (one.bytes_weights > 0) == (one.layers > 0 or device == "CPU")
    # A cell of a layer is 2 * 192 numbers of 2 bytes: the cache of 512 cells is 30 of these.
    of_layer = 512 * 2 * 192 * 2
    for role in found:
        total = sum(one.bytes_cache for one in found[role].values())
        assert total == pytest.approx(30 * of_layer, rel=0.01)
    if "-nkvo" in flags:
        assert found["target"]["RPC0"].bytes_cache == 0
        assert found["target"]["CPU"].bytes_cache > 0
    if "-ts" in flags:
        assert found["target"]["RPC0"].bytes_cache == 8 * of_layer
    if "-ot " in flags:
        whole = sum(one.bytes_weights for one in found["draft"].values())
        moved = found["target"]["CPU"].bytes_weights
        assert moved > 0.45 * whole, "most weights of a layer are in its feed-forward part"


def test_the_dump_shows_target_and_draft_apart(smol: Path, servers: tuple[str, ...]) -> None:
    info, _ = answer(named(combinations(smol, servers)["-ngl 10 -ts 3,1 -devd RPC1"], servers), 1)
    lines = load_lines(info)
    at = next(i for i, line in enumerate(lines) if line.startswith("draft: "))
    target, draft = lines[:at], lines[at:]
    first, second = names(servers)

    def value(part: list[str], name: str) -> str:
        return next(line.removeprefix(f"  {name}").strip() for line in part if line.startswith(f"  {name} "))

    assert (value(target, "n_gpu_layers"), value(draft, "n_gpu_layers")) == ("10", "all")
    assert (value(target, "tensor_split"), value(draft, "tensor_split")) == ("3,1", "by free memory")
    assert value(draft, "devices") == second
    assert value(target, "devices") == f"{first},{second}"
    assert value(target, f"on {first}").startswith("8 layers")
    assert value(draft, f"on {second}").startswith("31 layers")


QUESTION = (Message("user", "Name a colour."),)


def chat(**changes: Any) -> GenerationRequest:
    return replace(GenerationRequest(messages=QUESTION, max_tokens=8, sampling=GREEDY), **changes)


def test_a_chat_of_two_turns_over_servers(beginning: Path, servers: tuple[str, ...]) -> None:
    options = named(combinations(beginning, servers)["-ngl 10 -ts 3,1 -devd RPC1"], servers)
    asked = chat(spec=TREE)

    def two_turns(options: EngineOptions) -> list[tuple[int, ...]]:
        with load(options) as engine:
            first = engine.submit(asked)
            ids = next(event for event in first if isinstance(event, Finished)).ids
            again = replace(asked, messages=(*QUESTION, Message("assistant", "Red."), Message("user", "More.")))
            return [ids, next(event for event in engine.submit(again) if isinstance(event, Finished)).ids]

    alone = without_draft(combinations(beginning, ())["-dev none -devd none"])
    assert two_turns(options) == two_turns(alone)


def test_a_server_that_dies_is_named(beginning: Path) -> None:
    with rpc_processes(1) as processes:
        (server,) = processes
        options = EngineOptions(ModelOptions(beginning, threads=1), n_ctx=512, rpc=(server,), spec_types=("none",))
        with HostedEngine(options) as engine:
            events = iter(engine.submit(chat(max_tokens=400)))
            next(events)
            processes[server].kill()
            last = list(events)[-1]
        assert isinstance(last, Failed)
        assert last.kind == "EngineDied"
        assert "Remote RPC server crashed" in last.message
        processes[server].wait()
        with pytest.raises(NetworkError, match="cannot be reached"):
            load(options)


def test_two_engines_share_a_server(beginning: Path, servers: tuple[str, ...]) -> None:
    """It serves one client, and all models of a process are one."""
    one = replace(without_draft(combinations(beginning, servers)["-dev RPC0 -devd none"]), n_ctx=256)
    with load(named(one, servers)) as first, load(named(one, servers)) as second:
        texts = [
            next(event for event in engine.submit(chat()) if isinstance(event, Finished)).ids
            for engine in (first, second)
        ]
    assert texts[0] == texts[1]
    assert not +Native().connections


def test_servers_of_another_engine_are_left_alone(beginning: Path, servers: tuple[str, ...]) -> None:
    names(servers)
    if Native().can_offload:
        pytest.skip("this machine can offload")
    with load(EngineOptions(ModelOptions(beginning, gpu_layers=5, threads=1), n_ctx=256)) as engine:
        assert [one.device for one in engine.info.loads[0].placement] == ["CPU"]
        assert any(line.startswith("-ngl ignored") for line in engine.info.warnings)
    with pytest.raises(UsageError, match="is not there"):
        Native().devices.chosen(names(servers))


def test_layers_for_a_device_that_was_refused(beginning: Path, servers: tuple[str, ...]) -> None:
    model = ModelOptions(beginning, gpu_layers=4, devices=("none",), threads=1)
    with load(EngineOptions(model, n_ctx=256, rpc=servers)) as engine:
        assert engine.info.warnings == ("-ngl ignored: none as -dev or -devd keeps all layers on the CPU",)
        assert dict(engine.info.loads[0].settings)["devices"] == "none"
        assert [one.device for one in engine.info.loads[0].placement] == ["CPU"]


@pytest.mark.parametrize("spelling", ["{name}", "{lower}", "RPC0[{server}]"])
def test_spellings_of_a_device(servers: tuple[str, ...], spelling: str) -> None:
    """Its own name, and that of its buffers, which counts the devices of each server anew."""
    second = names(servers)[1]
    given = spelling.format(name=second, lower=second.lower(), server=servers[1])
    native = Native(rpc=servers)
    (found,) = native.devices.chosen((given,))
    assert found.name == second
    buffers = native.devices.buffer_types(native.devices.offload())
    assert native.devices.find_buffer_type(given, buffers).device == second
    assert native.devices.find_buffer_type("cpu", buffers).name == "CPU"


def test_what_is_not_there_is_listed(smol: Path, servers: tuple[str, ...]) -> None:
    first, second = names(servers)

    def refused(**changes: Any) -> str:
        with pytest.raises(UsageError) as caught:
            load(EngineOptions(ModelOptions(smol, threads=1, **changes), n_ctx=256, rpc=servers))
        assert caught.value.hint
        return caught.value.message

    assert refused(devices=("CUDA7",)) == (
        f"device CUDA7 is not there (there is {first} ({servers[0]}), {second} ({servers[1]}))"
    )
    other = refused(devices=(first,), tensor_overrides=(("ffn", second),))
    assert other == f"buffer type {second} is not there (there is CPU, RPC0[{servers[0]}])"
    assert refused(split_mode="none", main_gpu=2).startswith("-mg 2: there are 2 devices")
    assert refused(tensor_split=(1.0, 1.0, 1.0)).startswith("-ts has 3 shares for 2 devices")
    assert refused(split_mode="row") == f"-sm row: device {first} does not support split buffers"


def test_one_device_of_several(smol: Path, servers: tuple[str, ...]) -> None:
    native = Native(rpc=servers)
    model = LlamaModel(native, LlamaOptions(smol, split_mode="none", main_gpu=1))
    model.free()
    assert used_devices(model.lines) == names(servers)[1]
    assert layers_by_device(model.lines) == {names(servers)[1]: LAYERS}


def test_only_the_cpu_s_part_of_a_cache_must_fit_here(
    smol: Path, servers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    native = Native(rpc=servers)
    options = LlamaOptions(smol, n_ctx=1000, gpu_layers=10)
    cache = 1000 * 30 * 2 * 192 * 2
    model = LlamaModel(native, options)
    try:
        assert model.cpu_share == pytest.approx(21 / 30)
        monkeypatch.setattr(native_context, "available_bytes", lambda: int(0.8 * cache / ROOM))
        check_room(model, options)
        with pytest.raises(OutOfMemory, match="1000 tokens"):
            check_room(model, replace(options, kv_offload=False))
        monkeypatch.setattr(native_context, "available_bytes", lambda: int(0.6 * cache / ROOM))
        with pytest.raises(OutOfMemory, match="1000 tokens"):
            check_room(model, options)
    finally:
        model.free()


def test_the_target_describes_itself(random_draft: Path) -> None:
    options = LlamaOptions(random_draft, n_ctx=256, threads=1, branches=1)
    target = LlamaTarget(LlamaModel(Native(), options), options)
    described = target.describe("target")
    target.close_all()
    assert (described.role, described.path) == ("target", str(random_draft))
    assert [(one.device, one.layers) for one in described.placement] == [("CPU", 2)]


def test_a_server_that_is_not_there(smol: Path) -> None:
    with pytest.raises(NetworkError):
        load(EngineOptions(ModelOptions(smol), rpc=(f"127.0.0.1:{free_port()}",)))


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "localspec", *arguments],
        input="",
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_command_line_over_servers(beginning: Path, servers: tuple[str, ...]) -> None:
    asked = (
        "complete",
        "-m",
        str(beginning),
        "-p",
        "Red, green and",
        "-n",
        "8",
        "--temp",
        "0",
        "-c",
        "512",
        "-t",
        "1",
        "--no-repack",
    )
    here = command(*asked, "-md", str(beginning))
    offload = ("--rpc", ",".join(servers), "-dev", "RPC0", "-devd", "RPC1", "-ngld", "3", "-ot", "ffn_up=CPU")
    there = command(*asked, "-md", str(beginning), *offload, "--dump-load")
    assert (there.returncode, there.stdout) == (0, here.stdout)
    target, _, draft = there.stderr.partition("\ndraft: ")
    assert target.startswith("target: ")
    assert re.search(r"on RPC0 +7 layers", target)
    assert re.search(r"tensor_overrides +ffn_up=CPU", target)
    assert re.search(r"on CPU +4 layers", draft)
    assert re.search(r"on RPC1 +3 layers", draft)
    missing = command(*asked, "--rpc", f"127.0.0.1:{free_port()}")
    assert (missing.returncode, missing.stdout) == (ExitCode.NETWORK, "")
    assert missing.stderr.count("\n") == 1
