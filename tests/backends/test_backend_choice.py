"""Which backend is taken where nobody names one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.backend_choice import Choice, choose_backend, read_speed
from localspec.backends.options import ModelOptions
from localspec.engine_options import EngineOptions
from localspec.errors import UsageError

WEIGHTS = 1_000_000


@dataclass
class Machine:
    """A card reads at 100 times the CPU's speed, which is one byte a second."""

    there: bool = True
    offloads: bool = False
    free: int = 2**40
    faster: float = 100.0

    def has_card(self) -> bool:
        return self.there

    def llamacpp_offloads(self) -> bool:
        return self.offloads

    def card(self) -> tuple[int, float] | None:
        return (self.free, self.faster) if self.there else None

    def cpu(self) -> float:
        return 1.0


class Untouched:
    """Nothing is asked of it."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(name)


@pytest.fixture
def options(tmp_path: Path) -> EngineOptions:
    """Of a model with four bytes a weight."""
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("token_embd.weight", np.zeros(WEIGHTS, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return EngineOptions(ModelOptions(path))


def test_what_is_named_is_taken(options: EngineOptions) -> None:
    for name in ("torch", "llamacpp"):
        assert choose_backend(replace(options, backend=name), Untouched()) == Choice(name)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--backend vllm is not known"):
        choose_backend(replace(options, backend="vllm"))


def test_on_the_cpu_llamacpp_is_never_slower(options: EngineOptions) -> None:
    assert choose_backend(options, Machine(there=False)) == Choice("llamacpp")
    for target in (replace(options.target, gpu_layers=0), replace(options.target, devices=("none",))):
        assert choose_backend(replace(options, target=target), Untouched()) == Choice("llamacpp")  # type: ignore[arg-type]


def test_a_card_that_torch_alone_can_use_is_used_where_it_is_faster(options: EngineOptions) -> None:
    found = choose_backend(options, Machine())
    assert found.backend == "torch"
    assert found.reason is not None
    assert "20000000.0 ms a token are to be expected" in found.reason
    for machine in (Machine(offloads=True), Machine(free=2**31), Machine(faster=0.4)):
        assert choose_backend(options, machine) == Choice("llamacpp")


def test_what_torch_cannot_do_goes_to_llamacpp(options: EngineOptions, tmp_path: Path) -> None:
    for wish in (replace(options, exact=True), replace(options, target=ModelOptions(tmp_path / "none.gguf"))):
        assert choose_backend(wish, Machine()) == Choice("llamacpp")


def test_the_speed_of_memory_is_measured() -> None:
    assert read_speed(2**20) > 1e6
