"""``--fit`` in torch, with tiny files and cards that are said to have so much memory free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")

import torch

from localspec.backends.options import ModelOptions
from localspec.backends.torch.kernels.dispatch import PLAIN, Ops
from localspec.backends.torch.llama import read_header_and_shape
from localspec.backends.torch.place import Gpu, Place
from localspec.backends.torch.places import Places
from localspec.drafters.files import DRAFT_MODEL, EAGLE3, PARD
from localspec.engine_options import EngineOptions, FitOptions
from localspec.errors import UsageError
from localspec.fit_options import Fitted
from localspec.torch_fit import fitted
from localspec.torch_memory import Needs, Passes
from tests.support.gguf_decoders import Kind, TinyDecoder
from tests.torch.support import TOKENIZER, N

LAYERS, DRAFT_LAYERS, N_CTX = 8, 2, 512
CARD = Place(dtype=torch.float16, card="CUDA0")
#: As Triton's: what they are for stays quantised where need be, and short passes are filled.
FILLED = replace(PLAIN, waits=False)
MODELS = {
    "apart": TinyDecoder(n_vocab=N, layers=LAYERS),
    "tied": TinyDecoder(n_vocab=N, layers=LAYERS, tied=True, seed=1),
    "experts": TinyDecoder(n_vocab=N, layers=LAYERS, architecture="qwen3moe", experts=4, seed=2),
}


@pytest.fixture(params=MODELS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return MODELS[request.param].write(tmp_path / "target.gguf", TOKENIZER)


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return TinyDecoder(n_vocab=N, layers=DRAFT_LAYERS, width=32, seed=3).write(tmp_path / "draft.gguf", TOKENIZER)


def options_of(path: Path, draft: Path | None = None, **changes: Any) -> EngineOptions:
    plain = EngineOptions(
        ModelOptions(path), None if draft is None else ModelOptions(draft), n_ctx=N_CTX, fit=FitOptions(margins=(0,))
    )
    return replace(plain, **changes)


def needs_of(path: Path, options: EngineOptions, ops: Ops, layers: int, *, packed: bool = False) -> int:
    """Of the card, with so many layers there, as the loader plans it."""
    shape = read_header_and_shape(path)[1]
    places = Places.of(ModelOptions(path, gpu_layers=layers), gpu_of(0), shape.layers)
    plans = Needs(path, shape, Passes.of(options), ops).by_place(places, options.n_ctx, packed=packed)
    return sum(plan.total for place, plan in plans.items() if place.card)


def gpu_of(free: int) -> Gpu:
    return Gpu(CARD, lambda: free)


def fit_in(free: int, options: EngineOptions, ops: Ops = PLAIN, kind: str | None = None) -> Fitted:
    return fitted(options, gpu_of(free), ops, kind)


@pytest.mark.parametrize("ops", [PLAIN, FILLED], ids=["plain", "filled"])
def test_all_goes_there_while_it_has_room(target: Path, ops: Ops) -> None:
    """To the byte, with the cache, with what passes take, and with graphs where there are any."""
    options = options_of(target)
    whole = needs_of(target, options, ops, -1)
    assert fit_in(whole, options, ops) == Fitted(options)
    found = fit_in(whole - 1, options, ops)
    assert found.plan is not None
    assert found.options.target.gpu_layers == found.plan.shares[0].layers == LAYERS


@pytest.mark.parametrize("layers", range(1, LAYERS + 1))
def test_layers_are_what_the_loader_finds_room_for(target: Path, layers: int) -> None:
    options = options_of(target)
    free = needs_of(target, options, PLAIN, layers)
    found = fit_in(free, options)
    assert found.plan is not None
    assert found.options == replace(options, target=replace(options.target, gpu_layers=layers))
    assert found.plan.shares[0].bytes == {"CUDA0": free}
    assert found.plan.told.startswith(f"fit: -ngl {layers}: ")
    assert "free on CUDA0; " in found.plan.told
    fewer = fit_in(free - 1, options).options.target.gpu_layers
    assert fewer == layers - 1


def test_both_models_share_the_card(target: Path, draft: Path) -> None:
    """With both caches, and with what passes of both take."""
    options = options_of(target, draft)
    both = needs_of(target, options, PLAIN, -1) + needs_of(draft, options, PLAIN, -1)
    for kind in (DRAFT_MODEL, PARD):
        assert fit_in(both, options, kind=kind) == Fitted(options)
        found = fit_in(both - 1, options, kind=kind)
        assert found.plan is not None
        shares = found.plan.shares
        layers = [share.layers for share in shares]
        assert 0 < sum(layers) < LAYERS + DRAFT_LAYERS + 2
        needs = [needs_of(path, options, PLAIN, n) for path, n in zip((target, draft), layers, strict=True)]
        assert sum(needs) < both
        assert [share.bytes["CUDA0"] for share in shares] == needs
        assert [one and one.gpu_layers for one in (found.options.target, found.options.draft)] == layers
        assert found.plan.told.startswith("fit: -ngl {} -ngld {}: ".format(*layers))
    alone = fit_in(both - 1, options, kind=EAGLE3)
    assert alone == Fitted(options), "a head has no layers to share out"


def test_what_was_asked_for_stays(target: Path, draft: Path) -> None:
    options = options_of(target, draft=None)
    options = replace(options, draft=ModelOptions(draft, gpu_layers=0))
    free = needs_of(target, options, PLAIN, 4)
    found = fit_in(free, options, kind=DRAFT_MODEL)
    assert found.options.draft == options.draft
    fixed = replace(options, target=replace(options.target, gpu_layers=3))
    assert fit_in(0, fixed, kind=DRAFT_MODEL) == Fitted(fixed)


def test_where_nothing_is_to_be_chosen_nothing_is_done(target: Path) -> None:
    options = options_of(target)
    for unlike in (
        replace(options, fit=FitOptions(on=False)),
        replace(options, target=replace(options.target, gpu_layers=2)),
        replace(options, target=replace(options.target, devices=("none",))),
    ):
        assert fit_in(10, unlike) == Fitted(unlike)
    assert fitted(options, None, PLAIN, None) == Fitted(options)


def test_a_context_that_was_not_given_is_shortened_first(target: Path) -> None:
    options = options_of(target, n_ctx=0, fit=FitOptions(margins=(0,), n_ctx=256))
    free = needs_of(target, replace(options, n_ctx=1024), PLAIN, -1)
    found = fit_in(free, options)
    assert (found.options.n_ctx, found.options.target.gpu_layers) == (1024, LAYERS + 1)
    assert found.plan is not None
    assert found.plan.told.startswith("fit: -c 1024: ")


def test_matrices_stay_quantised_before_layers_stay_on_the_cpu(tmp_path: Path) -> None:
    decoder = TinyDecoder(n_vocab=N, layers=LAYERS, width=256, seed=5)
    path = decoder.write(tmp_path / "tiny.gguf", TOKENIZER, {"": Kind.Q8_0})
    options = options_of(path)
    numbers, packed = (needs_of(path, options, FILLED, -1, packed=one) for one in (False, True))
    assert packed < numbers
    assert fit_in(numbers, options, FILLED) == Fitted(options)
    assert fit_in(packed, options, FILLED) == Fitted(options, packed=True)
    found = fit_in(packed - 1, options, FILLED)
    assert (found.packed, found.options.target.gpu_layers) == (True, LAYERS)
    assert fit_in(packed, options, PLAIN).packed is False


def test_margins_stay_free(target: Path) -> None:
    options = options_of(target, fit=FitOptions(margins=(1,)))
    whole = needs_of(target, options, PLAIN, -1)
    assert fit_in(whole + 2**20, options).plan is None
    assert fit_in(whole + 2**20 - 1, options).plan is not None
    with pytest.raises(UsageError, match=r"2 margins for 1 devices \(CUDA0\)"):
        fit_in(whole, replace(options, fit=FitOptions(margins=(1, 2))))


def test_a_file_that_is_none_is_said_by_the_loader(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF")
    options = options_of(path)
    assert fit_in(10**9, options) == Fitted(options)
