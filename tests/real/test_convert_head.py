"""EAGLE-3 heads of the hub as GGUF files: llama.cpp computes with them what torch does with the folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch", reason="needs the extra 'torch'")

from localspec import torch_drafters
from localspec.backends.base import CARRIED, Head, Work
from localspec.backends.llamacpp import EagleHead, LlamaModel
from localspec.backends.options import ModelOptions
from localspec.backends.torch.gguf_head import convert_head
from localspec.cli.models import convert
from localspec.drafters.files import EAGLE3
from localspec.drafters.head import HeadModel
from localspec.drafters.options import Scored
from localspec.errors import LocalspecError, ModelLoadError, UsageError
from localspec.loading import load
from localspec.spec.tree import TokenTree
from localspec.torch_drafters import ForTarget, torch_drafter
from localspec.types import GenerationRequest
from tests.real.support import GREEDY, PLAIN, TREE, answer, exact_options, opened
from tests.support.gguf_files import TinyModel, TokenizerKeys
from tests.support.hub_eagle import TinyEagle
from tests.support.plain_layers import LLAMA3

N = 2000
TARGET = TinyModel(layers=8, width=64, seed=3)
GUESSABLE = tuple(range(3, N, 7))
HEAD = TinyEagle(N, TARGET.width, TARGET.layers, guessable=GUESSABLE)
HEADS = {
    "official": HEAD,
    "specforge": replace(HEAD, layout="specforge", reads=(1, 2, 6), seed=1),
    "speculators": replace(
        HEAD, layout="speculators", reads=(1, 3, 7), embeds=True, norm_before_residual=True, width=96, seed=2
    ),
    "scaled positions": replace(HEAD, rope=tuple(LLAMA3.items()), norm_before_fc=True, guessable=None, seed=4),
}
ROUNDING, LONG = 1e-3, 120


@pytest.fixture(scope="module")
def target(smol_tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TARGET.write(tmp_path_factory.mktemp("convert") / "target.gguf", smol_tokenizer.first(N))


@pytest.mark.parametrize("name", HEADS)
def test_llama_cpp_and_torch_guess_alike(name: str, target: Path, tmp_path: Path) -> None:
    """At every position of a text, from the target's states and then from a chain of the head's own."""
    folder = HEADS[name].write(
        tmp_path / "head", file="pytorch_model.bin" if name == "official" else "model.safetensors"
    )
    convert_head(folder, target, tmp_path / "head.gguf", "f32")
    tokens = [int(token) for token in np.random.default_rng(5).integers(5, N, LONG)]
    with opened(target, n_batch=128) as one:
        about = ForTarget(target, one.vocab, TARGET.width, TARGET.layers, n_ctx=256, sequences=1)
        drafter = torch_drafter(EAGLE3, ModelOptions(folder, threads=1), about, Scored()).drafter
        assert isinstance(drafter, HeadModel)
        options = replace(one._options, path=tmp_path / "head.gguf")
        native = EagleHead(LlamaModel(one.model.native, options), options, one)
        try:
            assert native.layers == drafter.needs
            (rows,) = one.forward([Work.prompt(one.open(), tokens, native.layers)])
            features = {layer: states.copy() for layer, states in rows.features.items()}
            found = [rows_of(head, features, tokens) for head in (native, drafter._head)]
        finally:
            native.close_all()
    (theirs, carried), (ours, ours_carried) = found
    assert np.abs(carried - ours_carried).max() < ROUNDING * np.abs(carried).max()
    finite = np.isfinite(ours)
    assert (np.isfinite(theirs) == finite).all()
    assert np.abs(theirs[finite] - ours[finite]).max() < ROUNDING * np.abs(ours[finite]).max()
    assert (theirs.argmax(axis=1) == ours.argmax(axis=1)).mean() >= 0.99


def rows_of(
    head: Head, features: dict[int, NDArray[np.float32]], tokens: Sequence[int]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scores and carried states of all positions, read in pieces, and of ten guesses behind them."""
    seq, scores, carried = head.open(), [], []
    states = head.encode(seq, {layer: one[:-1] for layer, one in features.items()})
    for start in range(0, len(states), 32):
        piece = tokens[1 + start : 33 + start]
        (rows,) = head.forward([Work(seq, TokenTree.chain(piece), states=states[start : start + 32])])
        scores += [rows.logits(node).copy() for node in range(len(piece))]
        carried.append(rows.features[CARRIED].copy())
        head.commit(seq, range(len(piece)))
    for guess in range(10):
        (rows,) = head.forward([Work(seq, TokenTree.root(100 + guess), states=carried[-1][-1:])])
        scores.append(rows.logits(0).copy())
        carried.append(rows.features[CARRIED].copy())
        head.commit(seq, (0,))
    return np.array(scores), np.concatenate(carried)


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_the_command_writes_a_head_that_runs(
    kind: str, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = HEAD.write(tmp_path / "head"), tmp_path / "head.gguf"
    assert convert({"folder": str(folder), "model": str(target), "output_file": str(out), "outtype": kind}) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert not list(tmp_path.glob("*.part"))
    with load(exact_options(target, out, spec_types=(EAGLE3,))) as one:
        wish = GenerationRequest(prompt="The capital", max_tokens=12, sampling=GREEDY, spec=TREE)
        guessed = answer(one, wish)
        assert guessed.ids == answer(one, replace(wish, spec=PLAIN)).ids
        assert guessed.stats.draft_n > 20


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (replace(HEAD, kind="eagle", guessable=None), "is an EAGLE-1 or -2 head: llama.cpp has no form for it"),
        (replace(HEAD, biases=True), "has biases"),
        (replace(HEAD, norm_output=True), "carries its normed state on"),
        (replace(HEAD, reads=(1, 2)), "reads 2 layers"),
        (replace(HEAD, target_width=32), "made for a target of width 32, target.gguf has 64"),
    ],
)
def test_what_cannot_be_converted_is_named(head: TinyEagle, words: str, target: Path, tmp_path: Path) -> None:
    with pytest.raises(LocalspecError, match=words):
        convert_head(head.write(tmp_path / "head"), target, tmp_path / "head.gguf", "f16")
    assert not list(tmp_path.glob("head.gguf*"))


def test_files_that_cannot_be_used_are_named(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = HEAD.write(tmp_path / "head")
    with pytest.raises(LocalspecError, match="cannot be written"):
        convert_head(folder, target, tmp_path / "nowhere" / "head.gguf", "f16")
    with pytest.raises(ModelLoadError, match=r"config.json does not exist"):
        convert_head(tmp_path, target, tmp_path / "head.gguf", "f16")
    values = {"folder": str(folder), "model": str(target), "output_file": None, "outtype": "f16"}
    with pytest.raises(UsageError, match="needs a file to write"):
        convert(values)
    monkeypatch.setattr(torch_drafters, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="torch, which is not installed"):
        convert({**values, "output_file": "head.gguf"})
