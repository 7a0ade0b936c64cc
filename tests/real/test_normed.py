"""What comes out of the final norm: some heads read it, and llama.cpp gives it of all rows of a pass or of none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from localspec.backends.base import NORMED, Work
from localspec.spec.tree import TokenTree
from tests.real.support import fresh_row, opened
from tests.support.gguf_files import TinyModel, TokenizerKeys

TARGET = TinyModel(layers=2, width=64, seed=3)
ROUNDING = 1e-3
TEXT = (504, 2768, 282, 4649, 314, 7042, 28, 284, 260, 2768, 282, 6500)


@pytest.fixture(scope="module")
def path(smol_tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TARGET.write(tmp_path_factory.mktemp("normed") / "target.gguf", smol_tokenizer)


def test_scores_are_what_the_output_weights_make_of_it(path: Path) -> None:
    """In a tree, beside other texts, and of rows whose scores nobody asked for."""
    unembedding = TARGET.tensors(49152)["output.weight"]
    tree = TokenTree.grown((504, 9, 10, 11, 12), (-1, 0, 0, 2, 2), (1.0, 0.1, 0.8, 0.2, 0.7), ("",) * 5)
    with opened(path, sequences=3, normed=True) as target:
        work = [
            Work(target.open(), tree, features=(NORMED,)),
            Work.prompt(target.open(), TEXT, features=(NORMED,)),
        ]
        states = [rows.features[NORMED].copy() for rows in target.forward(work)]
    with opened(path, sequences=3) as target:
        for item, given in zip(work, states, strict=True):
            assert given.shape == (len(item.tree), TARGET.width)
            for node in range(len(item.tree)):
                row = fresh_row(target, [item.tree.tokens[i] for i in item.tree.path(node)])
                assert np.abs(unembedding @ given[node] - row).max() < ROUNDING


def test_passes_without_it_are_as_before(path: Path) -> None:
    with opened(path, normed=True) as target:
        seq = target.open()
        assert NORMED in target.caps.feature_layers
        (rows,) = target.forward([Work.prompt(seq, TEXT)])
        assert rows.features == {}
        target.commit(seq, range(len(TEXT)))
        (rows,) = target.forward([Work(seq, TokenTree.chain((1, 2)), features=(NORMED, 1))])
        given = {layer: states.copy() for layer, states in rows.features.items()}
        target.commit(seq, (0,))
        row = rows.logits(0).copy()
        target.truncate(seq, len(TEXT))
        (rows,) = target.forward([Work(seq, TokenTree.root(1), features=(1,))])
        assert np.abs(rows.logits(0) - row).max() < ROUNDING
        assert np.abs(rows.features[1][0] - given[1][0]).max() < ROUNDING
        assert np.abs(given[NORMED][0] - given[NORMED][1]).max() > ROUNDING


def test_a_target_that_was_not_loaded_for_it_says_so(path: Path) -> None:
    with opened(path) as target:
        assert NORMED not in target.caps.feature_layers
