"""What a model in torch takes of memory, place by place, told before it is loaded. Part of the composition root."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localspec.backends.torch.kernels.dispatch import Ops
from localspec.backends.torch.kernels.jit import Card
from localspec.backends.torch.memory import Filled, MemoryPlan, memory_plan
from localspec.backends.torch.place import Place
from localspec.backends.torch.places import Places
from localspec.backends.torch.sizes import Shape
from localspec.backends.torch.tensors import weight_sizes
from localspec.engine_options import EngineOptions


@dataclass(frozen=True, slots=True)
class Passes:
    """Nodes of a pass, those of them that may have logits, and texts that may share it."""

    rows: int
    outputs: int
    texts: int

    @classmethod
    def of(cls, options: EngineOptions) -> Passes:
        rows = max(min(options.n_batch, options.n_ubatch), options.outputs)
        return cls(rows, options.outputs, options.open_sequences)


@dataclass(frozen=True, slots=True)
class Needs:
    """Of the model at ``path``, for passes by the kernels ``ops`` of its last place."""

    path: Path
    shape: Shape
    passes: Passes
    ops: Ops

    def by_place(self, places: Places, n_ctx: int, *, packed: bool) -> dict[Place, MemoryPlan]:
        """``packed``: with matrices that stay quantised.

        Raises:
            ModelLoadError: the file cannot be read.
        """
        sizes = weight_sizes(self.path, places, packed=packed)
        return {
            place: self.of_part(
                places,
                place,
                sum(size for name, size in sizes.items() if places.of_tensor(name) == place),
                n_ctx,
                packed=packed,
            )
            for place in places.each
        }

    def of_part(self, places: Places, place: Place, weights: int, n_ctx: int, *, packed: bool) -> MemoryPlan:
        """Of what lies in ``place``, with weights of so many bytes."""
        filled = None
        if not (self.ops.waits or places.is_divided):
            filled = Filled(self.passes.texts, Card.of(place.device), packed)
        return memory_plan(
            self.shape,
            weights,
            n_ctx=n_ctx,
            rows=self.passes.rows,
            outputs=self.passes.outputs if place == places.last else 0,
            each=place.dtype.itemsize,
            filled=filled,
            layers=places.layers_in(place, self.shape.layers),
        )
