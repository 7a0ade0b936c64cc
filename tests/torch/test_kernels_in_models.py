"""Whole models through Triton's kernels, interpreted, against torch's own functions: buckets, trees, what is kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs Triton")

from localspec.backends.base import NORMED, Work
from localspec.backends.fake import FakeVocab
from localspec.backends.torch.kernels.dispatch import PLAIN, TRITON, Ops
from localspec.backends.torch.kernels.jit import Card
from localspec.backends.torch.llama import TorchLlama
from localspec.backends.torch.target import TorchTarget
from localspec.spec.tree import TokenTree
from tests.support.gguf_decoders import TinyDecoder
from tests.torch.support import TOKENIZER, N

SIZES: Mapping[str, Any] = {"n_vocab": N, "width": 32, "heads": 2, "kv_heads": 1, "each": 16}
MODELS = {
    "llama": TinyDecoder(**SIZES),
    "qwen3": TinyDecoder(architecture="qwen3", seed=1, **SIZES),
    "qwen3moe": TinyDecoder(architecture="qwen3moe", experts=9, seed=3, **SIZES),
    "gemma3": TinyDecoder(
        architecture="gemma3",
        tied=True,
        seed=2,
        keys={"attention.sliding_window": 4, "attention.sliding_window_pattern": [True, False]},
        **SIZES,
    ),
}
TREE = TokenTree.grown((3, 4, 5, 6, 7, 8), (-1, 0, 0, 1, 3, 4), (1.0,) * 6, ("",) * 6)


def answers(path: Path, ops: Ops) -> list[NDArray[np.float32]]:
    """Behind a text, a tree, what was kept of it beside a second text; states of layers, too."""
    target = TorchTarget(TorchLlama.of_file(path, ops=ops), FakeVocab(N), n_ctx=40, sequences=2)
    seq, found = target.open(), []
    target.forward([Work.prompt(seq, (1, 2, 3, 4, 5))])
    target.commit(seq, range(5))
    (rows,) = target.forward([Work(seq, TREE, features=(1, NORMED))])
    found += [rows.logits(node) for node in range(len(TREE))] + [*rows.features[1], *rows.features[NORMED]]
    target.commit(seq, (0, 1, 3))
    for rows in target.forward([Work(target.open(), TokenTree.chain((9, 2))), Work(seq, TokenTree.root(11))]):
        found.append(rows.logits(0))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_kernels_is_one_of_torch(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Card, "of", classmethod(lambda cls, device: Card(processors=1)))
    path = MODELS[name].write(tmp_path / "tiny.gguf", TOKENIZER)
    for ours, theirs in zip(answers(path, TRITON), answers(path, PLAIN), strict=True):
        assert np.linalg.norm(ours - theirs) <= 1e-4 * np.linalg.norm(theirs)
