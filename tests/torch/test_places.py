"""Models in two places: each layer and its cache lie where they should, states move once, and scores stay the same.

Both places are the CPU, of different types of numbers: what was not moved cannot be multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch", reason="needs the extra 'torch'")

import torch
from torch import Tensor

from localspec.backends.base import NORMED, Work
from localspec.backends.fake import FakeVocab
from localspec.backends.options import ModelOptions
from localspec.backends.torch.kernels.dispatch import PLAIN
from localspec.backends.torch.kernels.planes import Planes
from localspec.backends.torch.llama import TorchLlama
from localspec.backends.torch.place import Gpu, Place
from localspec.backends.torch.places import Places
from localspec.backends.torch.target import TorchTarget
from localspec.backends.torch.tensors import weight_sizes
from localspec.spec.tree import TokenTree
from tests.support.gguf_decoders import Kind, TinyDecoder
from tests.torch.support import TOKENIZER, N

LAYERS = 3
MODELS = {
    "llama": TinyDecoder(n_vocab=N, layers=LAYERS),
    "tied": TinyDecoder(n_vocab=N, layers=LAYERS, tied=True, seed=1),
    "biased": TinyDecoder(n_vocab=N, layers=LAYERS, architecture="qwen2", biased=True, seed=2),
    "experts": TinyDecoder(n_vocab=N, layers=LAYERS, architecture="qwen3moe", experts=4, seed=3),
    "windows": TinyDecoder(
        n_vocab=N,
        layers=LAYERS,
        architecture="gemma3",
        tied=True,
        seed=4,
        keys={"attention.sliding_window": 3, "attention.sliding_window_pattern": [True, False, True]},
    ),
}
MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
BORDERS = range(1, LAYERS + 1)
TREE = TokenTree.grown((3, 4, 5, 6, 7, 8), (-1, 0, 0, 1, 3, 4), (1.0,) * 6, ("",) * 6)
CARD = Place(dtype=torch.float64, card="CUDA0")


@dataclass(frozen=True, slots=True)
class Counting(Place):
    """Notes what was moved to it."""

    moved: list[tuple[int, ...]] = field(default_factory=list, compare=False)

    def put(self, numbers: Tensor) -> Tensor:
        assert numbers.dtype == torch.float32, "it comes from the other place, or from the file"
        self.moved.append(tuple(numbers.shape))
        return Place.put(self, numbers)


def divided(path: Path, border: int, last: Place = CARD, **changes: Any) -> TorchLlama:
    return TorchLlama.of_file(path, places=Places(Place(), last, border), **changes)


def target_of(model: TorchLlama) -> TorchTarget:
    return TorchTarget(model, FakeVocab(N), n_ctx=60, sequences=3)


def answers(target: TorchTarget) -> list[NDArray[np.float32]]:
    """Behind a text, a tree in two passes, what was kept beside a fork and another text; states of layers, too."""
    seq, found = target.open(), []
    target.forward([Work.prompt(seq, (1, 2, 3, 4, 5))])
    target.commit(seq, range(5))
    (first,) = target.forward([Work(seq, TREE.keep(range(3)), features=(*range(LAYERS), NORMED))])
    (rows,) = target.forward([Work(seq, TREE, done=3, rows_from=3, features=(*range(LAYERS), NORMED))])
    found += [first.logits(node) for node in range(3)] + [rows.logits(node) for node in range(3, 6)]
    found += [states for one in (first, rows) for layer in sorted(one.features) for states in one.features[layer]]
    target.commit(seq, (0, 1, 3))
    fork = target.fork(seq, 6)
    works = [Work(target.open(), TokenTree.chain((9, 2))), Work(seq, TREE), Work(fork, TokenTree.root(11))]
    found += [
        rows.logits(node)
        for rows, work in zip(target.forward(works), works, strict=True)
        for node in (0, len(work.tree) - 1)
    ]
    target.truncate(fork, 4)
    (rows,) = target.forward([Work(fork, TREE)])
    return [*found, *(rows.logits(node) for node in range(6))]


def check_alike(ours: list[NDArray[np.float32]], theirs: list[NDArray[np.float32]]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == np.float32
        assert np.linalg.norm(one - other) <= 1e-5 * np.linalg.norm(other)


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("name", MODELS)
def test_a_divided_model_says_what_the_whole_one_says(name: str, border: int, tmp_path: Path) -> None:
    path = MODELS[name].write(tmp_path / "tiny.gguf", TOKENIZER)
    check_alike(answers(target_of(divided(path, border))), answers(target_of(TorchLlama.of_file(path))))


@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("name", MODELS)
def test_every_layer_lies_with_its_cache_where_it_should(name: str, border: int, tmp_path: Path) -> None:
    """The last ones on the card, what makes scores with them, the table of tokens with the first."""
    path = MODELS[name].write(tmp_path / "tiny.gguf", TOKENIZER)
    model = divided(path, border)
    wanted = [torch.float32] * border + [torch.float64] * (LAYERS - border)
    for layer, kind in enumerate(wanted):
        assert {one.dtype for key, one in model.weights.items() if key.startswith(f"blk.{layer}.")} == {kind}
    assert model.embedding.dtype == torch.float32
    assert model.unembedding.dtype == model.weights["output_norm.weight"].dtype == torch.float64
    target = target_of(model)
    assert [{part.dtype for part in layer} for layer in target._cells.layers] == [{kind} for kind in wanted]
    assert target.caches == tuple(2 * 60 * MODELS[name].kv_heads * model.shape.each * kind.itemsize for kind in wanted)


def test_states_move_once_a_pass(tmp_path: Path) -> None:
    path, place = MODELS["windows"].write(tmp_path / "tiny.gguf", TOKENIZER), Counting(dtype=torch.float64)
    target = target_of(divided(path, 2, place))
    seq = target.open()
    place.moved.clear()
    for n in (1, 6, 17):
        target.forward([Work(seq, TokenTree.chain([token % N for token in range(n)]))])
    width = target.model.shape.width
    assert place.moved == [(1, 1, width), (1, 6, width), (1, 17, width)]


def test_passes_over_two_places_are_not_filled(tmp_path: Path) -> None:
    path = MODELS["llama"].write(tmp_path / "tiny.gguf", TOKENIZER)
    ops = replace(PLAIN, waits=False)
    assert target_of(TorchLlama.of_file(path, ops=ops))._graphs is not None
    parted = divided(path, 1, ops=ops)
    assert target_of(parted)._graphs is None
    # Only the card gains by joined matrices.
    assert [f"blk.{layer}.attn_qkv.weight" in parted.weights for layer in range(LAYERS)] == [False, True, True]
    check_alike(answers(target_of(parted)), answers(target_of(TorchLlama.of_file(path))))


def test_matrices_stay_quantised_on_the_card_alone(tmp_path: Path) -> None:
    path = TinyDecoder(n_vocab=N, layers=LAYERS, seed=5).write(tmp_path / "tiny.gguf", TOKENIZER, {"": Kind.Q8_0})
    model = divided(path, 2, replace(CARD, dtype=torch.float32), packed=True)
    packed = {name for name, one in model.weights.items() if isinstance(one, Planes)}
    matrices = [f"blk.2.{one}" for one in MATRICES]
    assert packed == {f"{name}.weight" for name in (*matrices, "output")}
    told = weight_sizes(path, model.places, packed=True)
    assert told == {key: one.nbytes for key, one in model.weights.items()}
    check_alike(answers(target_of(model)), answers(target_of(TorchLlama.of_file(path))))


@pytest.mark.parametrize("name", MODELS)
def test_sizes_are_told_as_they_are(name: str, tmp_path: Path) -> None:
    path = MODELS[name].write(tmp_path / "tiny.gguf", TOKENIZER)
    for border in BORDERS:
        model = divided(path, border)
        told = weight_sizes(path, model.places, packed=False)
        assert told == {key: one.nbytes for key, one in model.weights.items()}
        assert model.bytes_in(Place()) + model.bytes_in(CARD) == sum(told.values())


def test_layers_are_counted_as_by_llamacpp() -> None:
    """What is behind the layers is the first to go, then the last layer."""
    gpu = Gpu(CARD, lambda: 0)

    def of(layers: int | None, **changes: Any) -> Places:
        return Places.of(ModelOptions(Path("m.gguf"), gpu_layers=layers, threads=3, **changes), gpu, LAYERS)

    here, there = Place(threads=3), replace(CARD, threads=3)
    assert of(0) == Places.whole(here)
    assert [of(n).border for n in (1, 2, 3)] == [3, 2, 1]
    assert (of(2).first, of(2).last) == (here, there)
    assert [of(2).of_layer(layer) for layer in range(LAYERS + 1)] == [here, here, there, there]
    assert of(4) == of(99) == of(-1) == of(None) == Places.whole(there)
    assert of(2, devices=("none",)) == Places.whole(here)
    assert Places.of(ModelOptions(Path("m.gguf"), gpu_layers=2), None, LAYERS) == Places.whole(Place())
