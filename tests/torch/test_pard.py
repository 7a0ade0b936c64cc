"""A torch decoder as a target, and a parallel draft model on it, against plain numpy of the same weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")

import torch

from localspec.backends.base import NORMED, Work
from localspec.backends.fake import FakeVocab
from localspec.backends.torch.checkpoint import Checkpoint, read_checkpoint
from localspec.backends.torch.hub_model import HubLlama, paired
from localspec.backends.torch.place import Place
from localspec.backends.torch.target import TorchTarget
from localspec.control import Limits, Price
from localspec.drafters.base import Ask
from localspec.drafters.pard import ParallelModel
from localspec.errors import Cancelled, ModelLoadError, OutOfMemory, PairingError
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import SamplingParams
from localspec.vocab import Pairing
from tests.support.hub_folders import TinyHub
from tests.support.plain_layers import Array

N, MASK = 48, 47
VOCAB = FakeVocab(N)
TREE = TokenTree.grown((5, 6, 7, 8, 9, 6), (-1, 0, 0, 2, 2, 4), (1.0,) * 6, ("",) * 6)
PLAIN = TinyHub(N, mask=MASK)
TEXT = [3, 4, 5, 6]


def target_of(plain: TinyHub, folder: Path, **limits: Any) -> TorchTarget:
    model = HubLlama(read_checkpoint(plain.write(folder)))
    return TorchTarget(model, VOCAB, **{"n_ctx": 400, "sequences": 3, **limits})


def read(target: TorchTarget, tokens: Sequence[int]) -> int:
    seq = target.open()
    target.forward([Work.prompt(seq, tokens)])
    target.commit(seq, range(len(tokens)))
    return seq


# -- the decoder


@pytest.mark.parametrize(
    "plain",
    [
        TinyHub(N),
        TinyHub(N, "qwen2", seed=1),
        TinyHub(N, "qwen3", each=16, seed=2),
        TinyHub(N, scaled=True, each=16, base=9000.0, seed=3),
    ],
    ids=["llama", "qwen2", "qwen3", "scaled"],
)
def test_scores_are_those_of_the_weights(plain: TinyHub, tmp_path: Path) -> None:
    """Of a text in one piece, of what follows it, and of a tree over it, grown in two passes."""
    target, text = target_of(plain, tmp_path), [2 + i % 31 for i in range(60)]
    seq = target.open()
    (rows,) = target.forward([Work(seq, TokenTree.chain(text), features=(NORMED, 1))])
    wanted = plain.logits(text)
    for node in (0, 7, 59):
        np.testing.assert_allclose(rows.logits(node), wanted[node], atol=1e-4)
    assert rows.features[NORMED].shape == rows.features[1].shape == (60, plain.width)
    np.testing.assert_allclose(rows.features[NORMED] @ plain.tensors["lm_head.weight"].T, wanted, atol=1e-4)
    target.commit(seq, range(60))
    small = TREE.keep(range(3))
    (first,) = target.forward([Work(seq, small)])
    found = [first.logits(node) for node in range(3)]
    (second,) = target.forward([Work(seq, TREE, done=3)])
    found += [second.logits(node) for node in range(3, 6)]
    for node, row in enumerate(found):
        path = [TREE.tokens[at] for at in TREE.path(node)]
        np.testing.assert_allclose(row, plain.logits([*text, *path])[-1], atol=1e-4)


def test_in_half_the_bits_it_says_the_same_roughly(tmp_path: Path) -> None:
    place = Place(dtype=torch.bfloat16)
    model = HubLlama(read_checkpoint(PLAIN.write(tmp_path)), place)
    target = TorchTarget(model, VOCAB, n_ctx=400)
    (rows,) = target.forward([Work(read(target, TEXT), TREE, features=(NORMED, 1))])
    for node in range(len(TREE)):
        wanted = PLAIN.logits([*TEXT, *(TREE.tokens[at] for at in TREE.path(node))])[-1]
        assert rows.logits(node).dtype == np.float32
        assert np.corrcoef(rows.logits(node), wanted)[0, 1] > 0.99
        assert np.abs(rows.logits(node) - wanted).max() > 1e-4


def test_what_is_kept_is_what_was_committed(tmp_path: Path) -> None:
    target = target_of(PLAIN, tmp_path)
    seq = read(target, TEXT)
    target.forward([Work(seq, TREE)])
    target.commit(seq, (0, 2, 4, 5))
    text = [*TEXT, 5, 7, 9, 6]
    fork = target.fork(seq, 6)
    assert (target.n_past(seq), target.n_past(fork)) == (8, 6)
    target.forward([Work(seq, TREE)])
    assert target.truncate(seq, 7) == 7
    rows = target.forward([Work(one, TokenTree.root(11)) for one in (seq, fork)])
    for n, row in zip((7, 6), rows, strict=True):
        np.testing.assert_allclose(row.logits(0), PLAIN.logits([*text[:n], 11])[-1], atol=1e-4)


def test_long_texts_outgrow_the_first_room(tmp_path: Path) -> None:
    target, text = target_of(PLAIN, tmp_path), [2 + i % 37 for i in range(300)]
    seq = read(target, text[:200])
    target.forward([Work.prompt(seq, text[200:])])
    target.commit(seq, range(100))
    (rows,) = target.forward([Work(seq, TokenTree.root(9))])
    np.testing.assert_allclose(rows.logits(0), PLAIN.logits([*text, 9])[-1], atol=1e-4)


def test_a_pass_that_fails_leaves_what_was_committed(tmp_path: Path) -> None:
    target = target_of(PLAIN, tmp_path, n_ctx=12)
    seq, other = read(target, TEXT), read(target, TEXT)
    with pytest.raises(OutOfMemory, match="12 cells is full"):
        target.forward([Work(seq, TREE)])
    target.interrupt(True)
    with pytest.raises(Cancelled):
        target.forward([Work(seq, TokenTree.root(5))])
    target.interrupt(False)
    assert (target.n_past(seq), target.n_past(other)) == (4, 4)
    target.close(other)
    assert target.forward([Work(seq, TREE)])


def test_other_models_and_holes_are_told(tmp_path: Path) -> None:
    whole = read_checkpoint(PLAIN.write(tmp_path))
    with pytest.raises(ModelLoadError, match="of the kind gemma"):
        HubLlama(Checkpoint({**whole.config, "model_type": "gemma"}, whole.tensors))
    with pytest.raises(ModelLoadError, match="scaled by yarn"):
        HubLlama(Checkpoint({**whole.config, "rope_scaling": {"type": "yarn"}}, whole.tensors))
    tensors = {name: tensor for name, tensor in whole.tensors.items() if "1.mlp.up" not in name}
    with pytest.raises(ModelLoadError, match=r"lacks blk\.1\.ffn_up"):
        HubLlama(Checkpoint(whole.config, tensors))


def write_tokenizer(folder: Path, texts: Sequence[str]) -> Path:
    vocab = {text: token for token, text in enumerate(texts)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}}))
    return folder


def test_tokenizers_are_compared_token_by_token(tmp_path: Path) -> None:
    texts = [VOCAB.text(token) for token in range(N)]
    with pytest.raises(ModelLoadError, match=r"no tokenizer\.json"):
        paired(tmp_path, N, VOCAB)
    assert paired(write_tokenizer(tmp_path, texts), N + 9, VOCAB) == Pairing(N, frozenset())
    assert paired(write_tokenizer(tmp_path, texts[:40]), N, VOCAB) == Pairing(40, frozenset())
    renamed = [texts[0], "<other>", *texts[2:]]
    assert paired(write_tokenizer(tmp_path, renamed), N, VOCAB) == Pairing(N, frozenset({1}))
    renamed[9] = "another"
    with pytest.raises(PairingError, match=rf"another vocabulary than the target \({N} tokens, the target's {N}\)"):
        paired(write_tokenizer(tmp_path, renamed), N, VOCAB)


# -- the drafter


class Counted(TorchTarget):
    """``rows``: computed in each pass."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        model = HubLlama(read_checkpoint(PLAIN.write(folder)))
        super().__init__(model, VOCAB, **{"n_ctx": 400, "sequences": 3, **limits})
        self.rows: list[int] = []

    def forward(self, work):  # type: ignore[no-untyped-def]
        self.rows.append(sum(len(item.tree) - item.done for item in work))
        return super().forward(work)


def drafter_of(model: TorchTarget) -> ParallelModel:
    drafter = ParallelModel(model, Pairing(N, frozenset()), MASK)
    drafter.open(0)
    return drafter


def ask(limits: Limits, *, text: Sequence[int] = TEXT, temperature: float = 0.0, seq: int = 0) -> Ask:
    params = SamplingParams(temperature=temperature, top_k=0, top_p=1, min_p=0)
    state = SamplerState.start(params, seed=3, prompt=text, end_tokens={0}, n_ctx=400)
    return Ask(seq, list(text), Price(limits), state)


def masked_passes(text: Sequence[int], n: int) -> list[Array]:
    """One plain pass a position, each with as many masks as it is further on."""
    return [PLAIN.logits([*text, *[MASK] * position])[-1] for position in range(n)]


def test_one_pass_guesses_what_a_masked_pass_a_position_would(tmp_path: Path) -> None:
    model = Counted(tmp_path)
    (draft,) = drafter_of(model).propose([ask(Limits(5, 5, 1))])
    assert draft.tree.tokens == (TEXT[-1], *(int(row.argmax()) for row in masked_passes(TEXT, 5)))
    for score, row in zip(draft.tree.scores[1:], masked_passes(TEXT, 5), strict=True):
        weights = np.exp(row - row.max())
        assert score == pytest.approx(float(weights.max() / weights.sum()), abs=1e-5)
    assert model.rows == [len(TEXT) + 4]


def test_branches_are_the_likeliest_of_each_position(tmp_path: Path) -> None:
    (draft,) = drafter_of(Counted(tmp_path)).propose([ask(Limits(3, 20, 4))])
    tree = draft.tree
    assert tree.draft_n == 20
    assert not tree.is_chain
    for depth, row in enumerate(masked_passes(TEXT, 3)):
        best = np.argsort(-row).tolist()
        for kids in (kids for node, kids in enumerate(tree.children) if tree.depths[node] == depth):
            assert list(kids) == best[: len(kids)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_masks_leave_no_trace(temperature: float, tmp_path: Path) -> None:
    """Over several steps, with some, all or none of the guesses kept, and a step back."""
    model = Counted(tmp_path / "model")
    drafter, text = drafter_of(model), list(TEXT)
    (lane,) = model._seqs
    for kept in (2, 0, 4, 1):
        (draft,) = drafter.propose([ask(Limits(4, 4, 1), text=text, temperature=temperature)])
        fresh = drafter_of(target_of(PLAIN, tmp_path / "fresh"))
        (wanted,) = fresh.propose([ask(Limits(4, 4, 1), text=text, temperature=temperature)])
        assert draft.tree.tokens == wanted.tree.tokens
        path = draft.tree.path(draft.tree.leaves[0])[1:][:kept]
        drafter.observe(0, len(text) - 1, draft.tree, path, None)  # type: ignore[arg-type]
        assert model.n_past(lane) == len(text)
        text += [*(draft.tree.tokens[node] for node in path), 9]
        assert drafter.lag(0, len(text) - 1) == len(text) - 1 - model.n_past(lane)
    assert model.rows == [4 + 3, 3 + 3, 1 + 3, 5 + 3]
    drafter.truncate(0, 3)
    assert model.n_past(lane) == 3


def test_text_and_masks_fit_into_a_pass(tmp_path: Path) -> None:
    model = Counted(tmp_path / "model", max_rows=8)
    text = [2 + i % 31 for i in range(50)]
    (draft,) = drafter_of(model).propose([ask(Limits(9, 9, 1), text=text)])
    assert max(model.rows) <= 8
    assert draft.tree.draft_n == 4
    (wanted,) = drafter_of(target_of(PLAIN, tmp_path / "fresh")).propose([ask(Limits(4, 4, 1), text=text)])
    assert draft.tree.tokens == wanted.tree.tokens


def test_a_full_context_is_told(tmp_path: Path) -> None:
    drafter = drafter_of(target_of(PLAIN, tmp_path, n_ctx=8))
    (draft,) = drafter.propose([ask(Limits(9, 9, 1), text=[3] * 7)])
    assert draft.tree.draft_n == 2
    drafter.truncate(0, 0)
    (draft,) = drafter.propose([ask(Limits(9, 9, 1), text=[3] * 9)])
    assert (draft.tree.draft_n, draft.out) == (0, "the draft model's context of 8 tokens is full")
