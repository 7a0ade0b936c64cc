"""Training-time test computes what the head will compute when it drafts."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'localspec[torch]')")

from localspec.backends.torch.eagle_weights import EagleWeights, HeadShape  # noqa: E402
from localspec.train.eagle3 import Eagle3  # noqa: E402
from tests.support.gguf_heads import TinyHead  # noqa: E402

PLAIN = TinyHead(n_vocab=90, target_width=24, layers=(0, 1, 2), width=32, guessable=tuple(range(3, 90, 2)))


def head() -> Eagle3:
    assert PLAIN.guessable is not None
    shape = HeadShape(
        layers=1,
        width=PLAIN.width,
        heads=PLAIN.heads,
        kv_heads=PLAIN.kv_heads,
        each=PLAIN.width // PLAIN.heads,
        inner=2 * PLAIN.width,
        eps=1e-5,
        rope_base=10000.0,
    )
    weights = {name: torch.from_numpy(value) for name, value in PLAIN.tensors.items() if not name.startswith("token")}
    return Eagle3.of(EagleWeights(shape, weights, PLAIN.layers, PLAIN.target_width, 0, np.array(PLAIN.guessable)))


def test_every_round_is_the_chain_that_it_stands_for() -> None:
    """Round k of row t is what a chain of k true tokens behind the text up to t would score."""
    rng = np.random.default_rng(0)
    text = rng.integers(0, PLAIN.n_vocab, (2, 8))
    features = rng.standard_normal((2, 7, 3 * PLAIN.target_width)).astype(np.float32)
    embedded = torch.from_numpy(PLAIN.tensors["token_embd.weight"])[torch.from_numpy(text[:, 1:])]
    with torch.no_grad():
        one = head()
        rounds = [one.scores(state) for _, state in one.states(embedded, torch.from_numpy(features), depth=3)]
        rows = torch.tensor([1, 4])
        some = [one.scores(state) for _, state in one.states(embedded, torch.from_numpy(features), 3, rows)]
    assert [tuple(scores.shape[:2]) for scores in rounds] == [(2, 7), (2, 5), (2, 5)]
    for whole, part in zip(rounds[1:], some[1:], strict=True):
        assert torch.allclose(whole[:, rows], part, atol=1e-4)
    for row in range(2):
        states = PLAIN.encode(features[row])
        for t in range(5):
            read, carried = [int(token) for token in text[row, 1 : t + 2]], states[: t + 1]
            for k in range(3):
                after, logits = PLAIN.states_and_logits(read, carried)
                got, wanted = rounds[k][row, t].numpy(), logits[-1][list(PLAIN.guessable or ())]
                assert np.abs(got - wanted).max() < 1e-3
                carried, read = (
                    np.concatenate([carried, after[-1:]]),
                    [*read, *text[row, t + 2 + k : t + 3 + k].tolist()],
                )
