"""The kernels on a GPU, in bf16, which the interpreter cannot multiply: ``TRITON_INTERPRET=0 pytest -m gpu``."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs Triton")

import torch

from localspec.backends.base import Extent, Work
from localspec.backends.fake import FakeVocab
from localspec.backends.torch.kernels.dispatch import PLAIN, TRITON
from localspec.backends.torch.kernels.planes import KINDS, weights
from localspec.backends.torch.kernels.tree_attention import Forest, attend, attend_plainly
from localspec.backends.torch.llama import TorchLlama
from localspec.backends.torch.place import Place
from localspec.backends.torch.places import Places
from localspec.backends.torch.target import TorchTarget
from localspec.spec.tree import TokenTree
from scripts.gpu_model import FORMS, SHAPES, Decoder, random_matrix, random_tree
from tests.support.gguf_decoders import TinyDecoder
from tests.torch.kernels.support import error, generator
from tests.torch.kernels.test_tree_attention import CASES, Case, forest_of, tensors
from tests.torch.loops import grown, head_of
from tests.torch.support import TOKENIZER, N

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "0", reason="needs TRITON_INTERPRET=0"),
]
BF16 = 1e-2


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_attention(case: Case) -> None:
    forest, slots = forest_of(case)
    there = Forest(**{part.name: getattr(forest, part.name).cuda() for part in fields(forest)})
    q, keys, values = (part.cuda() for part in tensors(case, forest, slots, torch.bfloat16))
    wanted = attend_plainly(q.float(), keys.float(), values.float(), there, case.sight)
    assert error(attend(q, keys, values, there, case.sight), wanted) < BF16


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 16, 33, 64])
def test_products(kind: str, rows: int) -> None:
    planes = random_matrix(kind, 640, 1024, torch.empty(0, device="cuda"))
    assert not isinstance(planes, torch.Tensor)
    x = torch.randn(rows, 1024, generator=generator(2)).cuda().bfloat16()
    assert error(TRITON.matmul(x, planes), x.double() @ weights(planes).double().T) < BF16


@pytest.mark.parametrize("form", FORMS)
def test_a_target_of_graphs_is_that_of_torch(form: str) -> None:
    """Each size at several lengths, so that graphs are used again."""
    shape, like = SHAPES["tiny"], torch.empty(0, dtype=torch.bfloat16, device="cuda")
    torch.manual_seed(1)
    model = Decoder(shape, form, TRITON, like, 1e9).model
    vocab = FakeVocab(shape.n_vocab)
    plain = TorchLlama(model.shape, model.weights)
    ours, theirs = (TorchTarget(one, vocab, n_ctx=512) for one in (model, plain))
    seqs = ours.open(), theirs.open()
    for n in (100, 16, 1, 37, 12, 64, 1):
        tree = random_tree(n)
        found, wanted = (
            torch.tensor(np.array([rows.logits(node) for node in range(n)]))
            for target, seq in zip((ours, theirs), seqs, strict=True)
            for rows in target.forward([Work(seq, tree)])
        )
        assert error(found, wanted) < 5 * BF16
        ours.commit(seqs[0], tree.path(n - 1))
        theirs.commit(seqs[1], tree.path(n - 1))
    assert not ours.note


def test_experts_are_graphs(tmp_path: Path) -> None:
    path = TinyDecoder(n_vocab=N, architecture="qwen3moe", each=32, experts=9).write(tmp_path / "tiny.gguf", TOKENIZER)
    places = Places.whole(Place(torch.device("cuda"), torch.bfloat16))
    ours, theirs = (
        TorchTarget(TorchLlama.of_file(path, places=places, ops=ops), FakeVocab(N), n_ctx=512)
        for ops in (TRITON, PLAIN)
    )
    for n in (1, 8, 1, 64, 8):
        tree = TokenTree.chain([token % N for token in range(n)])
        found, wanted = (
            torch.tensor(np.array([rows.logits(node) for node in range(n)]))
            for target in (ours, theirs)
            for rows in target.forward([Work(target.open(), tree)])
        )
        assert error(found, wanted) < 5 * BF16
        for target in (ours, theirs):
            target.close(max(target._seqs))
    assert not ours.note


@pytest.mark.parametrize("name", ["eagle", "eagle3"])
def test_a_tree_that_is_grown_in_a_graph_is_the_one_without(name: str, tmp_path: Path) -> None:
    """Behind texts of several lengths, so that graphs are used again."""
    place = Place(torch.device("cuda"), torch.bfloat16)
    ours, theirs = (head_of(name, tmp_path, ops=TRITON, place=place) for _ in range(2))
    assert theirs._loop is not None
    theirs._loop._graphs._capture = lambda run: run
    assert not ours.try_out()
    rng = np.random.default_rng(3)
    seqs = ours.open(), theirs.open()
    for n in (5, 1, 8, 3, 1):
        states = rng.standard_normal((n, 64), np.float32)
        found, wanted = (
            grown(head, [Work(seq, TokenTree.chain(range(3, 3 + n)), states=states)], [Extent(4, 5)])[0]
            for head, seq in zip((ours, theirs), seqs, strict=True)
        )
        for one, other in zip(found, wanted, strict=True):
            assert np.array_equal(one.tokens, other.tokens)
            assert np.array_equal(one.onward, other.onward)
            assert np.allclose(one.scores, other.scores, rtol=BF16)
        for head, seq in zip((ours, theirs), seqs, strict=True):
            head.commit(seq, range(n))


def test_the_likeliest_is_drawn_without_its_row() -> None:
    """Of equals the lowest: scores of bf16 have many."""
    scores = torch.randint(-3, 4, (64, 50_000), generator=generator(5)).bfloat16()
    best = scores.cuda().max(dim=1)
    assert best.indices.tolist() == scores.float().numpy().argmax(axis=1).tolist()
