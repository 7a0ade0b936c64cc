"""Engines on torch whose layers lie in two places: on the CPU, and on a card that is the CPU, with other numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")

import torch

from localspec.backends.torch.place import Gpu, Place
from localspec.backends.torch.target import TorchTarget
from localspec.engine import Engine
from localspec.engine_options import FitOptions
from localspec.errors import LocalspecError, OutOfMemory
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.torch_loading import InTorch
from localspec.types import GenerationRequest, SamplingParams
from tests.real.support import GREEDY, PLAIN, TREE, answer
from tests.support.gguf_files import TinyModel, TokenizerKeys
from tests.support.gguf_heads import TinyHead

N, MASK = 2000, 16
TARGET, DRAFT = TinyModel(layers=4, width=64, seed=3), TinyModel(seed=4)
CARD = Place(dtype=torch.float64, card="CUDA0")
TEXT = (504, 1768, 282, 1649, 314, 1042, 28, 284, 260, 1768, 282, 1500)
PLENTY = 10**12


@pytest.fixture(scope="module")
def folder(smol_tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, words = tmp_path_factory.mktemp("offload"), smol_tokenizer.first(N)
    TARGET.write(folder / "target.gguf", words)
    DRAFT.write(folder / "draft.gguf", words)
    TinyModel(seed=6).write(folder / "masked.gguf", words.with_integer("tokenizer.ggml.mask_token_id", MASK))
    TinyHead(N, TARGET.width, (0, 1, 3), guessable=tuple(range(3, N, 7))).write(folder / "head.gguf", words)
    return folder


def options(folder: Path, draft: str | None = None, ngl: int | None = None, ngld: int | None = None) -> EngineOptions:
    return EngineOptions(
        ModelOptions(folder / "target.gguf", gpu_layers=ngl, threads=1),
        None if draft is None else ModelOptions(folder / draft, gpu_layers=ngld, threads=1),
        n_ctx=256,
        n_ubatch=64,
        tree_nodes=8,
        measure=False,
        backend="torch",
        fit=FitOptions(margins=(0,)),
    )


class Free:
    """Tells how much of a card is free: one number after the other, the last one for ever."""

    def __init__(self, *told: int) -> None:
        self._told = list(told)

    def __call__(self) -> int:
        return self._told.pop(0) if len(self._told) > 1 else self._told[0]


@contextmanager
def on_card(wanted: EngineOptions, monkeypatch: pytest.MonkeyPatch, *free: int) -> Iterator[Engine]:
    told = Free(*free)
    with monkeypatch.context() as card:
        card.setattr("localspec.torch_loading.InTorch", partial(InTorch, gpu=lambda: Gpu(CARD, told)))
        with load(wanted) as engine:
            yield engine


def placed(engine: Engine) -> list[list[tuple[str, int]]]:
    return [[(one.device, one.layers) for one in model.placement] for model in engine.info.loads]


@pytest.mark.parametrize("draft", [None, "draft.gguf", "masked.gguf", "head.gguf"])
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=0.8, seed=5)], ids=["greedy", "drawn"])
def test_the_text_is_that_of_the_cpu(
    draft: str | None, sampling: SamplingParams, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = GenerationRequest(tokens=TEXT, max_tokens=15, sampling=sampling, spec=PLAIN if draft is None else TREE)
    with load(options(folder, draft)) as engine:
        here = answer(engine, wish)
    with on_card(options(folder, draft, ngl=3, ngld=2), monkeypatch, PLENTY) as engine:
        found = answer(engine, wish)
        assert found.ids == here.ids
        assert (found.stats.draft_n, found.stats.accepted) == (here.stats.draft_n, here.stats.accepted)
        assert placed(engine)[0] == [("CPU", 2), ("CUDA0", 3)]
        assert isinstance(engine.target, TorchTarget)
        kinds = [layer[0].dtype for layer in engine.target._cells.layers]
        assert kinds == [torch.float32] * 2 + [torch.float64] * 2
        assert not engine.info.warnings


def test_what_lies_where_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with on_card(options(folder, "draft.gguf", ngl=1, ngld=99), monkeypatch, PLENTY) as engine:
        assert placed(engine) == [[("CPU", 4), ("CUDA0", 1)], [("CUDA0", DRAFT.layers + 1)]]
        here, there = engine.info.loads[0].placement
        assert (here.bytes_cache, there.bytes_cache) == (4 * 2 * 256 * TARGET.layers * TARGET.width, 0)
        settings = dict(engine.info.loads[0].settings)
        assert settings["weights"] == "f32 and f64"
        assert settings["planned memory"].startswith("CPU: ")
        assert "; CUDA0: " in settings["planned memory"]
        assert dict(engine.info.loads[1].settings)["weights"] == "f64"


def test_a_card_without_room_for_what_was_asked_refuses(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = options(folder, ngl=3)
    with (
        pytest.raises(OutOfMemory, match=r"target\.gguf needs 0\.0 GB of CUDA0 in torch"),
        on_card(wanted, monkeypatch, 0),
    ):
        pass


def test_layers_go_where_there_is_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As planned, which is said first; and nothing is said of what came out as it was planned."""
    with on_card(options(folder, "draft.gguf", ngl=3, ngld=2), monkeypatch, PLENTY) as engine:
        free = sum(_planned(model.settings) for model in engine.info.loads)
    with on_card(options(folder, "draft.gguf"), monkeypatch, free) as engine:
        told, *others = engine.info.warnings
        assert not others
        assert told.startswith("fit: -ngl ")
        target, draft = (sum(n for device, n in one if device == "CUDA0") for one in placed(engine))
        assert f"-ngl {target} -ngld {draft}: " in told
        assert 0 < target + draft < TARGET.layers + DRAFT.layers + 2
        there = [one for model in engine.info.loads for one in model.placement if one.device == "CUDA0"]
        assert 0 < sum(one.bytes_weights + one.bytes_cache for one in there) < free


def _planned(settings: Any) -> int:
    """Bytes of the card, as they are told: in whole megabytes, of which we take one more."""
    told = dict(settings)["planned memory"].split("CUDA0: ")[-1]
    return (int(told.split(" MB")[0]) + 1) * 10**6


def test_what_takes_more_than_was_planned_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The card is asked for the plan, whether there is room, before the load and after it."""
    wanted = options(folder)
    with on_card(replace(wanted, target=replace(wanted.target, gpu_layers=3)), monkeypatch, PLENTY) as engine:
        free = _planned(engine.info.loads[0].settings)
    with on_card(wanted, monkeypatch, free, 9 * free, 9 * free, 0) as engine:
        told = [line for line in engine.info.warnings if "were planned" in line]
        assert len(told) == 1
        assert told[0].startswith("fit: the target takes ")
        assert " of CUDA0, " in told[0]


def test_without_fit_what_has_no_room_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = replace(options(folder), fit=FitOptions(on=False))
    with pytest.raises(LocalspecError, match=r"needs 0\.0 GB in torch"), on_card(wanted, monkeypatch, 10):
        pass
