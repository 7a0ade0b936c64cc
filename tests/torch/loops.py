"""Heads that grow their trees in one run beside those that do it level by level, and what is counted of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from localspec.backends.base import Extent, Level, Work
from localspec.backends.fake import FakeVocab
from localspec.backends.torch import head as head_module
from localspec.backends.torch import loop as loop_module
from localspec.backends.torch import rows as rows_module
from localspec.backends.torch import texts as texts_module
from localspec.backends.torch.checkpoint import read_checkpoint
from localspec.backends.torch.eagle_weights import read_eagle
from localspec.backends.torch.head import TorchHead
from localspec.backends.torch.rows import Scores, TorchRows
from localspec.control import Price
from localspec.drafters.base import Ask, Draft
from localspec.drafters.files import EAGLE
from localspec.drafters.head import HeadModel
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.vocab import Pairing
from tests.torch.test_eagle import HEADS, STATE, N, ends, target_of

ALL = Pairing(N, frozenset())
Features = dict[int, NDArray[np.float32]]


def head_of(name: str, folder: Path, **options: Any) -> TorchHead:
    weights = read_eagle(read_checkpoint(HEADS[name].write(folder)), target_of(HEADS[name]), "head")
    sizes = {"n_ctx": 400, "sequences": 1} | options
    return TorchHead(weights, ends(weights), FakeVocab(N), **sizes)


class Sides:
    """The same conversations with two drafters of the same weights: ``ours`` grows its trees in one run, ``theirs``
    level by level. A target takes any path at random."""

    def __init__(self, name: str, folder: Path, seed: int = 0, **options: Any) -> None:
        self.head = head_of(name, folder / "ours", **{"buckets": True, "far": True} | options)
        other = head_of(
            name, folder / "theirs", **{key: options[key] for key in ("n_ctx", "sequences") if key in options}
        )
        assert self.head.grow is not None
        assert other.grow is None
        self.ours, self.theirs = (HeadModel(one, ALL, EAGLE) for one in (self.head, other))
        self.texts: dict[int, list[int]] = {}  # with the pending token
        self.rng, self.width = np.random.default_rng(seed), HEADS[name].target_width

    @property
    def both(self) -> tuple[HeadModel, HeadModel]:
        return self.ours, self.theirs

    def features(self, n: int) -> Features:
        return {layer: self.rng.standard_normal((n, self.width), np.float32) for layer in self.head.layers}

    def some(self, n: int) -> list[int]:
        return [int(token) for token in self.rng.integers(3, N, n)]

    def open(self, seq: int, n: int) -> None:
        self.texts[seq] = self.some(n + 1)
        for one in self.both:
            one.open(seq)
        self.mend(seq)

    def mend(self, seq: int) -> None:
        """The target reads what the drafters lack."""
        text = self.texts[seq]
        n = len(text) - 1
        gap = self.ours.gap(seq, n)
        assert gap == self.theirs.gap(seq, n)
        features = self.features(gap)
        for one in self.both:
            one.prefill(seq, n - gap, text[n - gap : n], features)

    def cut(self, seq: int, n: int) -> None:
        self.texts[seq] = self.texts[seq][: n + 1]
        for one in self.both:
            one.truncate(seq, n)
        self.mend(seq)

    def fork(self, seq: int, new: int, n: int) -> None:
        self.texts[new] = [*self.texts[seq][:n], *self.some(1)]
        for one in self.both:
            one.fork(seq, new, n)
        self.mend(new)

    def drafts(self, prices: Mapping[int, Price], state: SamplerState = STATE) -> list[Draft]:
        asks = [Ask(seq, self.texts[seq], price, state) for seq, price in prices.items()]
        ours, theirs = (one.propose(asks) for one in self.both)
        for one, other in zip(ours, theirs, strict=True):
            check_alike(one.tree, other.tree)
        return ours

    def step(self, seq: int, tree: TokenTree) -> None:
        """The target has verified ``tree``, and kept a path of it."""
        node = int(self.rng.integers(len(tree)))
        path = tree.path(node)[1:]
        start = len(self.texts[seq]) - 1
        rows = TorchRows(Scores(torch.empty(0), lambda whole: whole), 0, 0, self.features(len(tree)))
        self.texts[seq] += [*(tree.tokens[i] for i in path), *self.some(1)]
        for one in self.both:
            one.observe(seq, start, tree, path, rows)


def check_alike(ours: TokenTree, theirs: TokenTree) -> None:
    assert (ours.tokens, ours.parents, ours.sources) == (theirs.tokens, theirs.parents, theirs.sources)
    assert np.allclose(ours.scores, theirs.scores, rtol=0, atol=1e-5)


@contextmanager
def counted(*places: tuple[Any, str]) -> Iterator[list[str]]:
    """Calls of functions, by name."""
    calls = list[str]()

    def telling(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def told(*args: Any, **more: Any) -> Any:
            calls.append(name)
            return call(*args, **more)

        return told

    with pytest.MonkeyPatch.context() as patch:
        for where, name in places:
            patch.setattr(where, name, telling(name, getattr(where, name)))
        yield calls


#: Where anything comes from that was computed.
COPIES = (
    (head_module, "array"),
    (loop_module, "arrays"),
    (rows_module, "array"),
    (texts_module, "arrays"),
)


def grown(head: TorchHead, work: Sequence[Work], extents: Sequence[Extent]) -> list[list[Level]]:
    assert head.grow is not None
    found = head.grow(work, extents)
    assert found is not None
    return found
