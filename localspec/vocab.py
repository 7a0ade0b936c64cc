"""Token ids and what they spell: one tokenizer for all backends, and the check whether two models share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from localspec.errors import PairingError

if TYPE_CHECKING:  # front ends read templates, which know a vocabulary: numpy would be half of their start
    import numpy as np
    from numpy.typing import NDArray


class Vocab(Protocol):
    """A tokenizer, read-only. Ids run from 0 to ``n_tokens - 1``."""

    def __hash__(self) -> int:
        """What is worked out of a vocabulary may be kept by it."""
        ...

    @property
    def n_tokens(self) -> int: ...

    @property
    def kind(self) -> str:
        """Family of the tokenizer (``bpe``, ``spm``, …): ids of different families never mean the same."""
        ...

    @property
    def bos(self) -> int | None:
        """The token that opens a text, if the model wants one put there; else ``None``."""
        ...

    @property
    def bos_text(self) -> str:
        """How templates spell the opening token, also where the model does not want one put there; "" for none."""
        ...

    @property
    def eos_text(self) -> str:
        """How templates spell the token that ends a text; "" for none."""
        ...

    @property
    def end_tokens(self) -> frozenset[int]:
        """Every id that ends a generation."""
        ...

    @property
    def control_tokens(self) -> frozenset[int]:
        """Ids that are scaffolding, not text: what users type never turns into one of them."""
        ...

    def text(self, token: int) -> str:
        """The token as the vocabulary spells it (``Ġthe``, ``<|im_end|>``)."""
        ...

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes a token adds to a text; control tokens add none unless ``special``."""
        ...

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of ``text``, without BOS. Names of control tokens become those tokens only with ``special``."""
        ...


@dataclass(frozen=True, slots=True)
class Pairing:
    """What two models agree on: ids below ``common`` mean the same, except those in ``barred``. The draft model reads
    ``stand_in`` where the target's text has a token that it does not have."""

    common: int
    barred: frozenset[int]
    stand_in: int = 0

    def row(self, row: NDArray[np.float32]) -> NDArray[np.float32]:
        """The draft model's scores by the target's ids: ``[n]`` as they are."""
        return row

    def draft_id(self, token: int) -> int | None:
        """What the draft model calls the target's ``token``; ``None``: it cannot guess it."""
        return token if token < self.common and token not in self.barred else None

    def readable(self, tokens: Sequence[int]) -> list[int]:
        """``tokens`` of the text as the draft model can read them, each in its place."""
        return [token if token < self.common else self.stand_in for token in tokens]


def pair(target: Vocab, draft: Vocab) -> Pairing | None:
    """Compares two vocabularies token by token; ``None`` if they are not the same.

    Sizes may differ (rows of padding, names that one model learnt later): ids beyond the smaller one are never
    proposed, and read as an end of text. Control tokens may be spelt differently (unused slots often are): those ids
    are barred from drafts. Text must be the same.
    """
    if target.kind != draft.kind:
        return None
    common = min(target.n_tokens, draft.n_tokens)
    differing = frozenset(token for token in range(common) if target.text(token) != draft.text(token))
    # Which are names takes a look at every token, of two vocabularies.
    if differing and not differing <= target.control_tokens & draft.control_tokens:
        return None
    return Pairing(common, differing, min(draft.end_tokens, default=0))


def alike(target: Vocab, draft: Vocab, *, draft_name: str = "the draft model") -> tuple[dict[int, int], dict[int, int]]:
    """What two vocabularies have in common, the target's id → the draft model's: control tokens of one name, and all
    tokens, those included.

    Raises:
        PairingError: no text can be guessed: no token is spelt alike.
    """
    names = _names(target, draft)
    twins = {**_spelt_alike(target, draft), **names}
    if len(twins) == len(names):
        raise PairingError(
            f"{draft_name} and the target spell no token alike: it can guess nothing",
            hint="Pick a draft model of the same family as the target, or leave -md out.",
        )
    return names, twins


def _names(target: Vocab, draft: Vocab) -> dict[int, int]:
    """Control tokens of both: the target's id → the draft model's."""
    known = {draft.text(token): token for token in draft.control_tokens}
    return {token: known[name] for token in sorted(target.control_tokens) if (name := target.text(token)) in known}


def _spelt_alike(target: Vocab, draft: Vocab) -> dict[int, int]:
    """Text tokens of both: the target's id → the draft model's. Where several spell the same, the one that the
    tokenizer gives."""
    ours, theirs = _by_bytes(target), _by_bytes(draft)
    return {
        _usual(target, piece, ours[piece]): _usual(draft, piece, theirs[piece]) for piece in ours.keys() & theirs.keys()
    }


def _by_bytes(vocab: Vocab) -> dict[bytes, list[int]]:
    tokens: dict[bytes, list[int]] = {}
    for token in range(vocab.n_tokens):
        if piece := vocab.piece(token):
            tokens.setdefault(piece, []).append(token)
    return tokens


def _usual(vocab: Vocab, piece: bytes, tokens: Sequence[int]) -> int:
    """The one of ``tokens``, all spelt alike, that stands in texts."""
    if len(tokens) == 1:
        return tokens[0]
    usual = vocab.tokenize(piece.decode("utf-8", "replace"))
    return usual[-1] if usual and usual[-1] in tokens else tokens[0]
