"""A model without weights: scores are a table over the last tokens. For tests and demos.

It keeps every promise of the `Target` protocol and checks that the engine keeps its own: a pass must fit, a node's
parent must be there, a commit must be a path. Its scores depend on the last two tokens only, and not on how rows are
batched, so speculative and plain decoding must agree to the bit.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from localspec.backends.base import Row, Rows, TargetCaps, Work
from localspec.errors import Cancelled, DecodeError, EngineError, OutOfMemory
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree

END = 0


class FakeVocab:
    """``n`` tokens: 0 ends a text, 1 is a control token, the others are letters, then words of them."""

    kind = "fake"
    bos = None
    bos_text = ""
    eos_text = "<end>"

    def __init__(self, n: int = 64, *, renamed: Mapping[int, str] | None = None) -> None:
        self.n_tokens = n
        self.end_tokens = frozenset({END})
        self.control_tokens = frozenset({END, 1})
        self._texts = ["<end>", "<ctl>", *(_word(i) for i in range(n - 2))]
        for token, text in (renamed or {}).items():
            self._texts[token] = text

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {text: token for token, text in enumerate(self._texts)}

    def text(self, token: int) -> str:
        return self._texts[token]

    def piece(self, token: int, *, special: bool = False) -> bytes:
        return b"" if token in self.control_tokens and not special else self._texts[token].encode()

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        ids = []
        while text:
            name = next((n for n in ("<end>", "<ctl>") if special and text.startswith(n)), text[0])
            ids.append(self._ids.get(name, 2))
            text = text[len(name) :]
        return ids


def _word(i: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz .,\nABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return letters[i] if i < len(letters) else f"{letters[i % 26]}{i}"


class FakeTarget:
    """Scores by table.

    Args:
        vocab: its vocabulary.
        seed: of the table; equal seeds are equal models.
        spread: standard deviation of the scores; larger is surer.
        noise: standard deviation of a second table added to the first: a draft model is its target plus noise.
        n_ctx, sequences, rows, leaves: its limits.
        trees, rollback, mixes: as `TargetCaps`; ``rollback=0`` behaves like a recurrent model.
        layers: layers that give features: layer l gives the one-hot of the token l places back, and `NORMED` that of
            the token itself.
    """

    def __init__(
        self,
        vocab: FakeVocab | None = None,
        *,
        seed: int = 0,
        spread: float = 3.0,
        noise: float = 0.0,
        n_ctx: int = 512,
        sequences: int = 4,
        rows: int = 64,
        leaves: int = 32,
        trees: bool = True,
        rollback: int | None = None,
        mixes: bool = True,
        layers: frozenset[int] = frozenset(),
    ) -> None:
        self._vocab = vocab or FakeVocab()
        n = self._vocab.n_tokens
        self._last = np.random.default_rng([seed, 1]).normal(0, spread, (n, n)).astype(np.float32)
        self._before = np.random.default_rng([seed, 2]).normal(0, spread / 3, (n, n)).astype(np.float32)
        if noise:
            self._last += np.random.default_rng([seed, 3]).normal(0, noise, (n, n)).astype(np.float32)
        self._caps = TargetCaps(
            n_ctx=n_ctx,
            n_ctx_train=n_ctx,
            n_vocab=n,
            max_rows=rows,
            max_outputs=rows,
            max_sequences=sequences,
            max_leaves=leaves,
            trees=trees,
            rollback=rollback,
            mixes=mixes,
            feature_layers=layers,
        )
        self._cells: dict[int, list[int]] = {}
        self._places: dict[int, list[int]] = {}  # where they lie: forks share places
        self._next_place = 0
        self._trees: dict[int, tuple[TokenTree, int]] = {}
        self._next = 0
        self._stop = threading.Event()
        self.passes = 0

    @property
    def caps(self) -> TargetCaps:
        return self._caps

    @property
    def vocab(self) -> FakeVocab:
        return self._vocab

    def open(self) -> int:
        if len(self._cells) >= self._caps.max_sequences:
            raise EngineError("too many sequences are open")
        self._next += 1
        self._cells[self._next] = []
        self._places[self._next] = []
        return self._next

    def fork(self, seq: int, n: int) -> int:
        new = self.open()
        if self._caps.rollback is None:
            self._cells[new] = self._cells[seq][:n]
            self._places[new] = self._places[seq][:n]
        return new

    def close(self, seq: int) -> None:
        del self._cells[seq], self._places[seq]
        self._trees.pop(seq, None)

    def n_past(self, seq: int) -> int:
        return len(self._cells[seq])

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        self.passes += 1
        try:
            self._check(work)
        except Exception:
            for item in work:
                self._trees.pop(item.seq, None)
            raise
        for item in work:
            self._trees[item.seq] = (item.tree, len(item.tree))
        return [FakeRows(self, item, list(self._cells[item.seq])) for item in work]

    def _check(self, work: Sequence[Work]) -> None:
        if self._stop.is_set():
            raise Cancelled("the pass was stopped")
        for item in work:
            before = self._trees.get(item.seq)
            if item.done and (before is None or before[0].tokens != item.tree.tokens[: item.done]):
                raise DecodeError("a tree was grown that is not in the cache")
            if item.done == 0 and before is not None:
                raise DecodeError("a tree was left uncommitted")
            if not self._caps.trees and not item.tree.is_chain:
                raise DecodeError("this model takes chains only")
        prompts = sum(item.rows_from == len(item.tree) for item in work)
        if not self._caps.mixes and 0 < prompts < len(work):
            raise DecodeError("rows with logits and rows without are in one pass")
        if sum(len(item.tree) - item.done for item in work) > self._caps.max_rows:
            raise DecodeError("more rows than a pass takes")
        if sum(len(item.tree.leaves) for item in work) > self._caps.max_leaves:
            raise DecodeError("more branches than there are sequence ids")
        grown = {item.seq: len(item.tree) for item in work}
        cells = self.cells_used + sum(grown.values())
        cells += sum(n for seq, (_, n) in self._trees.items() if seq not in grown)
        if cells > self._caps.n_ctx:
            raise OutOfMemory(f"the context of {self._caps.n_ctx} cells is full")

    def commit(self, seq: int, path: Sequence[int]) -> None:
        tree, _ = self._trees.pop(seq)
        parent = -1
        for node in path:
            if tree.parents[node] != parent:
                raise DecodeError("what is committed is not a path")
            self._cells[seq].append(tree.tokens[node])
            self._places[seq].append(self._next_place)
            self._next_place += 1
            parent = node
        lost = len(tree) - len(path)
        if self._caps.rollback is not None and lost > self._caps.rollback:
            raise DecodeError("this model cannot take back what it has read")

    def truncate(self, seq: int, n: int) -> int:
        cells = self._cells[seq]
        if n < len(cells):
            keep = n if self._caps.rollback is None or len(cells) - n <= self._caps.rollback else 0
            del cells[keep:], self._places[seq][keep:]
        return len(cells)

    def interrupt(self, on: bool) -> None:
        if on:
            self._stop.set()
        else:
            self._stop.clear()

    def set_threads(self, n: int) -> None:
        pass

    def close_all(self) -> None:
        self._cells.clear()
        self._places.clear()

    @property
    def cells_used(self) -> int:
        """Cells of committed tokens; what sequences share counts once."""
        return len(set().union(*self._places.values()))

    def scores(self, text: Sequence[int]) -> Row:
        """Logits after ``text``."""
        row: Row = self._last[text[-1]].copy()
        if len(text) > 1:
            row += self._before[text[-2]]
        return row

    def tokens(self, seq: int) -> list[int]:
        """What the cache holds, for checks."""
        return list(self._cells[seq])


class FakeRows:
    """Rows of one work item, computed on demand."""

    def __init__(self, target: FakeTarget, work: Work, text: list[int]) -> None:
        self._target = target
        self._work = work
        self._text = text

    def _upto(self, node: int) -> list[int]:
        tree = self._work.tree
        return self._text + [tree.tokens[i] for i in tree.path(node)]

    def logits(self, node: int) -> Row:
        if node < max(self._work.rows_from, self._work.done):
            raise KeyError(f"no logits were asked for at node {node}")
        return self._target.scores(self._upto(node))

    def draw(self, node: int, state: SamplerState) -> int:
        return state.draw(self.logits(node))

    @property
    def features(self) -> Mapping[int, Row]:
        n = self._target.caps.n_vocab
        nodes = range(self._work.done, len(self._work.tree))
        features = {}
        for layer in self._work.features:
            rows = np.zeros((len(nodes), n), np.float32)
            for i, node in enumerate(nodes):
                text = self._upto(node)
                if layer < len(text):
                    rows[i, text[-1 - max(layer, 0)]] = 1.0
            features[layer] = rows
        return features
