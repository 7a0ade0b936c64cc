"""A torch decoder behind the `Target` protocol: token trees by a mask, one cache a sequence."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localspec.backends.base import NORMED, Row, Rows, TargetCaps, Work
from localspec.backends.torch.llama import Cache, TorchLlama
from localspec.backends.torch.place import Place, array
from localspec.errors import Cancelled, EngineError, OutOfMemory
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.vocab import Vocab

_ROOM = 256  # cells that a cache begins with; it doubles


@dataclass(slots=True)
class _Sequence:
    """``cache.n`` counts committed tokens; behind them lie the nodes of a tree that is not yet committed."""

    cache: Cache
    nodes: int = 0


class TorchTarget:
    """One model and its caches.

    Args:
        model: the decoder.
        vocab: of its tokens.
        n_ctx: cells shared by all sequences.
        sequences: open at once.
        max_rows: nodes in one pass.
        place: where the model is.
    """

    def __init__(
        self,
        model: TorchLlama,
        vocab: Vocab,
        *,
        n_ctx: int,
        sequences: int = 1,
        max_rows: int = 512,
        place: Place | None = None,
    ) -> None:
        self._model = model
        self._place = place or Place()
        self._place.start()
        self._vocab = vocab
        self._caps = TargetCaps(
            n_ctx=n_ctx,
            n_ctx_train=n_ctx,
            n_vocab=len(model.unembedding),
            max_rows=max_rows,
            max_outputs=max_rows,
            max_sequences=sequences,
            max_leaves=max_rows + sequences,
            feature_layers=frozenset({NORMED, *range(model.shape.layers)}),
        )
        self._seqs: dict[int, _Sequence] = {}
        self._next = 0
        self._stop = threading.Event()

    @property
    def caps(self) -> TargetCaps:
        return self._caps

    @property
    def vocab(self) -> Vocab:
        return self._vocab

    def open(self) -> int:
        if len(self._seqs) >= self._caps.max_sequences:
            raise EngineError(
                f"{len(self._seqs)} sequences are open already", hint="Load the engine with more sequences."
            )
        self._next += 1
        self._seqs[self._next] = _Sequence(Cache.of(self._model.shape, 1, _ROOM, self._model.embedding))
        return self._next

    def fork(self, seq: int, n: int) -> int:
        new = self.open()
        source, copy = self._seqs[seq].cache, self._seqs[new]
        _grow(copy.cache, n)
        for mine, theirs in _tensors(copy.cache, source):
            mine[:, :, :n] = theirs[:, :, :n]
        copy.cache.n = n
        return new

    def close(self, seq: int) -> None:
        del self._seqs[seq]

    def n_past(self, seq: int) -> int:
        return self._seqs[seq].cache.n

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        try:
            self._check_room(work)
            with torch.inference_mode():
                return [self._pass(item) for item in work]
        except BaseException:
            for item in work:
                self._seqs[item.seq].nodes = 0
            raise

    def _check_room(self, work: Sequence[Work]) -> None:
        asked = {item.seq: len(item.tree) for item in work}
        cells = sum(seq.cache.n + asked.get(name, seq.nodes) for name, seq in self._seqs.items())
        if cells > self._caps.n_ctx:
            raise OutOfMemory(f"the context of {self._caps.n_ctx} cells is full", hint="Start a new conversation.")

    def _pass(self, item: Work) -> Rows:
        if self._stop.is_set():
            raise Cancelled("the pass was stopped")
        seq, tree = self._seqs[item.seq], item.tree
        cache, start = seq.cache, seq.cache.n
        _grow(cache, start + len(tree))
        cache.n = start + item.done  # what lies behind is read over
        layers, device = [layer for layer in item.features if layer != NORMED], self._place.device
        try:
            read = self._model.read(
                torch.tensor([tree.tokens[item.done :]], device=device),
                layers,
                cache,
                torch.tensor(tree.depths[item.done :], device=device) + start,
                _sees(tree, item.done, start).to(device),
            )
        finally:
            cache.n = start
        seq.nodes = len(tree)
        features = {layer: array(states[0]) for layer, states in read.layers.items()}
        if NORMED in item.features:
            features[NORMED] = array(read.hidden[0])
        first = max(item.rows_from, item.done)
        logits = read.hidden[0, first - item.done :] @ self._model.unembedding.T
        return TorchRows(array(logits), first, features)

    def commit(self, seq: int, path: Sequence[int]) -> None:
        one = self._seqs[seq]
        start = one.cache.n
        if list(path) != list(range(len(path))):
            kept = torch.tensor(path, device=self._place.device) + start
            with torch.inference_mode():
                for tensor in (*one.cache.keys, *one.cache.values):
                    tensor[:, :, start : start + len(path)] = tensor[:, :, kept]
        one.cache.n, one.nodes = start + len(path), 0

    def truncate(self, seq: int, n: int) -> int:
        one = self._seqs[seq]
        one.cache.n = min(one.cache.n, n)
        return one.cache.n

    def interrupt(self, on: bool) -> None:
        if on:
            self._stop.set()
        else:
            self._stop.clear()

    def set_threads(self, n: int) -> None:
        self._place.set_threads(n)

    def close_all(self) -> None:
        self._seqs.clear()


@dataclass(frozen=True, slots=True)
class TorchRows:
    """Rows of one work item: ``scores`` are those of the nodes from ``first`` on."""

    scores: NDArray[np.float32]
    first: int
    features: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)

    def logits(self, node: int) -> Row:
        if node < self.first:
            raise KeyError(f"no logits were asked for at node {node}")
        row: Row = self.scores[node - self.first]
        return row

    def draw(self, node: int, state: SamplerState) -> int:
        return state.draw(self.logits(node))


def _sees(tree: TokenTree, done: int, start: int) -> Tensor:
    """``[new nodes, start + nodes]``: a node sees the text and the path to it."""
    above = np.tri(len(tree), dtype=bool) if tree.is_chain else tree.mask()
    text = np.ones((len(tree) - done, start), bool)
    return torch.from_numpy(np.concatenate([text, above[done:]], axis=1))


def _tensors(one: Cache, other: Cache) -> list[tuple[Tensor, Tensor]]:
    return list(zip((*one.keys, *one.values), (*other.keys, *other.values), strict=True))


def _grow(cache: Cache, wanted: int) -> None:
    """Makes room for so many cells."""
    room = cache.keys[0].shape[2]
    if wanted > room:
        more = max(wanted, 2 * room) - room
        for tensors in (cache.keys, cache.values):
            tensors[:] = [torch.nn.functional.pad(tensor, (0, 0, 0, more)) for tensor in tensors]
