"""What the engine asks of a backend.

A `Target` is a model with a cache of several sequences. It does one thing: a forward pass over token trees. The
prompt is a chain whose nodes are all kept, plain decoding a tree of one node, and a draft model grows its own tree
level by level through the same call, so target and draft model speak one protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.vocab import Vocab

Row = NDArray[np.float32]
#: A layer's place for the output of the final norm.
NORMED = -1
#: And for what a head carries on from token to token, the first time from the target.
CARRIED = -2


@dataclass(frozen=True, slots=True)
class TargetCaps:
    """What a loaded model can do.

    ``n_ctx`` cells shared by all sequences, ``n_ctx_train`` the length it was trained for, ``max_rows`` nodes in
    one pass and ``max_outputs`` of them with logits, ``max_sequences`` open at once, ``max_leaves`` branches over
    all open sequences, one each at least. ``trees`` is false
    where branches cannot share a prefix; ``rollback`` is how many cells can be taken back (``None``: any number).
    ``mixes`` is false where rows with logits and rows without may not share a pass.
    ``feature_layers`` are the layers whose hidden states can be asked for.
    """

    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    max_rows: int
    max_outputs: int
    max_sequences: int
    max_leaves: int
    trees: bool = True
    rollback: int | None = None
    mixes: bool = True
    feature_layers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Work:
    """One sequence's part of a pass.

    The first ``done`` nodes of ``tree`` were computed by earlier passes over the same, still uncommitted tree;
    the others are computed now. Logits are asked for from node ``rows_from`` on (``len(tree)`` = none, as for a
    prompt), hidden states of ``features`` for every node computed now. ``states`` are what a head reads beside each
    of these, ``[nodes computed now, width]``; in their place a head with `Head.grow` takes ``raw`` features, of which
    its ``encode`` would make them. Other models read neither.
    """

    seq: int
    tree: TokenTree
    done: int = 0
    rows_from: int = 0
    features: tuple[int, ...] = ()
    states: NDArray[np.float32] | None = None
    raw: Mapping[int, NDArray[np.float32]] | None = None

    @classmethod
    def prompt(
        cls,
        seq: int,
        tokens: Sequence[int],
        features: tuple[int, ...] = (),
        states: NDArray[np.float32] | None = None,
    ) -> Work:
        """A piece of prompt: a chain without logits."""
        return cls(seq, TokenTree.chain(tokens), rows_from=len(tokens), features=features, states=states)


class Rows(Protocol):
    """What a pass computed for one `Work`. Views into the backend's buffers, gone with its next pass: copy what
    must stay."""

    def logits(self, node: int) -> Row:
        """``[n_vocab]``, float32, for a node computed in this pass and asked for by ``rows_from``."""
        ...

    def draw(self, node: int, state: SamplerState) -> int:
        """The token that ``state`` draws after ``node``: ``state.draw(logits(node))``, wherever the row lies."""
        ...

    @property
    def features(self) -> Mapping[int, NDArray[np.float32]]:
        """Layer → ``[nodes computed now, width]``, in the order of the nodes. Layer l is the *input* of layer l,
        `NORMED` the output of the final norm, `CARRIED` what a head reads next: of the target, what its own layers for
        multi-token prediction read, of a head, what its next pass reads, where the pass was asked for any logits."""
        ...


class Target(Protocol):
    """A model and its cache. Not thread-safe, except ``interrupt``.

    Between passes the cache of a sequence holds exactly its committed tokens; after ``forward`` it also holds the
    tree, until ``commit`` says what stays.
    """

    @property
    def caps(self) -> TargetCaps: ...

    @property
    def vocab(self) -> Vocab: ...

    def open(self) -> int:
        """A new empty sequence.

        Raises:
            EngineError: ``max_sequences`` are open.
        """
        ...

    def fork(self, seq: int, n: int) -> int:
        """A new sequence that shares the first ``n`` committed tokens of ``seq`` without copying them."""
        ...

    def close(self, seq: int) -> None: ...

    def n_past(self, seq: int) -> int:
        """Number of committed tokens."""
        ...

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        """One pass over all of ``work``, one entry a sequence.

        Whatever it raises, the sequences of ``work`` hold their committed tokens and nothing else afterwards.

        Raises:
            Cancelled: ``interrupt`` came in.
            OutOfMemory: the cache has no room for the rows.
            DecodeError: the backend failed otherwise.
        """
        ...

    def commit(self, seq: int, path: Sequence[int]) -> None:
        """Keeps the nodes of ``path`` (from the root down, () = nothing) and drops the rest of the tree. A target whose
        cells must lie in order may keep fewer; ``n_past`` tells, and what is missing is read again."""
        ...

    def truncate(self, seq: int, n: int) -> int:
        """Takes the sequence back to its first ``n`` tokens, or further where the model cannot stop there (0 at
        worst: recurrent states, lost sliding windows). Returns what is left."""
        ...

    def interrupt(self, on: bool) -> None:
        """From any thread: makes the running pass, and every later one until switched off, give up."""
        ...

    def set_threads(self, n: int) -> None:
        """Threads for the next passes; counts that the user fixed stay."""
        ...

    def close_all(self) -> None:
        """Frees the model."""
        ...


class Head(Target, Protocol):
    """A head on a target: a small model that reads, beside each token, the state behind the token *before* it.

    At position i of its cache stands token i + 1 of the text with the state of token i. States of the text come from
    the target's features through ``encode``, those of guesses from the head's own passes (`CARRIED`).
    """

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of the target whose features it reads."""
        ...

    @property
    def deepest(self) -> int | None:
        """How many tokens it can guess one after the other; ``None``: any number."""
        ...

    @property
    def grow(self) -> Grow | None:
        """Grows trees by itself, without a look from here between their levels; ``None``: it cannot.

        It is given what ``forward`` is given for the first level, chains that nothing of was computed before, and how
        far each tree shall grow behind its last node. At each level those guesses are read on that are the likeliest to
        be reached, by the product of the probabilities on their path (EAGLE-2, arXiv 2406.16858); of equals those that
        come first. A text has its levels, those beyond its own depth too, where others go deeper.

        Then each sequence holds, until ``commit``, its chain and behind it the nodes that were read, in the order of
        ``onward``. ``None`` is given where trees do not fit: nothing has changed then. Raises as ``forward``."""
        ...

    def encode(self, seq: int, features: Mapping[int, NDArray[np.float32]]) -> NDArray[np.float32]:
        """States ``[n, width]`` of n tokens from the target's ``features`` of them, ``[n, target's width]`` a layer.
        The sequence has no uncommitted tree."""
        ...


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a tree shall grow: so many levels of guesses, of which ``width`` a level are read on, and as many are
    guessed behind each node; none whose probability is below ``p_min``."""

    depth: int
    width: int
    p_min: float = 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a tree that a head grew by itself.

    Args:
        tokens: ``[nodes, n]``, the guesses behind each node that was read, the likeliest first; at least as many as the
            text's `Extent` wants, and those beyond count for nothing.
        scores: float32, as ``tokens``: their probabilities, each given its parent.
        onward: places in the flattened ``tokens`` of those guesses that the next level has read, the likeliest to be
            reached first: as many as ``tokens`` has columns, of which the first ``width`` count. Empty in the last.
    """

    tokens: NDArray[np.int32]
    scores: NDArray[np.float32]
    onward: NDArray[np.int32]


#: As `Head.grow` says.
Grow = Callable[[Sequence[Work], Sequence[Extent]], "list[list[Level]] | None"]


class BlockDrafter(Target, Protocol):
    """A small model that guesses several tokens in one pass, from the states of a target behind the text.

    Its cache holds one cell a token of the text, which ``take_in`` makes of the target's features. A pass is over
    blocks of one length: chains of the pending token and ``mask`` behind it. Row ``first_row`` guesses the token after
    the pending one, each later row one more.
    """

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers of the target whose features it reads."""
        ...

    @property
    def guesses(self) -> int:
        """Tokens that a block guesses at most."""
        ...

    @property
    def first_row(self) -> int: ...

    @property
    def mask(self) -> int: ...

    @property
    def has_confidence(self) -> bool:
        """Whether each row has, as `CARRIED`, the chance that its guess holds if those before did, in all columns."""
        ...

    @property
    def candidates(self) -> int:
        """Among how many tokens each guess is picked by the one before it; 0: among all, by logits. Each row has then,
        as `CARRIED`, so many ids, and their scores behind the first candidate of the row before, the second, …"""
        ...

    def take_in(self, seq: int, features: Mapping[int, NDArray[np.float32]]) -> None:
        """Text goes on by n tokens, of which the target has ``features``, ``[n, target's width]`` a layer. The sequence
        has no uncommitted tree. Raises as ``forward``."""
        ...
