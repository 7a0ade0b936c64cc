"""Torch in float32 against llama.cpp on the same files: every architecture, every type of weights, real models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch", reason="needs the extra 'torch'")

from localspec.backends.base import Target, Work
from localspec.backends.fake import FakeVocab
from localspec.backends.options import RopeOptions
from localspec.backends.torch.llama import TorchLlama
from localspec.backends.torch.target import TorchTarget
from localspec.errors import Cancelled, ModelLoadError
from localspec.spec.tree import TokenTree
from scripts import torch_equality
from tests.real.support import opened
from tests.support.gguf_decoders import Kind, TinyDecoder
from tests.support.gguf_files import TokenizerKeys
from tests.support.random_weights import scales
from tests.support.real_models import gemma_in

N, CHUNK = 512, 24
TEXT = tuple(3 + i * i % (N - 7) for i in range(4 * CHUNK))
FRANCE = (504, 3575, 282, 4649, 314)
#: Of a row as a whole. Scores of two tokens that are nearer than this share of the largest may change places.
CLOSE, NEAR = 2e-3, 4e-3

_SLOWER = 1 + 3 * np.abs(scales(np.random.default_rng(5), 8) - 1)
_LONG = {"rope.scaling.original_context_length": 128, "rope.scaling.attn_factor": 1.19}
_WINDOW = {"attention.sliding_window": 16, "rope.freq_base": 1e6}
MODELS: Mapping[str, TinyDecoder] = {
    "llama": TinyDecoder(n_vocab=N),
    "llama, tied, biased, alone": TinyDecoder(n_vocab=N, tied=True, biased=True, kv_heads=4, seed=1),
    "llama 3": TinyDecoder(n_vocab=N, factors={"rope_freqs": _SLOWER}, keys={"rope.freq_base": 5e5}, seed=2),
    "llama, linear": TinyDecoder(n_vocab=N, keys={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, seed=3),
    "mixtral": TinyDecoder(n_vocab=N, experts=4, seed=4),
    "qwen2": TinyDecoder(n_vocab=N, architecture="qwen2", biased=True, tied=True, seed=5),
    "qwen2, yarn": TinyDecoder(
        n_vocab=N,
        architecture="qwen2",
        biased=True,
        keys={
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64,
            "rope.freq_base": 1e4,
        },
        seed=6,
    ),
    "qwen3": TinyDecoder(n_vocab=N, architecture="qwen3", each=32, seed=7),
    "qwen3moe": TinyDecoder(n_vocab=N, architecture="qwen3moe", each=32, experts=6, seed=8),
    "gemma3": TinyDecoder(n_vocab=N, architecture="gemma3", layers=7, each=32, kv_heads=1, tied=True, keys=_WINDOW),
    "gemma3, 3 of 4": TinyDecoder(
        n_vocab=N, architecture="gemma3", layers=4, keys={**_WINDOW, "attention.sliding_window_pattern": 4}, seed=9
    ),
    "gemma3, listed": TinyDecoder(
        n_vocab=N,
        architecture="gemma3",
        layers=3,
        keys={**_WINDOW, "attention.sliding_window_pattern": [True, False, True], "rope.freq_base_swa": 500.0},
        seed=10,
    ),
    "phi3": TinyDecoder(n_vocab=N, architecture="phi3", seed=12, keys={"attention.sliding_window": 16}),
    "phi3, long": TinyDecoder(
        n_vocab=N,
        architecture="phi3",
        factors={"rope_factors_long": _SLOWER, "rope_factors_short": _SLOWER[::-1].copy()},
        keys=_LONG,
        seed=13,
    ),
    "phi3, short": TinyDecoder(
        n_vocab=N,
        architecture="phi3",
        factors={"rope_factors_long": _SLOWER, "rope_factors_short": _SLOWER[::-1].copy()},
        keys={**_LONG, "rope.scaling.original_context_length": 512},
        seed=14,
    ),
}
#: All but float32 that there are in files.
KINDS = [
    *(Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0),
    *(Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K, Kind.IQ4_NL, Kind.IQ4_XS, Kind.MXFP4),
    *(Kind.IQ1_S, Kind.IQ1_M, Kind.IQ2_XXS, Kind.IQ2_XS, Kind.IQ2_S, Kind.IQ3_XXS, Kind.IQ3_S, Kind.TQ1_0, Kind.TQ2_0),
]


@pytest.fixture(scope="module")
def tokenizer(smol_tokenizer: TokenizerKeys) -> TokenizerKeys:
    return smol_tokenizer.first(N)


def in_torch(path: Path, n_ctx: int = 512, **changes: Any) -> TorchTarget:
    model = TorchLlama.of_file(path, n_ctx=n_ctx, **changes)
    return TorchTarget(model, FakeVocab(model.shape.n_vocab), n_ctx=n_ctx)


def logits(target: Target, text: Sequence[int]) -> NDArray[np.float32]:
    """Behind every token, chunk by chunk: ``[tokens, n_vocab]``."""
    seq, found = target.open(), []
    for start in range(0, len(text), CHUNK):
        chunk = TokenTree.chain(text[start : start + CHUNK])
        (rows,) = target.forward([Work(seq, chunk)])
        found += [rows.logits(node).copy() for node in range(len(chunk))]
        target.commit(seq, range(len(chunk)))
    target.close(seq)
    return np.array(found)


def check_alike(ours: NDArray[np.float32], theirs: NDArray[np.float32], close: float = CLOSE) -> None:
    errors = np.linalg.norm(ours - theirs, axis=1) / np.linalg.norm(theirs, axis=1)
    assert errors.max() <= close
    best, other = theirs.argmax(axis=1), ours.argmax(axis=1)
    rows = np.arange(len(theirs))
    gaps = theirs[rows, best] - theirs[rows, other]
    assert (gaps <= 2 * close * np.abs(theirs).max(axis=1)).all()


def by_llamacpp(path: Path, text: Sequence[int], **changes: Any) -> NDArray[np.float32]:
    with opened(path, **changes) as target:
        return logits(target, text)


@pytest.mark.parametrize("name", MODELS)
def test_architectures(name: str, tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    path = MODELS[name].write(tmp_path / "tiny.gguf", tokenizer)
    check_alike(logits(in_torch(path), TEXT), by_llamacpp(path, TEXT))


@pytest.mark.parametrize(
    "rope",
    [
        RopeOptions(scaling="linear", freq_scale=0.25),
        RopeOptions(scaling="yarn", freq_scale=0.25, yarn_orig_ctx=64, freq_base=5000.0),
        RopeOptions(scaling="yarn", freq_scale=0.5, yarn_orig_ctx=64, yarn_beta_fast=16.0, yarn_beta_slow=2.0),
        RopeOptions(yarn_attn_factor=1.3),
        RopeOptions(yarn_ext_factor=0.5, freq_scale=0.5),
    ],
    ids=["linear", "yarn", "yarn, quick", "attention", "half"],
)
def test_positions_as_the_user_wants_them(rope: RopeOptions, tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    path = MODELS["qwen3"].write(tmp_path / "tiny.gguf", tokenizer)
    ours, theirs = logits(in_torch(path, rope=rope), TEXT), by_llamacpp(path, TEXT, rope=rope)
    check_alike(ours, theirs)
    assert np.abs(theirs - by_llamacpp(path, TEXT)).max() > 0.1  # so it was heard


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_types_of_weights(kind: Any, tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    """Rows of the embedding llama.cpp reads as they are. In matrices it rounds what they are multiplied by, to 8 bits
    or 16: there both differ by that."""
    model, text = TinyDecoder(n_vocab=N, width=256, layers=1, seed=15), TEXT[:CHUNK]
    exact = model.write(tmp_path / "embedding.gguf", tokenizer, {"token_embd": kind, "": Kind.F32})
    check_alike(logits(in_torch(exact), text), by_llamacpp(exact, text))
    rounded = model.write(tmp_path / "all.gguf", tokenizer, {"": kind})
    check_alike(logits(in_torch(rounded), text), by_llamacpp(rounded, text), close=0.05)


def test_real_models(beginning_f32: Path, gemma: Path) -> None:
    """Gemma's weights are of types whose partners llama.cpp rounds, so it reads a copy of them in float32."""
    text = FRANCE * 6
    for ours, theirs in ((beginning_f32, beginning_f32), (gemma, gemma_in("f32"))):
        check_alike(logits(in_torch(ours), text), by_llamacpp(theirs, text))


def test_split_files_are_one_model(tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    model = MODELS["llama"]
    whole = logits(in_torch(model.write(tmp_path / "whole.gguf", tokenizer)), TEXT[:CHUNK])
    first, second = (tmp_path / f"part-{part:05}-of-00002.gguf" for part in (1, 2))
    names = list(model.tensors)
    halves = [{name: model.tensors[name] for name in some} for some in (names[::2], names[1::2])]
    for path, tensors in zip((first, second), halves, strict=True):
        half = replace(model)
        half.__dict__["tensors"] = tensors
        half.write(path, tokenizer)
    assert logits(in_torch(first), TEXT[:CHUNK]).tolist() == whole.tolist()
    assert logits(in_torch(second), TEXT[:CHUNK]).tolist() == whole.tolist()
    second.unlink()
    with pytest.raises(ModelLoadError, match="does not exist"):
        in_torch(first)


def test_loading_tells_how_far_it_is_and_can_be_stopped(tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    path = MODELS["llama"].write(tmp_path / "tiny.gguf", tokenizer, {"": Kind.Q8_0})
    shares: list[float] = []
    in_torch(path, told=shares.append)
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)

    def stop(share: float) -> None:
        if share > 0.3:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        in_torch(path, told=stop)


def test_what_torch_does_not_know_is_named(tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    strange = TinyDecoder(n_vocab=N, architecture="deepseek2").write(tmp_path / "deepseek.gguf", tokenizer)
    with pytest.raises(ModelLoadError, match=r"deepseek\.gguf is of the architecture deepseek2, not llama, qwen2"):
        in_torch(strange)
    model = MODELS["llama"]
    for change, words in (
        ({"blk.1.attn_rot_embd.weight": np.ones(4, np.float32)}, r"does not know: blk\.1\.attn_rot_embd\.weight"),
        ({"blk.1.ffn_up.weight": None}, r"lacks blk\.1\.ffn_up\.weight"),
    ):
        other = replace(model)
        tensors = {**model.tensors, **change}
        other.__dict__["tensors"] = {name: one for name, one in tensors.items() if one is not None}
        with pytest.raises(ModelLoadError, match=words):
            in_torch(other.write(tmp_path / "other.gguf", tokenizer))
    short = model.write(tmp_path / "short.gguf", tokenizer)
    short.write_bytes(short.read_bytes()[:-4000])
    with pytest.raises(ModelLoadError, match="ends before its tensor"):
        in_torch(short)
    narrow = TinyDecoder(n_vocab=N, architecture="gemma3").write(tmp_path / "narrow.gguf", tokenizer)
    with pytest.raises(ModelLoadError, match=r"narrow\.gguf has no sliding window"):
        in_torch(narrow)
    differing = TinyDecoder(n_vocab=N, keys={"attention.head_count_kv": [2, 4]})
    with pytest.raises(ModelLoadError, match=r"layers of differing\.gguf are of different sizes"):
        in_torch(differing.write(tmp_path / "differing.gguf", tokenizer))


def test_the_same_text_from_both_backends(smol_f32: Path) -> None:
    """The long form has 20 prompts and 64 tokens of each: scripts/torch_equality.py."""
    assert torch_equality.main([str(smol_f32), "--prompts", "2", "--tokens", "8"]) == 0
