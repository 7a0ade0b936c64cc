"""Medusa's and Hydra's heads: their scores and trees against plain numpy of the same weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch", reason="needs the extra 'torch'")

import torch

from localspec.backends.base import NORMED, Rows, Work
from localspec.backends.torch.checkpoint import Checkpoint, read_checkpoint
from localspec.backends.torch.medusa import TorchHydra, TorchMedusa, is_of_medusa
from localspec.backends.torch.place import Place
from localspec.control import Limits, Price
from localspec.drafters.base import Ask
from localspec.drafters.medusa import Hydra, Medusa
from localspec.drafters.options import Shape
from localspec.errors import LocalspecError, ModelLoadError, UsageError
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import SamplingParams
from localspec.vocab import Pairing
from tests.support.hub_folders import Layout, TinyHydra, TinyMedusa
from tests.support.plain_layers import Array
from tests.support.random_weights import matrix

N, WIDTH = 40, 16
EMBEDDING, UNEMBEDDING = (matrix(np.random.default_rng(seed), N, WIDTH) * np.float32(3) for seed in (8, 9))
STATES = np.random.default_rng(4).standard_normal((8, WIDTH), np.float32)
TEXT = [3, 4, 5, 6]
PAIRING = Pairing(N, frozenset())


def fetch_embedding() -> object:
    return torch.from_numpy(EMBEDDING)


def fetch() -> object:
    return torch.from_numpy(UNEMBEDDING)


def medusa(plain: TinyMedusa, folder: Path) -> TorchMedusa:
    return TorchMedusa(read_checkpoint(plain.write(folder), is_of_medusa), WIDTH, N, fetch)


def hydra(plain: TinyHydra, folder: Path) -> TorchHydra:
    return TorchHydra(read_checkpoint(plain.write(folder)), WIDTH, N, fetch_embedding, fetch)


def ask(limits: Limits, *, temperature: float = 0.0, text: list[int] = TEXT) -> Ask:
    params = SamplingParams(temperature=temperature, top_k=0, top_p=1, min_p=0)
    state = SamplerState.start(params, seed=3, prompt=text, end_tokens={0}, n_ctx=64)
    return Ask(0, text, Price(limits), state)


class Features:
    """Rows of a pass of the target, of which only the final norm is looked at."""

    def __init__(self, states: NDArray[np.float32]) -> None:
        self.features = {NORMED: states}


def reads(drafter: Medusa | Hydra, n: int, state: Array) -> None:
    """The target has read ``n`` tokens."""
    drafter.prefill(0, 0, range(n), {NORMED: np.stack([STATES[7]] * (n - 1) + [state])})


def paths(tree: TokenTree) -> dict[tuple[int, ...], float]:
    return {tuple(tree.tokens[i] for i in tree.path(node)[1:]): tree.reach[node] for node in range(1, len(tree))}


def softmax(row: Array) -> Array:
    weights = np.exp(row - row.max())
    done: Array = weights / weights.sum()
    return done


@pytest.mark.parametrize("layout", ["medusa-1", "shared", "medusa-2", "vllm"])
@pytest.mark.parametrize("layers", [1, 2])
def test_scores_are_those_of_the_weights(layout: Layout, layers: int, tmp_path: Path) -> None:
    plain = TinyMedusa(N, WIDTH, layers=layers, layout=layout)
    heads = medusa(plain, tmp_path)
    assert heads.n == 3
    assert heads.at_once == (layout == "shared")
    for state in STATES[:3]:
        wanted = plain.rows(state, UNEMBEDDING)
        for some in (range(3), range(1, 2)):
            for head, row in zip(some, heads.rows(some, state), strict=True):
                np.testing.assert_allclose(row, wanted[head], atol=1e-5)
                assert np.argsort(-row)[:8].tolist() == np.argsort(-wanted[head])[:8].tolist()


def test_in_half_the_bits_they_say_the_same_roughly(tmp_path: Path) -> None:
    place = Place(dtype=torch.bfloat16)
    plain, other = TinyMedusa(N, WIDTH, layout="shared"), TinyHydra(N, WIDTH)
    heads = TorchMedusa(read_checkpoint(plain.write(tmp_path / "medusa")), WIDTH, N, fetch, place)
    hydra = TorchHydra(read_checkpoint(other.write(tmp_path / "hydra")), WIDTH, N, fetch_embedding, fetch, place)
    root = TokenTree.root(6)
    for got, wanted in (
        (heads.rows(range(2), STATES[0])[1], plain.rows(STATES[0], UNEMBEDDING)[1]),
        (hydra.forward(Work(0, root, states=STATES[:1])).logits(0), other.row(STATES[0], EMBEDDING, [6])),
    ):
        assert got.dtype == np.float32
        assert np.corrcoef(got, wanted)[0, 1] > 0.99
        assert np.abs(got - wanted).max() > 1e-4


def test_the_model_beside_the_heads_is_not_read(tmp_path: Path) -> None:
    folder = TinyMedusa(N, WIDTH, layout="medusa-2").write(tmp_path)
    assert "lm_head.weight" in read_checkpoint(folder).tensors
    names = read_checkpoint(folder, is_of_medusa).tensors
    assert len(names) == 3 * 5
    assert all(name.startswith("medusa_head.") for name in names)


def best_tree(rows: list[Array], nodes: int, width: int) -> dict[tuple[int, ...], float]:
    """The likeliest paths over the ``width`` best of each row, all of them looked at."""
    every: dict[tuple[int, ...], float] = {(): 1.0}
    level: list[tuple[int, ...]] = [()]
    for row in rows:
        shares = softmax(row)
        best = np.argsort(-shares)[:width].tolist()
        every |= {(*path, token): every[path] * float(shares[token]) for path in level for token in best}
        level = [path for path in every if len(path) == len(level[0]) + 1]
    del every[()]
    return dict(sorted(every.items(), key=lambda one: -one[1])[:nodes])


@pytest.mark.parametrize("layout", ["medusa-1", "medusa-2"])
@pytest.mark.parametrize(("nodes", "width"), [(3, 1), (9, 3), (25, 6)])
def test_the_dynamic_tree_is_the_likeliest(layout: Layout, nodes: int, width: int, tmp_path: Path) -> None:
    plain = TinyMedusa(N, WIDTH, layout=layout, seed=5)
    drafter = Medusa(medusa(plain, tmp_path), PAIRING)
    drafter.open(0)
    reads(drafter, 3, STATES[0])
    (draft,) = drafter.propose([ask(Limits(9, nodes, width))])
    wanted = best_tree(plain.rows(STATES[0]), nodes, width)
    got = paths(draft.tree)
    assert got.keys() == wanted.keys()
    for path, reach in got.items():
        assert reach == pytest.approx(wanted[path], abs=1e-5)


def test_the_static_tree_has_the_shape_of_what_was_right_so_far(tmp_path: Path) -> None:
    """Of 6 nodes, over heads whose second guess is the right one more and more often."""
    plain = TinyMedusa(N, WIDTH, seed=5)
    drafter = Medusa(medusa(plain, tmp_path), PAIRING, "static")
    drafter.open(0)
    text = list(TEXT)
    shapes = []
    for turn in range(40):
        reads(drafter, len(text) - 1, STATES[turn % 8])
        best = [np.argsort(-row)[:3].tolist() for row in plain.rows(STATES[turn % 8])]
        (draft,) = drafter.propose([ask(Limits(9, 6, 3), text=text)])
        shapes.append({tuple(best[at].index(token) for at, token in enumerate(path)) for path in paths(draft.tree)})
        text = [*text, best[0][1], best[1][1]]  # the second guesses of two heads come true
    assert shapes[0] == {(0,), (0, 0), (0, 0, 0), (1,), (0, 1), (1, 0)}
    assert {(1,), (1, 1), (1, 1, 0)} <= shapes[-1]
    assert shapes[-1] == shapes[-2]


@pytest.mark.parametrize("shape", ["dynamic", "static"])
def test_above_temperature_0_the_first_guesses_are_what_the_noise_would_draw(shape: Shape, tmp_path: Path) -> None:
    plain = TinyMedusa(N, WIDTH, seed=5)
    drafter = Medusa(medusa(plain, tmp_path), PAIRING, shape)
    drafter.open(0)
    reads(drafter, 3, STATES[0])
    one = ask(Limits(3, 3, 1), temperature=0.8)
    (draft,) = drafter.propose([one])
    state, drawn = one.state, []
    for row in plain.rows(STATES[0]):
        drawn.append(state.draw(row))
        state = state.advance(drawn[-1])
    assert draft.tree.tokens[1:] == tuple(drawn)


def test_hydra_scores_and_tree_are_those_of_the_weights(tmp_path: Path) -> None:
    plain = TinyHydra(N, WIDTH)
    heads = hydra(plain, tmp_path)
    drafter = Hydra(heads, PAIRING)
    drafter.open(0)
    reads(drafter, 3, STATES[0])
    (draft,) = drafter.propose([ask(Limits(9, 12, 2))])
    tree = draft.tree
    assert max(tree.depths) == 3
    for node, kids in enumerate(tree.children):
        if kids:
            tokens = [tree.tokens[at] for at in tree.path(node)]
            row = plain.row(STATES[0], EMBEDDING, tokens)
            assert list(kids) == np.argsort(-row)[: len(kids)].tolist()
            for token, kid in kids.items():
                assert tree.scores[kid] == pytest.approx(float(softmax(row)[token]), abs=1e-5)
    fork = TokenTree.grown((6, 7, 8), (-1, 0, 0), (1.0, 0.5, 0.5), ("",) * 3)
    rows = heads.forward(Work(0, fork, done=1, rows_from=1, states=STATES[:1]))
    for node in (1, 2):
        row = plain.row(STATES[0], EMBEDDING, [6, fork.tokens[node]])
        np.testing.assert_allclose(rows.logits(node), row, atol=1e-5)


def test_the_state_is_that_of_the_last_token_that_stands(tmp_path: Path) -> None:
    plain = TinyMedusa(N, WIDTH)
    drafter = Medusa(medusa(plain, tmp_path), PAIRING)
    drafter.open(0)
    assert (drafter.gap(0, 0), drafter.lag(0, 5)) == (0, 1)
    reads(drafter, 3, STATES[0])
    assert drafter.gap(0, 3) == 0
    tree = TokenTree.grown((6, 7, 8, 9), (-1, 0, 0, 2), (1.0,) * 4, ("",) * 4)
    drafter.observe(0, 3, tree, (2, 3), cast(Rows, Features(STATES[1:5])))
    text = [*TEXT, 8, 9, 1]
    assert drafter.gap(0, 6) == 0
    (draft,) = drafter.propose([ask(Limits(1, 1), text=text)])
    assert draft.tree.tokens[1] == int(plain.rows(STATES[4])[0].argmax())
    drafter.fork(0, 1, 6)
    drafter.fork(0, 2, 5)
    assert (drafter.gap(1, 6), drafter.lag(2, 5)) == (0, 1)
    drafter.truncate(0, 6)
    assert drafter.gap(0, 6) == 0
    drafter.truncate(0, 5)
    assert drafter.gap(0, 5) == 1
    assert drafter.propose([ask(Limits(1, 1), text=text[:6])])[0].tree.draft_n == 0
    assert drafter.gap(1, 6) == 0


def changed(checkpoint: Checkpoint, config: Mapping[str, object], without: str = " ") -> Checkpoint:
    tensors = {name: tensor for name, tensor in checkpoint.tensors.items() if without not in name}
    return Checkpoint({**checkpoint.config, **config}, tensors)


def test_heads_of_another_target_and_holes_are_told(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(TinyMedusa(N, WIDTH).write(tmp_path / "medusa"))
    wrong: list[tuple[type[LocalspecError], Checkpoint, int, int, str]] = [
        (UsageError, checkpoint, 24, N, "head 1 was made for a target of width 16, this one has 24"),
        (UsageError, checkpoint, WIDTH, 50, "head 1 was made for 40 tokens, the target has 50"),
        (ModelLoadError, changed(checkpoint, {"medusa_num_heads": 5}), WIDTH, N, "no weights of head 4"),
        (ModelLoadError, changed(checkpoint, {}, "1.0."), WIDTH, N, "no weights of head 2"),
    ]
    for kind, one, width, n, message in wrong:
        with pytest.raises(kind, match=message):
            TorchMedusa(one, width, n, fetch)
    checkpoint = read_checkpoint(TinyHydra(N, WIDTH).write(tmp_path / "hydra"))
    for kind_of_head in ("prefix-mlp", "eagle-attn"):
        with pytest.raises(ModelLoadError, match=f"are of the kind {kind_of_head}"):
            TorchHydra(changed(checkpoint, {"hydra_head_arch": kind_of_head}), WIDTH, N, fetch_embedding, fetch)
    with pytest.raises(UsageError, match="made for a target of width 16"):
        TorchHydra(checkpoint, 24, N, fetch_embedding, fetch)


def test_a_config_may_name_fewer_heads_than_there_are(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(TinyMedusa(N, WIDTH).write(tmp_path))
    for n in (None, 2):
        assert TorchMedusa(changed(checkpoint, {"medusa_num_heads": n}), WIDTH, N, fetch).n == 3
