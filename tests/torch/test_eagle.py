"""EAGLE heads in torch compute what their weights say: against the same weights computed plainly, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch", reason="needs the extra 'torch'")

from localspec.backends.base import CARRIED, Work
from localspec.backends.fake import FakeVocab
from localspec.backends.torch.checkpoint import read_checkpoint
from localspec.backends.torch.eagle_weights import EagleWeights, TargetShape, layers_read, read_eagle
from localspec.backends.torch.ends import Ends
from localspec.backends.torch.head import TorchHead
from localspec.control import Limits, Price
from localspec.drafters.base import Ask
from localspec.drafters.files import DRAFT_MODEL, EAGLE, EAGLE3, type_of_folder
from localspec.drafters.head import HeadModel
from localspec.errors import Cancelled, LocalspecError, OutOfMemory
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import SamplingParams
from localspec.vocab import Pairing
from tests.support.hub_eagle import TinyEagle
from tests.support.plain_layers import LLAMA3

N, WIDTH, LAYERS, CLOSE = 90, 64, 8, 1e-5
GUESSABLE = tuple(range(3, N, 2))
HEADS = {
    "eagle": TinyEagle(N, WIDTH, LAYERS, kind="eagle"),
    "eagle with biases": TinyEagle(N, WIDTH, LAYERS, kind="eagle", biases=True, kv_heads=4, seed=1),
    "eagle with ends": TinyEagle(
        N, WIDTH, LAYERS, kind="eagle", embeds=True, guessable=tuple(range(N)), rope=tuple(LLAMA3.items()), seed=2
    ),
    "eagle3": TinyEagle(N, WIDTH, LAYERS, reads=(1, 3, 6), guessable=GUESSABLE, seed=3),
    "eagle3 with the target's ends": TinyEagle(N, WIDTH, LAYERS, norm_before_residual=True, seed=4),
    "eagle3 of another width": TinyEagle(
        N, 48, LAYERS, embeds=True, guessable=GUESSABLE, norm_before_fc=True, rope=tuple(LLAMA3.items()), seed=5
    ),
    "eagle3 with biases": TinyEagle(
        N, WIDTH, LAYERS, guessable=GUESSABLE, biases=True, norm_output=True, heads=1, kv_heads=1, seed=6
    ),
}
STATE = SamplerState.start(SamplingParams(temperature=0.0, seed=1), seed=1, prompt=(), end_tokens=(), n_ctx=512)
#: What the target would lend.
_RNG = np.random.default_rng(9)
EMBEDDING = _RNG.standard_normal((N, WIDTH), np.float32)
UNEMBEDDING = _RNG.standard_normal((N, WIDTH), np.float32)


def target_of(plain: TinyEagle, **changes: Any) -> TargetShape:
    return replace(TargetShape("t.gguf", plain.layers, plain.target_width, plain.n_vocab), **changes)


class Both:
    """A head, and the plain one of the same weights."""

    def __init__(
        self, plain: TinyEagle, folder: Path, sequences: int = 2, n_ctx: int = 64, *, filled: bool = False
    ) -> None:
        self.plain = plain
        self.weights = read_eagle(read_checkpoint(plain.write(folder)), target_of(plain), "head")
        self.head = TorchHead(
            self.weights,
            ends(self.weights),
            FakeVocab(plain.n_vocab),
            n_ctx=n_ctx,
            sequences=sequences,
            buckets=filled,
            far=filled,
        )

    def features(self, n: int, seed: int = 0) -> dict[int, NDArray[np.float32]]:
        rng = np.random.default_rng(seed)
        return {layer: rng.standard_normal((n, self.plain.target_width), np.float32) for layer in self.head.layers}

    def states(self, features: dict[int, NDArray[np.float32]]) -> NDArray[np.float32]:
        return self.plain.encode(np.concatenate([features[layer] for layer in self.head.layers], axis=1))

    def expected(
        self, tokens: Sequence[int], states: NDArray[np.float32], parents: Sequence[int] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.plain.states_and_logits(tokens, states, EMBEDDING, UNEMBEDDING, parents)


def ends(weights: EagleWeights) -> Ends:
    """As `ends_of`, of a target without a file."""
    import torch

    own = weights.weights
    embedding = own.get("token_embd.weight", torch.from_numpy(EMBEDDING))
    unembedding = own.get("output.weight", torch.from_numpy(UNEMBEDDING))
    return Ends(lambda tokens: embedding[list(tokens)], unembedding, weights.ids)


@pytest.fixture(params=[(name, filled) for name in sorted(HEADS) for filled in (False, True)], ids=str)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Both:
    """On the CPU as it is there, and as on a card: passes filled up, rows left where they are."""
    name, filled = request.param
    return Both(HEADS[name], tmp_path, filled=filled)


def close(got: NDArray[np.float32], wanted: NDArray[np.float32]) -> bool:
    finite = np.isfinite(wanted)
    scale = np.abs(wanted[finite]).max()
    return bool((np.isfinite(got) == finite).all()) and bool(np.abs(got[finite] - wanted[finite]).max() < CLOSE * scale)


# -- passes


TEXT = (5, 17, 33, 4, 60, 61, 62)
TREE = TokenTree.grown((8, 9, 10, 11, 12, 13), (-1, 0, 0, 1, 2, 2), (1.0, 0.2, 0.6, 0.5, 0.1, 0.9), ("",) * 6)


def test_states_and_scores_are_those_of_the_weights(both: Both) -> None:
    seq = both.head.open()
    features = both.features(len(TEXT))
    states = both.head.encode(seq, features)
    assert close(states, both.states(features))
    (rows,) = both.head.forward([Work(seq, TokenTree.chain(TEXT), rows_from=3, states=states)])
    carried, logits = both.expected(TEXT, states)
    assert close(rows.features[CARRIED], carried)
    assert close(np.array([rows.logits(node) for node in range(3, len(TEXT))]), logits[3:])
    with pytest.raises(KeyError):
        rows.logits(2)


def test_a_tree_grown_in_passes_over_several_texts_at_once(both: Both) -> None:
    """One text is read, the other's tree grows: rows see their own text and the path to them."""
    head, rng = both.head, np.random.default_rng(3)
    one, other = head.open(), head.open()
    width = both.plain.width
    texts = {seq: rng.standard_normal((len(TEXT), width), np.float32) for seq in (one, other)}
    head.forward([Work.prompt(seq, TEXT, states=texts[seq]) for seq in (one, other)])
    head.commit(one, range(len(TEXT)))
    head.commit(other, range(4))
    states = rng.standard_normal((len(TREE), width), np.float32)
    root, three = (replace_tree(TREE, n) for n in (1, 3))
    (first,) = head.forward([Work(one, root, states=states[:1])])
    carried_first = first.features[CARRIED].copy()
    pair = [
        Work(one, three, done=1, rows_from=1, states=states[1:3]),
        Work.prompt(other, TEXT[4:], states=texts[other][4:]),
    ]
    grown, read = head.forward(pair)
    carried_read = read.features[CARRIED].copy()
    carried = [carried_first, grown.features[CARRIED].copy()]
    (rest,) = head.forward([Work(one, TREE, done=3, rows_from=3, states=states[3:])])
    carried.append(rest.features[CARRIED])
    parents = [*range(-1, len(TEXT) - 1), *(p + len(TEXT) if p >= 0 else len(TEXT) - 1 for p in TREE.parents)]
    wanted, logits = both.expected([*TEXT, *TREE.tokens], np.concatenate([texts[one], states]), parents)
    assert close(np.concatenate(carried), wanted[len(TEXT) :])
    assert close(np.array([rest.logits(node) for node in (3, 4, 5)]), logits[len(TEXT) + 3 :])
    assert close(carried_read, both.expected(TEXT, texts[other])[0][4:])


def replace_tree(tree: TokenTree, n: int) -> TokenTree:
    return TokenTree.grown(tree.tokens[:n], tree.parents[:n], tree.scores[:n], tree.sources[:n])


def test_what_is_committed_is_as_if_it_had_been_read(both: Both) -> None:
    head, rng = both.head, np.random.default_rng(4)
    width = both.plain.width
    seq, states = head.open(), rng.standard_normal((len(TREE) + 1, width), np.float32)
    head.forward([Work(seq, TREE, rows_from=len(TREE), states=states[:-1])])
    head.commit(seq, (0, 2, 5))
    assert head.n_past(seq) == 3
    (rows,) = head.forward([Work(seq, TokenTree.root(20), states=states[-1:])])
    tokens, kept = [*(TREE.tokens[i] for i in (0, 2, 5)), 20], states[[0, 2, 5, 6]]
    assert close(rows.logits(0)[None], both.expected(tokens, kept)[1][3:])
    head.commit(seq, ())
    new = head.fork(seq, 2)
    head.truncate(seq, 0)
    (rows,) = head.forward([Work(new, TokenTree.root(30), states=states[:1])])
    assert close(rows.logits(0)[None], both.expected([*tokens[:2], 30], np.concatenate([kept[:2], states[:1]]))[1][2:])


def test_guesses_are_the_best_of_the_weights(both: Both) -> None:
    """The same top k at every node, and of all the same nodes: EAGLE-2's tree."""
    seq, features, text = 1, both.features(len(TEXT) - 1), list(TEXT)
    drafter = HeadModel(both.head, Pairing(N, frozenset()), EAGLE)
    drafter.open(seq)
    drafter.prefill(seq, 0, text[:-1], features)
    limits = Limits(3, 8, 3)
    (draft,) = drafter.propose([Ask(seq, text, Price(limits, 0.0), STATE)])
    assert {tuple(draft.tree.tokens[i] for i in draft.tree.path(node)[1:]) for node in range(1, 9)} == expansion(
        both, text, both.states(features), limits
    )


def expansion(both: Both, text: Sequence[int], states: NDArray[np.float32], limits: Limits) -> set[tuple[int, ...]]:
    """Level by level the likeliest ``width`` are expanded by ``width`` each; of all the likeliest ``nodes``."""
    level: list[tuple[float, tuple[int, ...], NDArray[np.float32]]] = [(0.0, (), states)]
    scored: list[tuple[float, tuple[int, ...]]] = []
    for _ in range(limits.depth):
        children = []
        for reach, path, before in level:
            carried, logits = both.expected([*text[1:], *path], before)
            row = logits[-1].astype(np.float64)
            row -= row.max() + np.log(np.exp(row - row.max()).sum())
            behind = np.concatenate([before, carried[-1:]])
            children += [(reach + row[i], (*path, int(i)), behind) for i in np.argsort(-row)[: limits.width]]
        scored += [(reach, path) for reach, path, _ in children]
        level = sorted(children, key=lambda child: -child[0])[: limits.width]
    return {path for _, path in sorted(scored, key=lambda child: -child[0])[: limits.nodes]}


# -- limits


def test_limits_are_kept_and_nothing_stays_of_a_pass_that_failed(tmp_path: Path) -> None:
    both = Both(HEADS["eagle"], tmp_path, sequences=1, n_ctx=8)
    head, states = both.head, np.zeros((9, WIDTH), np.float32)
    seq = head.open()
    with pytest.raises(LocalspecError, match="1 sequences are open"):
        head.open()
    with pytest.raises(OutOfMemory, match="8 tokens is full"):
        head.forward([Work.prompt(seq, range(9), states=states)])
    head.interrupt(True)
    with pytest.raises(Cancelled):
        head.forward([Work.prompt(seq, (1,), states=states[:1])])
    head.interrupt(False)
    assert head._seqs[seq].nodes == 0
    head.forward([Work.prompt(seq, range(8), states=states[:8])])


# -- forms


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_the_layouts_hold_the_same_weights(tmp_path: Path, file: str) -> None:
    plain = TinyEagle(N, WIDTH, LAYERS, reads=(1, 3, 6), guessable=GUESSABLE)
    found = []
    for layout in ("official", "specforge", "speculators"):
        folder = replace(plain, layout=layout).write(tmp_path / layout, file=file)
        checkpoint = read_checkpoint(folder)
        assert type_of_folder(checkpoint.config) == EAGLE3
        found.append(read_eagle(checkpoint, target_of(plain), layout))
    for one in found:
        assert one.reads == (1, 3, 6)
        assert one.ids is not None
        assert tuple(one.ids) == GUESSABLE
        assert one.weights.keys() == found[0].weights.keys()
        assert all(one.weights[key].equal(weight) for key, weight in found[0].weights.items())


def test_names_of_wrappers_are_no_part_of_a_name(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(HEADS["eagle"].write(tmp_path))
    wrapped = replace(checkpoint, tensors={f"module.model.{name}": one for name, one in checkpoint.tensors.items()})
    plain, other = (read_eagle(one, target_of(HEADS["eagle"]), "head") for one in (checkpoint, wrapped))
    assert plain.weights.keys() == other.weights.keys()


USUAL = (2, 16, 29)


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({}, USUAL),
        ({"eagle_aux_hidden_state_layer_ids": [2, 16, 29]}, USUAL),
        ({"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}, USUAL),  # numbers of the other kind
        ({"eagle_aux_hidden_state_layer_ids": [4, 8, 12]}, (4, 8, 12)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}}, USUAL),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 16, 29]}}, USUAL),  # numbers of the other kind
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [4, 8, 12]}}, (5, 9, 13)),
        ({"eagle_config": {"use_aux_hidden_state": True}}, USUAL),
    ],
)
def test_layers_are_those_that_take_the_state_in(config: dict[str, object], layers: tuple[int, ...]) -> None:
    assert layers_read(config, 32) == layers


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"architectures": ["LlamaForCausalLMEagle3"]}, EAGLE3),
        ({"speculators_model_type": "eagle3"}, EAGLE3),
        ({"architectures": ["Eagle3LlamaForCausalLM"], "num_hidden_layers": 1}, EAGLE3),
        ({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}, EAGLE),
        ({"architectures": ["LlamaForCausalLMEagle"]}, EAGLE),
        ({"architectures": ["EagleLlamaForCausalLM"]}, EAGLE),
        ({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 30}, DRAFT_MODEL),
        ({}, DRAFT_MODEL),
    ],
)
def test_a_config_says_what_it_is_of(config: dict[str, object], kind: str) -> None:
    assert type_of_folder(config) == kind


# -- what is refused


@pytest.mark.parametrize(
    ("plain", "target", "words"),
    [
        (HEADS["eagle"], target_of(HEADS["eagle"], width=32), "made for a target of width 64, t.gguf has 32"),
        (HEADS["eagle3"], target_of(HEADS["eagle3"], width=32), "made for a target of width 64, t.gguf has 32"),
        (HEADS["eagle3"], target_of(HEADS["eagle3"], layers=6), "head reads layers 1, 3, 6, t.gguf has 0 to 5"),
        (HEADS["eagle3"], target_of(HEADS["eagle3"], n_vocab=80), "head guesses ids up to 89, t.gguf has 80 tokens"),
        (
            HEADS["eagle with ends"],
            target_of(HEADS["eagle with ends"], n_vocab=91),
            "the embedding of head has 90 tokens, t.gguf has 91",
        ),
        (
            replace(HEADS["eagle3"], width=48, heads=3, kv_heads=1),
            target_of(HEADS["eagle3"]),
            "head has no embedding of its own, and its width is 48, that of t.gguf 64",
        ),
    ],
)
def test_a_head_for_another_target_is_refused(
    plain: TinyEagle, target: TargetShape, words: str, tmp_path: Path
) -> None:
    with pytest.raises(LocalspecError, match=words):
        read_eagle(read_checkpoint(plain.write(tmp_path)), target, "head")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"drop": "midlayer.mlp.up_proj.weight"}, "head lacks blk.0.ffn_up.weight"),
        ({"drop": "fc.weight"}, "head lacks fc.weight"),
        ({"add": "midlayer.self_attn.q_norm.weight"}, "not known here: midlayer.self_attn.q_norm.weight"),
        ({"config": {"num_attention_heads": 2}}, "attn_k.weight is of the size"),
        ({"config": {"rope_scaling": {"rope_type": "yarn"}}}, "scaled by yarn"),
        ({"config": {"fc_norm": True}}, "norms its layers"),
    ],
)
def test_what_is_not_known_is_named(change: dict[str, object], words: str, tmp_path: Path) -> None:
    """Left out, a part that was trained would make every guess a bad one, and nobody would know why."""
    checkpoint = read_checkpoint(HEADS["eagle3"].write(tmp_path))
    tensors = dict(checkpoint.tensors)
    tensors.pop(str(change.get("drop")), None)
    if "add" in change:
        tensors[str(change["add"])] = tensors["norm.weight"]
    config = {**checkpoint.config, **change.get("config", {})}  # type: ignore[dict-item]
    with pytest.raises(LocalspecError, match=words):
        read_eagle(replace(checkpoint, config=config, tensors=tensors), target_of(HEADS["eagle3"]), "head")
