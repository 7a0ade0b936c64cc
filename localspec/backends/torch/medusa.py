"""Heads of Medusa's and Hydra's checkpoints, in torch.

A head is some residual blocks and an unembedding: its own, or the target's. Checkpoints of Medusa-1 hold the heads
alone (``0.0.linear.weight``: block 0 of head 0), those of Medusa-2 the whole tuned model too, with the heads under
``medusa_head.``: then the target has to be made of the same checkpoint. vLLM's names are read as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from localspec.backends.base import Row, Work
from localspec.backends.torch.checkpoint import Checkpoint
from localspec.backends.torch.place import Place, array
from localspec.errors import ModelLoadError, UsageError
from localspec.sampling import SamplerState

State = NDArray[np.float32]
#: A tensor of the target, fetched where a checkpoint lacks it.
Fetch = Callable[[], Tensor]

#: Of a head: (our name, block) → weight and bias.
Parts = dict[tuple[str, int], dict[str, Tensor]]

#: Ways to name a part of head ``h`` (``b``: of its block) → our name for it; `_WHAT` follows.
_MEDUSA = (
    (r"(?:medusa_heads?\.)?(?P<h>\d+)\.(?P<b>\d+)\.linear", "block"),
    (r"(?:medusa_heads?\.)?blocks\.(?P<h>\d+)\.layers\.(?P<b>\d+)", "block"),
    (r"(?:medusa_heads?\.)?(?P<h>\d+)\.\d+", "out"),
    (r"(?:medusa_heads?\.)?lm_heads\.(?P<h>\d+)", "out"),
)
_HYDRA = (
    (r"(?:hydra_head\.)?hydra_mlp\.(?P<h>\d+)\.(?P<b>\d+)\.linear", "block"),
    (r"(?:hydra_head\.)?hydra_mlp\.(?P<h>\d+)\.(?P<b>\d+)\.res_connection", "past"),
    (r"(?:hydra_head\.)?hydra_lm_head\.(?P<h>\d+)", "out"),
)
_WHAT = r"\.(?P<what>weight|bias)"
_FOR_THIS_TARGET = "Use the heads that were trained for this target, or leave -md out."


def is_of_medusa(name: str) -> bool:
    """Whether a tensor of a checkpoint is of its heads."""
    return any(re.fullmatch(way + _WHAT, name) for way, _ in _MEDUSA)


@dataclass(frozen=True, slots=True)
class Linear:
    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Block:
    """``past(x) + silu(inner(x))``; without ``past``, x goes past the inner layer as it is."""

    inner: Linear
    past: Linear | None = None

    def __call__(self, x: Tensor) -> Tensor:
        beside = x if self.past is None else self.past(x)
        return beside + F.silu(self.inner(x))


@dataclass(frozen=True, slots=True)
class HeadLayers:
    blocks: tuple[Block, ...]
    out: Linear

    def inner(self, x: Tensor) -> Tensor:
        """What the unembedding reads."""
        for block in self.blocks:
            x = block(x)
        return x

    def __call__(self, x: Tensor) -> Tensor:
        return self.out(self.inner(x))


class _Heads:
    def __init__(self, heads: Sequence[Parts], reads: Sequence[int], target: tuple[int, int], place: Place) -> None:
        self._place = place
        self._heads = [_layers(head, place) for head in heads]
        _check_sizes(self._heads, reads, *target)
        place.start()

    @property
    def n(self) -> int:
        return len(self._heads)

    def set_threads(self, n: int) -> None:
        self._place.set_threads(n)


class TorchMedusa(_Heads):
    """Medusa's heads.

    Args:
        width, n_vocab: the target's.
        unembedding: the target's, ``[n_vocab, width]``, for heads that have none.

    Raises:
        ModelLoadError: the checkpoint lacks something.
        UsageError: it was made for another target.
    """

    def __init__(
        self, checkpoint: Checkpoint, width: int, n_vocab: int, unembedding: Fetch, place: Place | None = None
    ) -> None:
        heads = _heads(checkpoint, "medusa_num_heads", _MEDUSA)
        place = place or Place()
        super().__init__(_same_out(heads, unembedding, place), [width] * len(heads), (width, n_vocab), place)
        outs = [layers.out.weight for layers in self._heads]
        self.at_once = all(out is outs[0] for out in outs)

    def rows(self, heads: range, state: State) -> NDArray[np.float32]:
        with torch.inference_mode():
            x = self._place.put_array(state)
            if self.at_once:  # most of the time goes into reading the unembedding
                inner = torch.stack([self._heads[head].inner(x) for head in heads])
                return array(self._heads[0].out(inner))
            return array(torch.stack([self._heads[head](x) for head in heads]))


class TorchHydra(_Heads):
    """Hydra's heads: head h reads the target's state and the embeddings of h + 1 tokens.

    Args:
        width, n_vocab: the target's.
        embedding, unembedding: the target's, ``[n_vocab, width]``.

    Raises:
        ModelLoadError: the checkpoint lacks something, or has heads of another kind.
        UsageError: it was made for another target.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        width: int,
        n_vocab: int,
        embedding: Fetch,
        unembedding: Fetch,
        place: Place | None = None,
    ) -> None:
        kind = checkpoint.config.get("hydra_head_arch", "mlp")
        if kind != "mlp" or not checkpoint.config.get("grounded_heads", True):
            raise ModelLoadError(
                f"these Hydra heads are of the kind {kind if kind != 'mlp' else 'ungrounded'}; known is mlp, grounded",
                hint="Use other heads.",
            )
        heads = _heads(checkpoint, "hydra_num_heads", _HYDRA)
        reads = [width * (h + 2) for h in range(len(heads))]
        place = place or Place()
        super().__init__(_same_out(heads, unembedding, place), reads, (width, n_vocab), place)
        self._embedding = place.put(embedding())

    def forward(self, work: Work) -> HydraRows:
        tree, state = work.tree, work.states
        assert state is not None, "heads read the target's state"
        nodes = range(work.done, len(tree))
        head = tree.depths[work.done]
        paths = [[tree.tokens[at] for at in tree.path(node)] for node in nodes]
        with torch.inference_mode():
            guessed = F.embedding(torch.tensor(paths, device=self._place.device), self._embedding).flatten(1)
            read = torch.cat([self._place.put_array(state).expand(len(nodes), -1), guessed], dim=1)
            return HydraRows(array(self._heads[head](read)), work.done)


@dataclass(frozen=True, slots=True)
class HydraRows:
    """Rows of the nodes from ``first`` on."""

    scores: NDArray[np.float32]
    first: int

    features: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)

    def logits(self, node: int) -> Row:
        row: Row = self.scores[node - self.first]
        return row

    def draw(self, node: int, state: SamplerState) -> int:
        return state.draw(self.logits(node))


def _heads(checkpoint: Checkpoint, key: str, ways: Sequence[tuple[str, str]]) -> list[Parts]:
    """The parts of each head: (our name, block) → weight and bias."""
    heads: dict[int, Parts] = {}
    for name, tensor in checkpoint.tensors.items():
        for way, ours in ways:
            if found := re.fullmatch(way + _WHAT, name):
                groups = found.groupdict()
                place = ours, int(groups.get("b") or 0)
                heads.setdefault(int(groups["h"]), {}).setdefault(place, {})[groups["what"]] = tensor
                break
    # Configs of Medusa's own checkpoints name fewer heads than there are.
    wanted = max(int(checkpoint.config.get(key) or 0), max(heads, default=-1) + 1)
    missing = next((head for head in range(wanted) if ("block", 0) not in heads.get(head, {})), None)
    if missing is not None or not wanted:
        raise ModelLoadError(
            f"the checkpoint has no weights of head {(missing or 0) + 1}", hint="Get all files of the repository."
        )
    return [heads[head] for head in range(wanted)]


def _same_out(heads: Sequence[Parts], unembedding: Fetch, place: Place) -> Sequence[Parts]:
    """The heads, those without an unembedding with the target's: fetched once."""
    if all(("out", 0) in head for head in heads):
        return heads
    shared = {"weight": place.put(unembedding())}
    return [{("out", 0): shared, **head} for head in heads]


def _layers(head: Parts, place: Place) -> HeadLayers:
    blocks = []
    for b in sorted(block for name, block in head if name == "block"):
        past = head.get(("past", b))
        blocks.append(Block(_linear(head["block", b], place), None if past is None else _linear(past, place)))
    return HeadLayers(tuple(blocks), _linear(head["out", 0], place))


def _linear(parts: Mapping[str, Tensor], place: Place) -> Linear:
    bias = parts.get("bias")
    return Linear(place.put(parts["weight"]), None if bias is None else place.put(bias))


def _check_sizes(heads: Sequence[HeadLayers], reads: Sequence[int], width: int, n_vocab: int) -> None:
    for layers, wanted, n in zip(heads, reads, count(1), strict=False):
        rows, columns = layers.blocks[0].inner.weight.shape
        if (rows, columns) != (width, wanted):
            raise UsageError(
                f"head {n} was made for a target of width {rows}, this one has {width}"
                if rows != width
                else f"head {n} reads {columns} numbers, not {wanted}",
                hint=_FOR_THIS_TARGET,
            )
        if len(layers.out.weight) != n_vocab:
            raise UsageError(
                f"head {n} was made for {len(layers.out.weight)} tokens, the target has {n_vocab}",
                hint=_FOR_THIS_TARGET,
            )
