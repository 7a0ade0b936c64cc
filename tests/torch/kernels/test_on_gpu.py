"""The kernels on a GPU, in bf16, which the interpreter cannot multiply: ``TRITON_INTERPRET=0 pytest -m gpu``."""

from __future__ import annotations

import os
from dataclasses import fields

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs Triton")

import torch

from localspec.backends.base import Work
from localspec.backends.fake import FakeVocab
from localspec.backends.torch.kernels.dispatch import TRITON
from localspec.backends.torch.kernels.planes import KINDS, weights
from localspec.backends.torch.kernels.tree_attention import Forest, attend, attend_plainly
from localspec.backends.torch.llama import TorchLlama
from localspec.backends.torch.place import Place
from localspec.backends.torch.target import TorchTarget
from scripts.gpu_model import FORMS, SHAPES, Decoder, random_matrix, random_tree
from tests.torch.kernels.support import error, generator
from tests.torch.kernels.test_tree_attention import CASES, Case, forest_of, tensors

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
    place, vocab = Place(like.device, like.dtype), FakeVocab(shape.n_vocab)
    plain = TorchLlama(model.shape, model.weights)
    ours, theirs = (TorchTarget(one, vocab, n_ctx=512, place=place) for one in (model, plain))
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
