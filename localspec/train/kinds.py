"""What can be trained: how a kind begins, what it reads of its target, and how it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from localspec.backends.torch.llama import TorchLlama
from localspec.backends.torch.sizes import Shape
from localspec.errors import ModelError
from localspec.train.eagle3 import Eagle3, layers_read
from localspec.train.export import read_head, read_small, write_head, write_small
from localspec.train.head import HeadLearner
from localspec.train.hub_form import write_hub_head, write_hub_small
from localspec.train.learner import Learner
from localspec.train.small import Small, SmallLearner, small_shape
from localspec.train.work import Work


class Kind(Protocol):
    """A kind of drafter, of one size."""

    def about(self) -> Mapping[str, Any]:
        """What tells trainings of this kind apart."""

    def layers(self, target: Shape) -> tuple[int, ...]:
        """Layers of the target whose inputs it reads."""

    def begin(self, target: TorchLlama, work: Work) -> Learner:
        """A fresh one, for texts that are in ``work``; always the same for the same."""

    def write(
        self, path: Path, module: nn.Module, weights: Mapping[str, Tensor], target: Path, about: Mapping[str, str]
    ) -> None:
        """Keeps ``weights`` of what `begin` began, for llama.cpp."""

    def write_hub(self, folder: Path, module: nn.Module, weights: Mapping[str, Tensor], n_vocab: int) -> None:
        """Keeps them in the hub's form."""


@dataclass(frozen=True, slots=True)
class HeadKind:
    """EAGLE-3 heads that can guess the ``ids`` most frequent tokens; ``origin`` is one to go on from."""

    ids: int
    outtype: str
    origin: Path | None = None

    def about(self) -> Mapping[str, Any]:
        return {"kind": "eagle3", "ids": self.ids, "from": None if self.origin is None else str(self.origin)}

    def layers(self, target: Shape) -> tuple[int, ...]:
        return layers_read(target)

    def begin(self, target: TorchLlama, work: Work) -> HeadLearner:
        if self.origin is not None:
            trained = read_head(self.origin)
            _check(self.origin, "reads other layers", trained.reads == layers_read(target.shape))
            _check(self.origin, "reads another width", trained.target_width == target.shape.width)
            try:
                head = Eagle3.of(trained)
            except ValueError:
                raise _unfit(self.origin, "has other parts") from None
        else:
            ids = work.remembered("ids", lambda: _frequent(work, target.shape.n_vocab, self.ids))
            head = Eagle3.fitting(target.shape, ids)
            head.begin_from(target)
        return HeadLearner(head, target)

    def write(
        self, path: Path, module: nn.Module, weights: Mapping[str, Tensor], target: Path, about: Mapping[str, str]
    ) -> None:
        assert isinstance(module, Eagle3)
        write_head(path, module.trained(weights), target, self.outtype, about)

    def write_hub(self, folder: Path, module: nn.Module, weights: Mapping[str, Tensor], n_vocab: int) -> None:
        assert isinstance(module, Eagle3)
        write_hub_head(folder, module.trained(weights), n_vocab)


@dataclass(frozen=True, slots=True)
class SmallKind:
    """Small llamas of ``width`` and so many ``depth`` layers."""

    width: int
    depth: int
    outtype: str
    origin: Path | None = None

    def about(self) -> Mapping[str, Any]:
        origin = None if self.origin is None else str(self.origin)
        return {"kind": "draft", "width": self.width, "layers": self.depth, "from": origin}

    def layers(self, target: Shape) -> tuple[int, ...]:
        return ()

    def begin(self, target: TorchLlama, work: Work) -> SmallLearner:
        if self.origin is not None:
            shape, weights = read_small(self.origin)
            _check(self.origin, "has another vocabulary", shape.n_vocab == target.shape.n_vocab)
            model = Small(shape)
            model.load_state_dict(weights)
        else:
            model = Small(small_shape(target.shape, self.width, self.depth))
            model.begin_from(target)
        return SmallLearner(model)

    def write(
        self, path: Path, module: nn.Module, weights: Mapping[str, Tensor], target: Path, about: Mapping[str, str]
    ) -> None:
        assert isinstance(module, Small)
        write_small(path, module.shape, weights, target, self.outtype, about)

    def write_hub(self, folder: Path, module: nn.Module, weights: Mapping[str, Tensor], n_vocab: int) -> None:
        assert isinstance(module, Small)
        write_hub_small(folder, module.shape, weights)


def _frequent(work: Work, n_vocab: int, count: int) -> list[int]:
    """The tokens that are drawn most often, ascending."""
    counts = work.counts(n_vocab)
    order = np.lexsort((np.arange(n_vocab), -counts))
    return sorted(order[:count].tolist())


def _check(origin: Path, fault: str, fine: bool) -> None:
    if not fine:
        raise _unfit(origin, fault)


def _unfit(origin: Path, fault: str) -> ModelError:
    return ModelError(f"{origin.name} {fault} than this target needs", hint="Begin without --from.")
