"""What stands before and behind a head: embeddings of tokens, and the matrix that scores them.

EAGLE heads borrow both from their target. Scoring a full vocabulary is most of the cost of a pass: of 49,152 tokens
28 ms for one state of 576 numbers on two slow cores, of 8,192 tokens 2 ms. So rare tokens may be left out (FR-Spec,
arXiv 2502.14856): what is not scored is not guessed, and the text stays the target's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.torch.eagle_weights import EagleWeights
from localspec.backends.torch.tensors import EMBEDDING, UNEMBEDDING, GgufMatrix
from localspec.errors import UsageError

Ids = NDArray[np.int64]
#: ``[n, width]`` of n tokens.
Embed = Callable[[Sequence[int]], Tensor]


@dataclass(frozen=True, slots=True)
class Ends:
    """``unembedding`` is ``[scored, width]``, of the target's tokens ``ids`` (``None``: of all)."""

    embed: Embed
    unembedding: Tensor
    ids: Ids | None


def ends_of(weights: EagleWeights, target: Path, n_vocab: int, keep: Ids | None, name: str) -> Ends:
    """Those of the head called ``name``, where it lacks them those of the ``target``'s file, of which only the tokens
    ``keep`` are scored.

    Raises:
        UsageError: the head scores a choice of its own already.
        ModelLoadError: the target's file lacks them.
    """
    if weights.ids is not None and keep is not None:
        raise UsageError(
            f"{name} scores {len(weights.ids)} tokens of its own choice: --spec-head-vocab and --spec-token-map are for"
            " heads that score all",
            hint="Leave them out.",
        )
    ids = weights.ids if keep is None else keep
    own = weights.weights.get("token_embd.weight")
    embed = partial(_borrowed, GgufMatrix(target, EMBEDDING)) if own is None else partial(_own, own)
    return Ends(embed, _unembedding(weights, target, n_vocab, ids), ids)


def _own(embedding: Tensor, tokens: Sequence[int]) -> Tensor:
    return F.embedding(torch.tensor(tokens), embedding)


def _borrowed(embedding: GgufMatrix, tokens: Sequence[int]) -> Tensor:
    return embedding.rows(np.array(tokens))


def _unembedding(weights: EagleWeights, target: Path, n_vocab: int, ids: Ids | None) -> Tensor:
    own = weights.weights.get("output.weight")
    if own is None:
        return GgufMatrix(target, UNEMBEDDING).rows(slice(n_vocab) if ids is None else ids)
    if weights.ids is not None:
        return own[: len(weights.ids)]
    return own[:n_vocab] if ids is None else own[torch.from_numpy(ids)]
