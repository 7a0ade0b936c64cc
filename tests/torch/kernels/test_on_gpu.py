"""The kernels on a GPU, in bf16, which the interpreter cannot multiply: ``TRITON_INTERPRET=0 pytest -m gpu``."""

from __future__ import annotations

import os
from dataclasses import fields, replace

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs Triton")

import torch

from localspec.backends.torch.kernels.dispatch import PLAIN, TRITON
from localspec.backends.torch.kernels.planes import KINDS, weights
from localspec.backends.torch.kernels.tree_attention import Forest, attend, attend_plainly
from scripts.gpu_model import FORMS, SHAPES, Decoder, Feed, random_matrix
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
def test_a_step_in_a_graph_is_that_of_torch(form: str) -> None:
    shape, like = SHAPES["tiny"], torch.empty(0, dtype=torch.bfloat16, device="cuda")
    torch.manual_seed(1)
    decoder = Decoder(shape, form, TRITON, like, 512, 1e9)
    feed = Feed.of(shape, 2, 16, 256, torch.device("cuda"))
    feed.stand(100)
    decoder.step(feed)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scores, _ = decoder.step(feed)
    feed.stand(37)  # another length, the same graph
    graph.replay()
    decoder.ops = replace(PLAIN)
    wanted, _ = decoder.step(feed)
    assert error(scores, wanted) < 5 * BF16
