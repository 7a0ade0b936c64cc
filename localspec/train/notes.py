"""What the target says of a text, taken down once: reading it again would cost more than learning from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from localspec.backends.torch.llama import TorchLlama
from localspec.train.texts import Texts
from localspec.train.whole import whole

#: The target's likeliest next tokens that are kept a token. Behind them lies a share too small to learn from.
TOP = 32
#: Texts that are read at once.
READ_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Notes:
    """Texts as the target reads them; row j of a text lies behind its token j.

    ``tokens`` and ``weight`` ``[texts, n]`` as in `Texts`; ``features`` ``[texts, n, layers · width]`` in bfloat16;
    ``ids`` and ``shares`` ``[texts, n, TOP]``: the likeliest next tokens, the likeliest first, and their probabilities.
    """

    tokens: Tensor
    weight: Tensor
    features: Tensor
    ids: Tensor
    shares: Tensor

    def rows(self, which: Sequence[int] | slice) -> Notes:
        """Some of the texts, in types to reckon with."""
        pick = which if isinstance(which, slice) else torch.tensor(list(which))
        return Notes(
            self.tokens[pick].long(),
            self.weight[pick].float(),
            self.features[pick].float(),
            self.ids[pick].long(),
            self.shares[pick].float(),
        )

    def write(self, path: Path) -> None:
        """The file appears whole or not at all."""
        with whole(path) as part:
            torch.save(asdict(self), part)

    @classmethod
    def read(cls, path: Path) -> Notes:
        """Those of a file, whose rows come into memory when they are asked for."""
        return cls(**torch.load(path, mmap=True))


def joined(notes: Sequence[Notes]) -> Notes:
    """Notes of several texts of one length as one."""
    return Notes(*(torch.cat([getattr(one, name) for one in notes]) for name in Notes.__slots__))


@torch.no_grad()
def take_notes(target: TorchLlama, texts: Texts, layers: Sequence[int]) -> Notes:
    """Has ``target`` read ``texts`` at once; inputs of ``layers`` are kept."""
    tokens = torch.from_numpy(texts.tokens).long()
    read = target.read(tokens, layers=set(layers))
    tops = [_top(target, hidden) for hidden in read.hidden]
    features = torch.cat([read.layers[layer] for layer in layers], dim=-1) if layers else read.hidden[..., :0]
    return Notes(
        tokens.int(),
        torch.from_numpy(texts.weight),
        features.bfloat16(),
        torch.stack([ids for ids, _ in tops]).int(),
        torch.stack([shares for _, shares in tops]).half(),
    )


def _top(target: TorchLlama, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Ids and probabilities of the likeliest tokens behind each row of ``hidden``."""
    best = torch.softmax(hidden @ target.unembedding.T, dim=1).topk(min(TOP, len(target.unembedding)), dim=1)
    return best.indices, best.values
