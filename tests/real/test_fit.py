"""``--fit`` with an RPC server as the device: what is planned is what llama.cpp then reports."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.backends.llamacpp.devices import Devices
from localspec.engine_options import FitOptions
from localspec.errors import UsageError
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.types import EngineInfo, Placement
from scripts.offload import answer, without_draft
from tests.support.rpc import rpc_servers

MIB = 2**20
ALL = 7  # layers of the model, with the output layer


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, ...]]:
    with rpc_servers(1) as found:
        yield found


@pytest.fixture
def options(beginning: Path, server: tuple[str, ...]) -> EngineOptions:
    one = ModelOptions(beginning, threads=1, mmap=False, repack=False)
    fit = FitOptions(margins=(10,))
    return EngineOptions(
        one,
        draft=one,
        n_ctx=512,
        n_batch=64,
        n_ubatch=64,
        rpc=server,
        measure=False,
        fit=fit,
        spec_types=("draft-simple",),
    )


@pytest.fixture
def has_free(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Says how many MiB of devices are free, by their order; of further ones as many as of the last."""

    def say(*mib: float) -> None:
        numbers = itertools.chain(mib, itertools.repeat(mib[-1]))
        monkeypatch.setattr(Devices, "memory", lambda self, handle: (round(next(numbers) * MIB), 1 << 40))

    return say


def told(info: EngineInfo) -> list[str]:
    return [line for line in info.warnings if line.startswith("fit: ")]


def moved(info: EngineInfo) -> dict[str, Placement]:
    """Role → what lies on the device."""
    return {load.role: one for load in info.loads for one in load.placement if one.device != "CPU" and one.layers}


def test_layers_go_where_they_fit_and_the_text_stays(options: EngineOptions, has_free: Callable[..., None]) -> None:
    has_free(100)
    info, tokens = answer(options, 8)
    here = replace(options.target, devices=("none",))
    assert tokens == answer(without_draft(replace(options, target=here)), 8)[1]
    (line,) = told(info)
    flags = re.match(r"fit: -ngl (\d+) -ngld (\d+): (\d+) MB of 105 MB free on RPC\d+; ", line)
    assert flags is not None
    target, draft, planned = map(int, flags.groups())
    there = moved(info)
    assert {role: one.layers for role, one in there.items()} == {"target": target, "draft": draft}
    assert 0 < min(target, draft) < ALL
    taken = sum(one.bytes_weights + one.bytes_cache + one.bytes_buffers for one in there.values())
    assert taken <= planned * 1_000_000 <= 90 * MIB


def test_a_context_that_was_not_given_is_shortened(options: EngineOptions, has_free: Callable[..., None]) -> None:
    has_free(80)
    alone = without_draft(replace(options, n_ctx=0, fit=FitOptions(margins=(10,), n_ctx=1024)))
    with load(alone) as engine:
        info = engine.info
    (line,) = told(info)
    assert line.startswith(f"fit: -c {info.n_ctx}: ")
    assert 1024 <= info.n_ctx < info.n_ctx_train
    there = moved(info)["target"]
    assert there.layers == ALL
    assert there.bytes_weights + there.bytes_cache + there.bytes_buffers <= 70 * MIB


@pytest.mark.parametrize(
    ("free", "on", "given", "layers"),
    [
        (1000, True, (None, None), (ALL, ALL)),  # all of it has room
        (100, False, (None, None), (ALL, ALL)),
        (100, True, (5, 2), (5, 2)),
    ],
)
def test_nothing_is_said_where_nothing_is_planned(
    options: EngineOptions,
    has_free: Callable[..., None],
    free: float,
    on: bool,
    given: tuple[int | None, int | None],
    layers: tuple[int, int],
) -> None:
    has_free(free)
    target, draft = (replace(options.target, gpu_layers=number) for number in given)
    with load(replace(options, target=target, draft=draft, fit=replace(options.fit, on=on))) as engine:
        assert told(engine.info) == []
        assert tuple(one.layers for one in moved(engine.info).values()) == layers


def test_several_devices(options: EngineOptions, has_free: Callable[..., None]) -> None:
    has_free(22, 47.2)
    with rpc_servers(2) as servers, load(without_draft(replace(options, rpc=servers))) as engine:
        info = engine.info
    (line,) = told(info)
    assert line.startswith("fit: -ngl 4 -ts 2,2: ")
    there = [one for one in info.loads[0].placement if one.device != "CPU"]
    assert [one.layers for one in there] == [2, 2]
    for one, free in zip(there, (12, 37.2), strict=True):
        assert one.bytes_weights + one.bytes_cache + one.bytes_buffers <= free * MIB


def test_margins_for_devices_that_are_not_there(options: EngineOptions) -> None:
    with pytest.raises(UsageError, match="2 margins for 1 devices"):
        load(replace(options, fit=FitOptions(margins=(1, 2))))


def test_the_command_line(beginning: Path, server: tuple[str, ...]) -> None:
    """A margin that leaves no room keeps everything on the CPU, and a line says so."""
    command = [sys.executable, "-m", "localspec", "complete", "-m", str(beginning), "-p", "Red", "-n", "2"]
    devices = ["-c", "512", "-t", "1", "--rpc", server[0], "-fitt", "100000000", "--dump-load"]
    done = subprocess.run([*command, *devices], input="", capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0
    said = " ".join(done.stderr.split())
    assert "fit: -ngl 0: " in said
    assert "not a layer finds room" in said
    assert re.search(r"on CPU +7 layers", done.stderr)
