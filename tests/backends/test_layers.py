"""What layers take, as headers tell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.backends.layers import Layers
from localspec.hub.header import Header, Tensor, read_header
from tests.support.gguf_files import TinyModel, TokenizerKeys


def header(tensors: Mapping[str, int], **changes: Any) -> Header:
    """A file with tensors of so many bytes."""
    keys = {"block_count": 2, "embedding_length": 8, "context_length": 64, "attention.head_count": 4}
    numbers = {f"llama.{key}": value for key, value in {**keys, **changes}.items() if value is not None}
    found, offset = [], 0
    for name, size in tensors.items():
        found.append(Tensor(name, (2, size // 2), 0, offset))
        offset += size
    return Header(Path("x.gguf"), 3, {"general.architecture": "llama", **numbers}, tuple(found), 100, 100 + offset)


BLOCKS = {"blk.0.attn_q.weight": 10, "blk.1.attn_q.weight": 20, "blk.1.ffn_up.weight": 4}
INPUT, OUTPUT = {"token_embd.weight": 100}, {"output_norm.weight": 2, "output.weight": 50}


def test_layers_are_counted_from_the_output() -> None:
    found = Layers.of([header({**INPUT, **BLOCKS, **OUTPUT})])
    assert found is not None
    assert (found.output, found.blocks, found.read, found.vocabulary) == (52, (10, 24), 86, 25)
    # A token has 8 keys and 8 values of 2 bytes in each layer.
    assert found.sizes(3, "f16", "f16") == (52, 24 + 96, 10 + 96)
    assert found.sizes(3, "f16", "f16", caches=False) == (52, 24, 10)


def test_a_table_that_is_the_output_too_is_there_twice() -> None:
    found = Layers.of([header({**INPUT, **BLOCKS, "output_norm.weight": 2})])
    assert found is not None
    assert (found.output, found.vocabulary) == (102, 50)


def test_parts_are_one_model() -> None:
    whole = Layers.of([header({**INPUT, **BLOCKS, **OUTPUT})])
    assert Layers.of([header({**INPUT, **BLOCKS}), header(OUTPUT)]) == whole


def test_of_experts_those_are_read_that_are_used() -> None:
    experts = header({**BLOCKS, **OUTPUT, "blk.0.ffn_up_exps.weight": 80}, expert_count=8, expert_used_count=2)
    found = Layers.of([experts])
    assert found is not None
    assert (found.blocks[0], found.read) == (90, 86 + 20)


def test_layers_for_multi_token_prediction_count_where_they_are_loaded() -> None:
    file = [header({**BLOCKS, **OUTPUT}, nextn_predict_layers=1)]
    without, together = Layers.of(file), Layers.of(file, predictors=True)
    assert without is not None
    assert together is not None
    assert without.sizes(1, "f16", "f16") == (52, 0, 10 + 32)
    assert together.sizes(1, "f16", "f16") == (52, 24 + 32, 10 + 32)


def test_a_header_that_does_not_tell() -> None:
    assert Layers.of([header(BLOCKS, embedding_length=None)]) is None


def test_buffers_grow_with_rows_context_and_scores() -> None:
    found = Layers.of([header({**INPUT, **BLOCKS, **OUTPUT}, feed_forward_length=16)])
    assert found is not None
    assert found.buffers(10, 2, 1) == 4 * (2 * (64 + 48) + 2 * 10 + 25)
    assert found.buffers(10, 2, 1, several=True) - found.buffers(10, 2, 1) == 4 * 2 * 10
    assert found.buffers(10, 2, 1, flash=False) - found.buffers(10, 2, 1) == 4 * 2 * 10 * 5


def test_heads_that_differ_by_layer(tmp_path: Path) -> None:
    from gguf import GGUFWriter

    path = tmp_path / "heads.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_embedding_length(8)
    writer.add_context_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv([4, 1])
    writer.add_tensor("blk.0.attn_q.weight", np.zeros((8, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = Layers.of([read_header(path)])
    assert found is not None
    assert [one.key for one in found.caches] == [8, 2]
    assert found.blocks == (256, 0)


def test_a_real_file(smol_tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    path = TinyModel().write(tmp_path / "tiny.gguf", smol_tokenizer)
    found = Layers.of([read_header(path)])
    assert found is not None
    tensors = read_header(path)
    whole = tensors.size - tensors.data
    tied = "output.weight" not in {one.name for one in tensors.tensors}
    table = next(4 * one.elements for one in tensors.tensors if one.name == "token_embd.weight")
    assert found.read == pytest.approx(whole - (0 if tied else table), abs=32 * len(tensors.tensors))
