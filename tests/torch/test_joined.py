"""Matrices that are joined, and matrices that stay quantised, give what they gave apart and as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")

import torch

from localspec.backends.torch.joined import join
from localspec.backends.torch.kernels.dispatch import PLAIN
from localspec.backends.torch.kernels.planes import Planes
from localspec.backends.torch.llama import TorchLlama
from localspec.backends.torch.place import Place
from localspec.backends.torch.places import Places
from localspec.backends.torch.tensors import weight_sizes
from tests.support.gguf_decoders import Kind, TinyDecoder
from tests.torch.kernels.support import error
from tests.torch.support import TOKENIZER, N

#: As Triton's kernels are, whose users join what they can; but these are torch's.
JOINING = replace(PLAIN, waits=False)
MODELS = {
    "llama": TinyDecoder(n_vocab=N),
    "qwen2, biased": TinyDecoder(n_vocab=N, architecture="qwen2", biased=True, seed=1),
    "gemma3": TinyDecoder(n_vocab=N, architecture="gemma3", tied=True, seed=2, keys={"attention.sliding_window": 8}),
    "phi3, joined in its file": TinyDecoder(n_vocab=N, architecture="phi3", seed=3),
    "qwen3moe": TinyDecoder(n_vocab=N, architecture="qwen3moe", experts=4, seed=4),
}
TEXT = torch.arange(12)[None] % N


def hidden(path: Path, **changes: Any) -> torch.Tensor:
    model = TorchLlama.of_file(path, **changes)
    return model.scores(model.read(TEXT).hidden)


@pytest.mark.parametrize("name", MODELS)
def test_joined_matrices_give_what_they_gave(name: str, tmp_path: Path) -> None:
    path = MODELS[name].write(tmp_path / "tiny.gguf", TOKENIZER)
    assert error(hidden(path, ops=JOINING), hidden(path)) < 1e-6
    names = TorchLlama.of_file(path, ops=JOINING).weights
    assert "blk.0.attn_qkv.weight" in names
    assert "blk.0.attn_q.weight" not in names
    assert ("blk.0.attn_qkv.bias" in names) == ("biased" in name)


def test_a_bias_that_one_lacks_is_zero(tmp_path: Path) -> None:
    path = TinyDecoder(n_vocab=N, architecture="qwen2", biased=True, seed=1).write(tmp_path / "tiny.gguf", TOKENIZER)
    model = TorchLlama.of_file(path)
    weights = dict(model.weights)
    for layer in range(2):
        del weights[f"blk.{layer}.attn_k.bias"]
    apart = TorchLlama(model.shape, dict(weights))
    join(weights, range(2))
    together = TorchLlama(model.shape, weights)
    assert error(together.read(TEXT).hidden, apart.read(TEXT).hidden) < 1e-6


#: The start of a tensor's name → its type; "" is that of all others.
FORMS: Mapping[str, Mapping[str, Any]] = {
    "Q8_0": {"": Kind.Q8_0},
    "Q4_K and Q6_K": {"": Kind.Q4_K, "blk.0.attn_v": Kind.Q6_K, "blk.1.ffn_down": Kind.Q6_K, "output.": Kind.Q6_K},
    "in part": {"": Kind.F16, "blk.0.ffn": Kind.Q4_K},
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("ops", [PLAIN, JOINING], ids=["apart", "joined"])
def test_quantised_matrices_give_what_their_numbers_give(name: str, ops: Any, tmp_path: Path) -> None:
    decoder = TinyDecoder(n_vocab=N, width=256, seed=5)
    path = decoder.write(tmp_path / "tiny.gguf", TOKENIZER, FORMS[name])
    assert error(hidden(path, ops=ops, packed=True), hidden(path)) < 1e-5
    model = TorchLlama.of_file(path, ops=ops, packed=True)
    kinds = {name: one.kind for name, one in model.weights.items() if isinstance(one, Planes)}
    assert kinds["blk.0.ffn_down.weight"] == ("Q8_0" if name == "Q8_0" else "Q4_K")
    assert not isinstance(model.embedding, Planes)
    if name == "Q4_K and Q6_K":
        # What is not of one kind stays apart.
        assert kinds["blk.0.attn_v.weight"] == "Q6_K"
        assert "blk.1.attn_v.weight" not in kinds or ops is PLAIN
    assert model.bytes_in(Place()) == sum(weight_sizes(path, Places.whole(Place()), packed=True).values())


def test_what_planes_have_no_words_for_becomes_numbers(tmp_path: Path) -> None:
    """Rows of 96 numbers in Q8_0 end within a word."""
    decoder = TinyDecoder(n_vocab=N, width=96, heads=4, seed=6)
    path = decoder.write(tmp_path / "tiny.gguf", TOKENIZER, {"": Kind.Q8_0})
    weights = TorchLlama.of_file(path, packed=True).weights
    assert not isinstance(weights["blk.0.ffn_up.weight"], Planes)
    assert isinstance(weights["blk.0.ffn_down.weight"], Planes)
    assert np.isfinite(hidden(path, packed=True).numpy()).all()
