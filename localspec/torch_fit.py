"""``--fit`` for models in torch: from options, files and a card to a plan, and back to options.

Part of the composition root.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from localspec.backends.layers import Layers
from localspec.backends.options import CPU_ONLY, ModelOptions
from localspec.backends.torch.kernels.dispatch import Ops
from localspec.backends.torch.llama import read_header_and_shape
from localspec.backends.torch.memory import MemoryPlan
from localspec.backends.torch.place import Gpu, Place
from localspec.backends.torch.places import TABLE, Places, block_of
from localspec.backends.torch.tensors import UNEMBEDDING, weight_sizes
from localspec.drafters.files import DRAFT_MODEL, PARD
from localspec.engine_options import EngineOptions
from localspec.errors import ModelError
from localspec.fit import Device, Model, fit
from localspec.fit_options import Fitted, margins
from localspec.hub.header import read_header
from localspec.hub.shelf import parts
from localspec.torch_memory import Needs, Passes

#: Drafters that are models with layers, and come in GGUF files.
_MODELS = (DRAFT_MODEL, PARD)


def fitted(options: EngineOptions, gpu: Gpu | None, ops: Ops, kind: str | None) -> Fitted:
    """The options with layers, and if need be a context, for which the card has room. Matrices stay quantised before
    anything stays on the CPU.

    Args:
        ops: the kernels that the card runs.
        kind: the drafter that the draft model is.

    Raises:
        UsageError: margins for more cards than there are.
    """
    draft = options.draft if kind in _MODELS and options.draft is not None and not options.draft.path.is_dir() else None
    asked = [options.target, *([] if draft is None else [draft])]
    if gpu is None or not options.fit.on or not any(one.gpu_layers is None and _may_move(one) for one in asked):
        return Fitted(options)
    name = gpu.place.name
    device = Device(name, gpu.free(), margins(options.fit, [name])[0])
    try:
        return _planned(options, asked, device, gpu.place, ops)
    except ModelError:  # said when the file is loaded
        return Fitted(options)


def _planned(options: EngineOptions, asked: Sequence[ModelOptions], device: Device, place: Place, ops: Ops) -> Fitted:
    for packed in (False,) if ops.waits else (False, True):
        layers = [_Layers(one, place, ops, Passes.of(options), packed=packed) for one in asked]
        trained = layers[0].trained
        models = [one.model(flag) for flag, one in zip(("-ngl", "-ngld"), layers, strict=False)]
        plan = fit(models, [device], options.n_ctx, trained, options.fit.n_ctx)
        if plan is None:  # room for all, or none for what was asked for, which is said when that is loaded
            return Fitted(options, packed=packed)
    assert plan is not None
    return replace(Fitted.of(options, plan, trained, asked[1] if len(asked) > 1 else None), packed=packed)


def _may_move(model: ModelOptions) -> bool:
    return model.devices != (CPU_ONLY,)


class _Layers:
    """Sizes of one model's layers on the card at ``place``."""

    def __init__(self, options: ModelOptions, place: Place, ops: Ops, passes: Passes, *, packed: bool) -> None:
        self._options, self._packed = options, packed
        header, self._shape = read_header_and_shape(options.path, options.rope)
        self._needs = Needs(options.path, self._shape, passes, ops)
        self._there, self._here = Places.whole(place), Places.whole(Place())
        self.trained = header.number("{arch}.context_length") or 2048

    def model(self, flag: str) -> Model:
        count, given = self._shape.layers + 1, self._options.gpu_layers
        return Model(
            flag,
            self._sizes,
            lambda n_ctx: self._plan(n_ctx).passes,
            read=self._read(self._there, packed=self._packed),
            read_on_cpu=self._read(self._here, packed=False),
            on=(0,) if _may_move(self._options) else (),
            fixed=None if given is None else count if given < 0 else min(given, count),
        )

    def _sizes(self, n_ctx: int) -> tuple[int, ...]:
        """In the order in which they are moved. With the first layer, the last to be moved, all is in one place: its
        table of tokens comes along, and what CUDA graphs take."""
        plan, layers = self._plan(n_ctx), self._shape.layers
        blocks = [self._weights[layer] + plan.cache // layers for layer in reversed(range(layers))]
        sizes = [self._weights[None], *blocks]
        sizes[-1] += plan.inputs + plan.graphs + self._table
        return tuple(sizes)

    def _plan(self, n_ctx: int) -> MemoryPlan:
        """But for weights."""
        n_ctx = min(n_ctx, self.trained) if n_ctx else self.trained
        return self._needs.of_part(self._there, self._there.last, 0, n_ctx, packed=self._packed)

    @cached_property
    def _tensors(self) -> dict[str, int]:
        return weight_sizes(self._options.path, self._there, packed=self._packed)

    @property
    def _is_tied(self) -> bool:
        return UNEMBEDDING[0] not in self._tensors

    @property
    def _table(self) -> int:
        """Of tokens, where it is not the output layer's."""
        return 0 if self._is_tied else sum(size for name, size in self._tensors.items() if name.startswith(TABLE))

    @cached_property
    def _weights(self) -> Counter[int | None]:
        """By layer; ``None``: the output layer's."""
        found: Counter[int | None] = Counter()
        for name, size in self._tensors.items():
            if self._is_tied or not name.startswith(TABLE):
                found[block_of(name)] += size
        return found

    def _read(self, places: Places, *, packed: bool) -> int:
        """Bytes of weights that a pass over a row reads there: not all experts."""
        sizes = weight_sizes(self._options.path, places, packed=packed)
        whole = sum(size for name, size in sizes.items() if self._is_tied or not name.startswith(TABLE))
        layers = Layers.of([read_header(part) for part in parts(self._options.path)])
        if layers is None:
            return whole
        return whole * layers.read // max(sum(layers.blocks) + layers.output, 1)
