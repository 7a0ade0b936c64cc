"""Every option of a model reaches its context, for target and draft model apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.backends.llamacpp import LlamaModel, LlamaOptions, LlamaTarget, Native
from localspec.backends.llamacpp.memory import cache_bytes
from localspec.drafters.draft_model import DraftModel
from localspec.engine import Engine
from localspec.errors import OutOfMemory, UsageError
from localspec.loading import EngineOptions, ModelOptions, load
from tests.real.support import opened, read, running


def made(target: LlamaTarget) -> dict[str, int]:
    """What llama.cpp says of a context."""
    names = ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_threads", "n_threads_batch")
    return {name: int(getattr(target._lib, f"llama_{name}")(target._ctx)) for name in names}


def both(engine: Engine) -> tuple[LlamaTarget, LlamaTarget]:
    target = engine.target
    (drafter,) = [one for one in engine._panel._drafters if isinstance(one, DraftModel)]
    assert isinstance(target, LlamaTarget)
    assert isinstance(drafter._model, LlamaTarget)
    return target, drafter._model


def test_sizes_and_threads(smol: Path, random_draft: Path) -> None:
    options = EngineOptions(
        ModelOptions(smol, threads=2, threads_batch=1),
        draft=ModelOptions(random_draft, threads=1, threads_batch=2),
        n_ctx=768,
        n_batch=192,
        n_ubatch=96,
        sequences=3,
        tree_nodes=8,
    )
    with load(options) as engine:
        target, draft = both(engine)
        shared = {
            "n_ctx": 768,
            "n_batch": 192,
            "n_ubatch": 96,
            "n_seq_max": 3 + 7 + 1,
        }  # sequences, branches, the waste
        assert made(target) == {**shared, "n_threads": 2, "n_threads_batch": 1}
        assert made(draft) == {**shared, "n_threads": 1, "n_threads_batch": 2}
        assert target.caps.max_outputs == draft.caps.max_outputs == 27
        assert (target.caps.max_rows, target.caps.max_sequences, target.caps.max_leaves) == (192, 3, 10)
        # Threads that the user fixed stay.
        target.set_threads(7)
        draft.set_threads(7)
        assert (made(target)["n_threads"], made(target)["n_threads_batch"]) == (2, 1)
        assert (made(draft)["n_threads"], made(draft)["n_threads_batch"]) == (1, 2)


def test_threads_that_are_free(random_draft: Path) -> None:
    with opened(random_draft, threads=None, threads_batch=None) as target:
        target.set_threads(3)
        assert (made(target)["n_threads"], made(target)["n_threads_batch"]) == (3, 3)
    with opened(random_draft, threads=2, threads_batch=None) as target:
        target.set_threads(3)
        assert (made(target)["n_threads"], made(target)["n_threads_batch"]) == (2, 2)


def test_the_draft_context_is_no_longer_than_it_was_trained_for(smol: Path, random_draft: Path) -> None:
    with running(smol, random_draft, n_ctx=4096) as engine:
        target, draft = both(engine)
        assert (made(target)["n_ctx"], made(draft)["n_ctx"]) == (4096, 2048)
        assert any("trained for 2048 tokens" in line for line in engine.info.warnings)


@pytest.mark.parametrize("asked", [0, 100, 256])
def test_a_context_that_is_rounded_up_is_said(random_draft: Path, asked: int) -> None:
    with running(random_draft, spec_types=("none",), n_ctx=asked) as engine:
        rounded = ("-c 100 became 256: llama.cpp's contexts are multiples of 256",)
        assert engine.info.warnings == (rounded if asked == 100 else ())
        assert engine.info.n_ctx == (256 if asked else 2048)


def test_no_context_means_the_model_s_own(random_draft: Path) -> None:
    with running(random_draft, spec_types=("none",), n_ctx=0) as engine:
        assert engine.info.n_ctx == engine.info.n_ctx_train == 2048


def cell_bytes(target: LlamaTarget) -> float:
    seq = target.open()
    read(target, seq, list(range(500, 532)))
    full = target.cells(seq)
    target.truncate(seq, 0)
    return (full - target.cells(seq)) / 32


def test_cache_types(smol: Path) -> None:
    def size(**types: str) -> float:
        with opened(smol, n_ctx=256, flash_attn="on", **types) as target:
            return cell_bytes(target)

    # 30 layers, 3 heads of 64 numbers, keys and values; a few bytes more for the cell itself.
    numbers = 30 * 3 * 64
    narrow = size(cache_type_k="q8_0", cache_type_v="q8_0")
    assert size(cache_type_k="f32", cache_type_v="f32") == pytest.approx(8 * numbers, rel=0.01)
    assert size(cache_type_k="f16", cache_type_v="f16") == pytest.approx(4 * numbers, rel=0.01)
    assert size(cache_type_k="f32", cache_type_v="f16") == pytest.approx(6 * numbers, rel=0.01)
    assert narrow == pytest.approx(2 * numbers * 34 / 32, rel=0.01)


def test_cache_types_of_target_and_draft_apart(smol: Path, random_draft: Path) -> None:
    options = EngineOptions(
        ModelOptions(random_draft, threads=1, cache_type_k="f32", cache_type_v="f32"),
        draft=ModelOptions(random_draft, threads=1, cache_type_k="f16", cache_type_v="f16"),
        n_ctx=256,
        flash_attn="off",
    )
    with load(options) as engine:
        target, draft = both(engine)
        assert cell_bytes(target) - cell_bytes(draft) == 2 * 2 * 32
    swapped = replace(
        options, target=replace(options.target, cache_type_k="f16"), draft=replace(options.target, path=smol)
    )
    with load(swapped) as engine:
        target, draft = both(engine)
        assert cell_bytes(draft) > cell_bytes(target)


def test_a_quantised_value_cache_needs_flash_attention(smol: Path) -> None:
    with (
        pytest.raises(UsageError, match="needs flash attention") as caught,
        running_with(smol, flash_attn="off", cache_type_v="q8_0"),
    ):
        pass
    assert "-fa on" in caught.value.hint


def running_with(path: Path, *, flash_attn: str, cache_type_v: str) -> Any:
    model = ModelOptions(path, threads=1, cache_type_v=cache_type_v)
    return load(EngineOptions(model, n_ctx=256, flash_attn=flash_attn))


@pytest.mark.parametrize(("asked", "said"), [("on", "enabled"), ("off", "disabled")])
def test_flash_attention(random_draft: Path, asked: str, said: str) -> None:
    with Native().log.captured() as lines, opened(random_draft, flash_attn=asked):
        pass
    assert any("flash_attn" in text and said in text for _, text in lines), [t for _, t in lines if "flash" in t]


def test_offload_that_is_not_possible_is_said_once(random_draft: Path) -> None:
    if Native().can_offload:
        pytest.skip("this build can offload")
    model = ModelOptions(random_draft, gpu_layers=99, threads=1)
    with load(EngineOptions(model, draft=model, n_ctx=256)) as engine:
        assert [line.split(":")[0] for line in engine.info.warnings] == ["-ngl and -ngld ignored"]
    none = replace(model, gpu_layers=0)
    with load(EngineOptions(none, draft=model, n_ctx=256)) as engine:
        assert [line.split(":")[0] for line in engine.info.warnings] == ["-ngld ignored"]
    with load(EngineOptions(none, n_ctx=256)) as engine:
        assert engine.info.warnings == ()


def test_a_context_that_cannot_fit_is_refused_before_it_is_filled(smol: Path) -> None:
    with pytest.raises(OutOfMemory, match="10000000 tokens") as caught:
        load(EngineOptions(ModelOptions(smol, threads=1), n_ctx=10_000_000))
    assert "-c" in caught.value.hint


def test_the_size_of_a_cache(smol: Path) -> None:
    options = LlamaOptions(smol, n_ctx=1000)
    model = LlamaModel(Native(), options)
    assert cache_bytes(model, options) == 1000 * 30 * 2 * 192 * 2
    assert cache_bytes(model, replace(options, cache_type_k="q8_0")) == 1000 * 30 * 192 * (2 + 34 / 32)
    model.free()
