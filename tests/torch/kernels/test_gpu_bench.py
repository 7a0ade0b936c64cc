"""The script that measures a GPU runs through at a tiny size on the CPU, and its sums are right."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")

import torch

from localspec.backends.torch.cells import Cells
from localspec.backends.torch.graphs import Graphs
from localspec.backends.torch.kernels.dispatch import PLAIN, TRITON
from localspec.backends.torch.kernels.jit import Card
from localspec.backends.torch.place import Place
from localspec.backends.torch.places import Places
from scripts.gpu_bench import BATCHES, PLANS, ROWS, TINY, main, run, table
from scripts.gpu_measure import DEPTHS, Bench, draftings, replayed, step
from scripts.gpu_model import FORMS, SHAPES, Decoder, Shape, layer_bytes, random_matrix, side_by_side
from tests.torch.kernels.support import error

LIKE = torch.empty(0)


def test_a_tiny_run_fills_table_and_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    main(["--tiny", "-o", str(path)])
    found, printed = json.loads(path.read_text()), capsys.readouterr().out
    assert list(found["models"]) == [f"tiny {form}" for form in FORMS]
    model = found["models"]["tiny bf16"]
    assert [(one["rows"], one["context"]) for one in model["steps"]] == [(1, 16), (1, 64), (8, 16), (8, 64)]
    assert {one["kernel"] for one in model["kernels"]} == {
        *("product: attn_qkv", "product: attn_output", "product: ffn_up", "product: ffn_down", "product: output"),
        *("tree attention", "turn and write", "sum and norm", "gate", "top 10"),
    }
    assert [one["texts"] for one in model["batches"]] == [1, 4]
    assert [one["name"] for one in model["batches"][0]["drafts"]] == [one.name for one in draftings()]
    assert all(draft["gain"] > 0 for one in model["batches"] for draft in one["drafts"])
    assert re.search(r"step, +8 rows, context +64", printed)
    assert [(one["rows"], one["context"]) for one in model["target"]] == [(64, 0), (1, 64), (8, 64)]
    assert re.search(r"target, +8 rows, context +64: .* ms, of which the host's", printed)
    assert "4 texts: plain" in printed


def test_what_was_measured_is_kept_where_time_runs_out() -> None:
    bench = Bench(torch.device("cpu"), PLAIN, LIKE, time.monotonic() + 3600)
    clock = iter([False] * 4 + [True] * 100)

    class Late:
        def __lt__(self, now: object) -> bool:
            return next(clock)

    bench.ends = Late()  # type: ignore[assignment]
    with torch.inference_mode():
        found = run(bench, list(TINY), [], tiny=True)
    assert found["notes"] == ["no time for all of tiny bf16, and for what comes after it"]
    assert len(found["models"]["tiny bf16"]["steps"]) == 2
    assert any("no time" in line for line in table(found))


def test_without_a_gpu_only_a_tiny_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="--tiny"):
        main([])


def test_plans_ask_for_what_was_promised() -> None:
    assert (ROWS, BATCHES) == ((1, 8, 16, 24, 32, 48, 64), (1, 4, 8, 16, 32, 64, 128))
    names = [plan.name for plan in PLANS]
    assert names[:2] == ["llama-3-8b bf16", "llama-3-8b Q4_K_M"]
    assert {"llama-3-70b bf16", "qwen3-8b bf16"} <= {*names}


@pytest.mark.parametrize(("name", "billions"), [("llama-3-8b", 7.51), ("llama-3-70b", 69.5), ("qwen3-8b", 7.57)])
def test_shapes_are_those_of_the_models(name: str, billions: float) -> None:
    shape = SHAPES[name]
    layer = sum(rows * columns for rows, columns in shape.matrices.values())
    assert (shape.layers * layer + shape.n_vocab * shape.width) / 1e9 == pytest.approx(billions, rel=0.005)


@pytest.mark.parametrize("kind", ["bf16", "Q8_0", "Q4_K", "Q6_K"])
def test_random_matrices_have_their_size(kind: str) -> None:
    matrix = random_matrix(kind, 64, 512, torch.empty(0, dtype=torch.bfloat16))
    bits = {"bf16": 16, "Q8_0": 8.5, "Q4_K": 4.625, "Q6_K": 6.625}[kind]
    assert matrix.nbytes * 8 == 64 * 512 * bits


def steps(decoder: Decoder, texts: int, nodes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of texts whose cells hold something."""
    cells = Cells(decoder.model.shape, 128, Places.whole(Place()))
    torch.manual_seed(4)
    for layer in cells.layers:
        for part in layer:
            part.normal_()
    graphs = Graphs(decoder.model, cells, texts, buckets=(texts * nodes,))
    return step(decoder, graphs, *side_by_side(cells, texts, 20, nodes))()


@pytest.mark.parametrize("form", FORMS)
def test_a_step_gives_numbers(form: str) -> None:
    decoder = Decoder(SHAPES["tiny"], form, PLAIN, LIKE, 1e9)
    scores, tokens = steps(decoder, 2, 5)
    assert scores.shape == tokens.shape == (10, 10)
    assert scores.isfinite().all()
    assert decoder.different == 2


@pytest.mark.timeout(300)  # interpreted: some 5 s of work, on a machine that may be busy
@pytest.mark.parametrize("form", ["bf16", "Q4_K_M"])
def test_a_step_of_kernels_is_one_of_torch(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    monkeypatch.setattr(Card, "of", classmethod(lambda cls, device: Card(processors=1)))
    shape = Shape("small", 2, 256, 2, 1, 128, 256, 90, norms=True)
    torch.manual_seed(3)
    decoder = Decoder(shape, form, PLAIN, LIKE, 1e9)
    scores, tokens = steps(decoder, 1, 3)
    decoder.model.ops = TRITON
    found, found_tokens = steps(decoder, 1, 3)
    assert error(found, scores) < 1e-5
    assert torch.equal(found_tokens, tokens)


def test_layers_are_used_again_where_few_fit() -> None:
    shape = Shape("deep", 6, 64, 2, 1, 32, 64, 50)
    decoder = Decoder(shape, "bf16", PLAIN, LIKE, 3.5 * layer_bytes(shape, "bf16"))
    assert decoder.different == 3
    assert decoder.model.block(0, "ffn_up") is decoder.model.block(3, "ffn_up")
    assert decoder.bytes_read == 2 * layer_bytes(shape, "bf16") * 6 + 4 * 50 * 64


def test_longer_chains_bring_more_tokens() -> None:
    tokens = [replayed(depth) for depth in DEPTHS]
    assert tokens == sorted(tokens)
    assert 1 < tokens[0] < 2
