"""Options about weights and positions reach llama.cpp's structures, and do what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.base import Row
from localspec.backends.llamacpp import Native
from localspec.backends.options import ModelOptions, RopeOptions
from localspec.errors import ExitCode, ModelLoadError, UsageError
from localspec.loading import EngineOptions, load
from localspec.types import EngineInfo, Finished, GenerationRequest, SpecParams
from tests.real.support import GREEDY, fresh_row, opened
from tests.support.gguf_files import TinyModel, TokenizerKeys
from tests.support.rpc import rpc_servers

TEXT = list(range(500, 516))


@pytest.fixture(scope="module")
def tokenizer(smol_tokenizer: TokenizerKeys) -> TokenizerKeys:
    """Fewer tokens, so that models load sooner."""
    return smol_tokenizer.first(2000)


@pytest.fixture(scope="module")
def random_draft(tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel().write(tmp_path_factory.mktemp("models") / "random.gguf", tokenizer)


def loaded(target: ModelOptions, draft: ModelOptions | None = None, **changes: Any) -> EngineInfo:
    with load(EngineOptions(target, draft=draft, **{"n_ctx": 256, "measure": False, **changes})) as engine:
        return engine.info


def settings(info: EngineInfo, role: str = "target") -> dict[str, str]:
    return dict(next(load.settings for load in info.loads if load.role == role))


DEFAULTS = {
    "n_gpu_layers": "all",
    "devices": "none",
    "split_mode": "layer",
    "main_gpu": "0",
    "tensor_split": "by free memory",
    "tensor_overrides": "none",
    "load_mode": "auto",
    "repack": "on",
    "check_tensors": "off",
    "load_mtp": "off",
    "lora": "none",
    "n_ctx": "256",
    "n_batch": "256",
    "n_ubatch": "256",
    "n_seq_max": "17",
    "n_outputs_max": "17",
    "n_threads": "1",
    "n_threads_batch": "1",
    "flash_attn": "auto (enabled)",
    "cache_type_k": "f16",
    "cache_type_v": "f16",
    "kv_offload": "on",
    "swa_full": "on",
    "rope_scaling": "model's own",
    "rope_freq_base": "model's own",
    "rope_freq_scale": "model's own",
    "yarn_orig_ctx": "model's own",
    "yarn_ext_factor": "model's own",
    "yarn_attn_factor": "model's own",
    "yarn_beta_slow": "model's own",
    "yarn_beta_fast": "model's own",
}

# Changes of ModelOptions → what they are in the structures.
CHANGES: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"gpu_layers": 0}, {"n_gpu_layers": "0"}),
    (
        {"tensor_overrides": (("ffn_up", "cpu"), (r"attn_[qk]\.", "CPU"))},
        {"tensor_overrides": r"ffn_up=CPU,attn_[qk]\.=CPU"},
    ),
    ({"mmap": False}, {"load_mode": "none"}),
    ({"mlock": True}, {"load_mode": "mmap+mlock"}),
    ({"mmap": False, "mlock": True}, {"load_mode": "mlock"}),
    ({"repack": False}, {"repack": "off"}),
    ({"check_tensors": True}, {"check_tensors": "on"}),
    ({"kv_offload": False}, {"kv_offload": "off"}),
    ({"cache_type_k": "f32", "cache_type_v": "bf16"}, {"cache_type_k": "f32", "cache_type_v": "bf16"}),
    (
        {"rope": RopeOptions("linear", freq_base=20000, freq_scale=0.5)},
        {"rope_scaling": "linear", "rope_freq_base": "20000", "rope_freq_scale": "0.5"},
    ),
    (
        {"rope": RopeOptions("yarn", None, 0.25, 512, 0.5, 1.25, 2, 16)},
        {
            "rope_scaling": "yarn",
            "rope_freq_scale": "0.25",
            "yarn_orig_ctx": "512",
            "yarn_ext_factor": "0.5",
            "yarn_attn_factor": "1.25",
            "yarn_beta_slow": "2",
            "yarn_beta_fast": "16",
        },
    ),
    ({"rope": RopeOptions("none")}, {"rope_scaling": "none"}),
]


def test_what_defaults_are(random_draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if Native().can_offload:
        pytest.skip("this machine can offload")
    monkeypatch.setattr("localspec.backends.llamacpp.extra_buffers_are_safe", lambda *_: True)
    found = settings(loaded(ModelOptions(random_draft, threads=1)))
    assert found == DEFAULTS


@pytest.mark.parametrize(("changes", "expected"), CHANGES, ids=lambda value: ",".join(value))
def test_each_option_reaches_its_model_alone(
    random_draft: Path, changes: dict[str, Any], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.backends.llamacpp.extra_buffers_are_safe", lambda *_: True)
    plain = ModelOptions(random_draft, threads=1)
    changed = replace(plain, **changes)
    base = settings(loaded(plain))
    for role, pair in (("target", (changed, plain)), ("draft", (plain, changed))):
        info = loaded(*pair, tree_nodes=16)
        for other in ("target", "draft"):
            differing = {key: text for key, text in settings(info, other).items() if text != base[key]}
            assert differing == (expected if other == role else {})


def test_repacking_needs_both_the_wish_and_a_sound_build(random_draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.backends.llamacpp.extra_buffers_are_safe", lambda *_: False)
    assert settings(loaded(ModelOptions(random_draft, threads=1)))["repack"] == "off"


def test_offload_options_reach_the_structures(random_draft: Path) -> None:
    model = ModelOptions(random_draft, gpu_layers=1, main_gpu=1, split_mode="none", threads=1)
    with rpc_servers(2) as servers:
        found = settings(loaded(model, rpc=servers))
        assert (found["n_gpu_layers"], found["main_gpu"], found["split_mode"]) == ("1", "1", "none")
        found = settings(loaded(replace(model, main_gpu=None, split_mode="layer", tensor_split=(1, 0.5)), rpc=servers))
        assert found["tensor_split"] == "1,0.5"


def test_offload_options_without_a_device_are_one_warning(random_draft: Path) -> None:
    if Native().can_offload:
        pytest.skip("this machine can offload")
    model = ModelOptions(random_draft, gpu_layers=9, tensor_split=(1,), split_mode="row", main_gpu=3, threads=1)
    info = loaded(model, model)
    (line,) = info.warnings
    assert line.startswith("-ngl, -sm, -mg, -ts and -ngld ignored: there is no device")


def test_overrides_that_catch_nothing(random_draft: Path) -> None:
    draft = ModelOptions(random_draft, threads=1, cpu_moe=-1)
    info = loaded(replace(draft, cpu_moe=0, tensor_overrides=(("nowhere", "CPU"), ("ffn_", "CPU"))), draft)
    assert info.warnings == (
        "-ot nowhere=CPU: no tensor has such a name",
        "the draft model: -cmoe and -ncmoe do nothing here: the model has no experts in these layers",
    )


@pytest.mark.parametrize("role", ["target", "draft"])
def test_a_pattern_that_cannot_be_read(random_draft: Path, role: str) -> None:
    plain = ModelOptions(random_draft, threads=1)
    broken = replace(plain, tensor_overrides=(("((", "CPU"),))
    with pytest.raises(UsageError, match=r"a pattern of -ot or -otd cannot be read: .*regular expression"):
        loaded(*((broken, plain) if role == "target" else (plain, broken)))


def row_of(path: Path, **changes: Any) -> Row:
    with opened(path, **changes) as target:
        return fresh_row(target, TEXT)


def test_positions_are_scaled(random_draft: Path) -> None:
    own = row_of(random_draft)
    assert np.array_equal(own, row_of(random_draft, rope=RopeOptions(scaling="none")))
    for rope in (
        RopeOptions(freq_base=500.0),
        RopeOptions("linear", freq_scale=0.25),
        RopeOptions("yarn", freq_scale=0.25, yarn_orig_ctx=64),
    ):
        other = row_of(random_draft, rope=rope)
        assert np.abs(own - other).max() > 0.1, rope


def test_ways_of_reading_change_nothing(random_draft: Path) -> None:
    own = row_of(random_draft)
    for changes in ({"mmap": False}, {"check_tensors": True}, {"tensor_overrides": ((".", "CPU"),)}, {"mlock": True}):
        assert np.array_equal(own, row_of(random_draft, **changes)), changes


def test_a_cache_type_that_the_model_cannot_have(random_draft: Path) -> None:
    with pytest.raises(UsageError, match="does not divide n_embd_head_k=16") as caught:
        loaded(ModelOptions(random_draft, threads=1, cache_type_k="q8_0"))
    assert "-ctk" in caught.value.hint


# Experts


@dataclass(frozen=True)
class Experts(TinyModel):
    """Every feed-forward part is four experts, of which two are asked."""

    def _llama_keys(self, writer: Any) -> None:
        super()._llama_keys(writer)
        writer.add_expert_count(4)
        writer.add_expert_used_count(2)

    def tensors(self, n_vocab: int) -> dict[str, NDArray[np.float32]]:
        tensors = super().tensors(n_vocab)
        rng = np.random.default_rng(self.seed)
        for layer in range(self.layers):
            for part in ("gate", "up", "down"):
                one = tensors.pop(f"blk.{layer}.ffn_{part}.weight")
                tensors[f"blk.{layer}.ffn_{part}_exps.weight"] = np.stack([one * (1 + i / 8) for i in range(4)])
            tensors[f"blk.{layer}.ffn_gate_inp.weight"] = rng.standard_normal((4, self.width), np.float32)
        return tensors


@pytest.mark.parametrize(("cpu_moe", "of_four"), [(0, 0), (1, 1), (3, 3), (-1, 4), (9, 4)])
def test_experts_on_the_cpu(tokenizer: TokenizerKeys, tmp_path: Path, cpu_moe: int, of_four: int) -> None:
    width = 128
    model = Experts(layers=4, width=width).write(tmp_path / "experts.gguf", tokenizer)
    with rpc_servers(1) as servers:
        options = ModelOptions(model, threads=1, mmap=False, repack=False, cpu_moe=cpu_moe)
        info = loaded(options, rpc=servers, spec_types=("none",))
    cpu, remote = info.loads[0].placement
    experts = 4 * 3 * 2 * width * width * 4  # bytes in a layer
    embedding = len(tokenizer.tokens) * width * 4
    assert (cpu.layers, remote.layers) == (0, 5)
    assert cpu.bytes_weights - embedding == pytest.approx(of_four * experts, abs=20_000)
    assert not info.warnings


# Adapters


def write_adapter(
    path: Path, pairs: Mapping[str, tuple[NDArray[np.float32], NDArray[np.float32]]], **keys: str
) -> Path:
    """``pairs``: tensor → (A of rank × columns, B of rows × rank)."""
    writer = gguf.GGUFWriter(path, keys.get("architecture", "llama"))
    writer.add_type(keys.get("type", "adapter"))
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 2.0)
    for name, (a, b) in pairs.items():
        writer.add_tensor(f"{name}.lora_a", a)
        writer.add_tensor(f"{name}.lora_b", b)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def low_rank(seed: int, rows: int = 32, columns: int = 32) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((2, columns), np.float32) * np.float32(0.3), rng.standard_normal((rows, 2), np.float32)


@dataclass(frozen=True)
class Merged(TinyModel):
    """The tiny model with ``scale * B A`` (alpha = rank) added to some of its weights."""

    deltas: Sequence[tuple[str, float, tuple[NDArray[np.float32], NDArray[np.float32]]]] = ()

    def tensors(self, n_vocab: int) -> dict[str, NDArray[np.float32]]:
        tensors = super().tensors(n_vocab)
        for name, scale, (a, b) in self.deltas:
            tensors[name] = tensors[name] + np.float32(scale) * (b @ a)
        return tensors


QUERY, OUT = "blk.0.attn_q.weight", "blk.0.attn_output.weight"


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return (
        write_adapter(folder / "one.gguf", {QUERY: low_rank(1), OUT: low_rank(2)}),
        write_adapter(folder / "two.gguf", {OUT: low_rank(3)}),
    )


def test_adapters_act_as_if_merged(
    random_draft: Path, tokenizer: TokenizerKeys, adapters: tuple[Path, Path], tmp_path: Path
) -> None:
    one, two = adapters
    deltas = [(QUERY, 1.0, low_rank(1)), (OUT, 1.0, low_rank(2)), (OUT, 0.5, low_rank(3))]
    merged = Merged(deltas=deltas).write(tmp_path / "merged.gguf", tokenizer)
    plain, adapted = row_of(random_draft), row_of(random_draft, lora=((one, 1.0), (two, 0.5)))
    assert np.abs(plain - adapted).max() > 0.1
    np.testing.assert_allclose(adapted, row_of(merged), atol=1e-3)
    assert np.array_equal(plain, row_of(random_draft, lora=((one, 0.0),)))


def test_adapters_with_guesses(random_draft: Path, adapters: tuple[Path, Path]) -> None:
    """The draft model is the target without its adapter, so some guesses are wrong; the text is the target's."""
    adapted = ModelOptions(random_draft, threads=1, lora=((adapters[0], 1.0),))
    wish = GenerationRequest(tokens=tuple(TEXT), max_tokens=24, sampling=GREEDY)
    with load(EngineOptions(adapted, draft=ModelOptions(random_draft, threads=1), n_ctx=256)) as engine:
        assert settings(engine.info)["lora"] == f"{adapters[0]}:1"
        assert settings(engine.info, "draft")["lora"] == "none"

        def ids(spec: SpecParams) -> tuple[int, ...]:
            return next(event for event in engine.submit(replace(wish, spec=spec)) if isinstance(event, Finished)).ids

        with_guesses = ids(SpecParams(depth=3, nodes=6, width=2, mode="fixed"))
        assert with_guesses == ids(SpecParams(depth=0))
    with load(EngineOptions(ModelOptions(random_draft, threads=1), n_ctx=256)) as engine:
        assert next(event for event in engine.submit(wish) if isinstance(event, Finished)).ids != with_guesses


def test_an_adapter_on_a_server(smol: Path, tmp_path: Path) -> None:
    """It lies where its layers lie."""
    path = write_adapter(tmp_path / "smol.gguf", {"blk.29.attn_q.weight": low_rank(5, 576, 576)})
    model = ModelOptions(smol, threads=1, mmap=False, repack=False)
    with rpc_servers(1) as servers:
        plain = loaded(model, rpc=servers).loads[0].placement
        adapted = loaded(replace(model, lora=((path, 1.0),)), rpc=servers).loads[0].placement
    assert adapted[0] == plain[0]
    assert adapted[1].bytes_weights - plain[1].bytes_weights == pytest.approx(2 * 2 * 576 * 4, abs=6000)


def test_adapters_that_do_not_fit(random_draft: Path, smol: Path, tmp_path: Path) -> None:
    def refused(path: Path) -> str:
        with pytest.raises(ModelLoadError) as caught:
            loaded(ModelOptions(random_draft, threads=1, lora=((path, 1.0),)))
        assert caught.value.exit_code == ExitCode.MODEL
        assert "\n" not in caught.value.message
        assert caught.value.hint
        return caught.value.message

    other = write_adapter(tmp_path / "other.gguf", {"blk.7.attn_q.weight": low_rank(1)})
    assert "other.gguf does not fit this model: LoRA tensor 'blk.7.attn_q.weight' does not exist" in refused(other)
    wide = write_adapter(tmp_path / "wide.gguf", {QUERY: low_rank(1, 64, 64)})
    assert "incorrect shape" in refused(wide)
    family = write_adapter(tmp_path / "family.gguf", {QUERY: low_rank(1)}, architecture="qwen2")
    assert "mismatch" in refused(family)
    assert "expect general.type to be 'adapter'" in refused(smol)
    assert refused(tmp_path / "nowhere.gguf").endswith("nowhere.gguf does not exist")
    text = tmp_path / "text.gguf"
    text.write_text("not a model")
    assert "is not a GGUF file" in refused(text)


def test_adapters_are_for_the_target(random_draft: Path, adapters: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="for the target alone"):
        loaded(ModelOptions(random_draft), ModelOptions(random_draft, lora=((adapters[0], 1.0),)))


def test_memory_is_given_back(random_draft: Path, adapters: tuple[Path, Path], tmp_path: Path) -> None:
    """Adapters go with their model, whether the load ends well or not."""
    broken = write_adapter(tmp_path / "broken.gguf", {"blk.9.attn_q.weight": low_rank(1)})
    for _ in range(3):
        with pytest.raises(ModelLoadError):
            loaded(ModelOptions(random_draft, threads=1, lora=((adapters[0], 1.0), (broken, 1.0))))
        loaded(ModelOptions(random_draft, threads=1, lora=((adapters[0], 1.0), (adapters[1], 1.0))))
