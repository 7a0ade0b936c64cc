"""``--fit`` for models in llama.cpp: from options, files and devices to a plan, and from this back to options.

Part of the composition root.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.backends.layers import Layers
from localspec.backends.llamacpp import Native
from localspec.backends.llamacpp.devices import Device
from localspec.backends.llamacpp.overrides import patterns
from localspec.backends.options import ModelOptions
from localspec.engine_options import EngineOptions, FitOptions
from localspec.fit import Device as Free
from localspec.fit import Model, fit
from localspec.fit_options import Fitted, margins
from localspec.hub.header import read_header
from localspec.hub.shelf import parts


def fitted(options: EngineOptions, native: Native, *, predictors: bool) -> Fitted:
    """The options with layers, and if need be a context, for which devices have room.

    Args:
        predictors: whether the target's layers for multi-token prediction are loaded.

    Raises:
        UsageError: a device that is not there, or margins for others than are.
        ModelError: a file cannot be read.
    """
    draft = None if options.draft is None or options.draft.path.is_dir() else options.draft
    models = [options.target, *([] if draft is None else [draft])]
    used = [_devices(one, native) for one in models]
    if not options.fit.on or not _is_open(models, used):
        return Fitted(options)
    devices = list({one.handle: one for several in used for one in several}.values())
    free = free_on(devices, options.fit, native)
    layers = [one for model in models if (one := _layers(model, predictors=predictors or model is draft)) is not None]
    if len(layers) < len(models):  # a header that does not tell
        return Fitted(options)
    asked = [
        _model(flag, model, of, [devices.index(one) for one in several], options)
        for flag, model, of, several in zip(("-ngl", "-ngld"), models, layers, used, strict=False)
    ]
    trained = layers[0].context
    plan = fit(asked, free, options.n_ctx, trained, options.fit.n_ctx)
    return Fitted(options) if plan is None else Fitted.of(options, plan, trained, draft)


def layer_sizes(model: ModelOptions, n_ctx: int) -> tuple[int, ...]:
    """Bytes by layer, in the order in which ``-ngl`` moves them; empty: its header does not tell.

    Raises:
        ModelError: the file cannot be read.
    """
    layers = _layers(model, predictors=False)
    return () if layers is None else _sizes(model, layers, n_ctx or layers.context)


def _sizes(model: ModelOptions, layers: Layers, n_ctx: int) -> tuple[int, ...]:
    return layers.sizes(n_ctx, model.cache_type_k, model.cache_type_v, caches=model.kv_offload)


def _layers(model: ModelOptions, *, predictors: bool) -> Layers | None:
    return Layers.of([read_header(part) for part in parts(model.path)], predictors=predictors)


def _devices(model: ModelOptions, native: Native) -> list[Device]:
    chosen = native.devices.chosen(model.devices)
    return chosen[model.main_gpu or 0 :][:1] if model.split_mode == "none" else chosen


def _is_open(models: Sequence[ModelOptions], used: Sequence[Sequence[Device]]) -> bool:
    """Whether layers of some model may go to devices and it was not said how many; where it was said by tensors or by
    shares what goes where, nothing is planned."""
    said = any(patterns(one) or one.tensor_split or one.split_mode == "row" for one in models)
    return not said and any(one.gpu_layers is None and there for one, there in zip(models, used, strict=True))


def free_on(devices: Sequence[Device], wish: FitOptions, native: Native) -> list[Free]:
    """What devices have, and what of it stays free.

    Raises:
        UsageError: margins for others than are there.
    """
    each = margins(wish, [one.label for one in devices])
    return [
        Free(one.name, native.devices.memory(one.handle)[0], margin) for one, margin in zip(devices, each, strict=True)
    ]


def _model(flag: str, model: ModelOptions, layers: Layers, on: Sequence[int], options: EngineOptions) -> Model:
    outputs = max(options.outputs, options.open_sequences + options.tree_nodes)
    rows = max(min(options.n_ubatch, options.n_batch), outputs)
    most = layers.context if flag == "-ngld" else None  # a draft model has no more than it was trained for

    def sizes(n_ctx: int) -> tuple[int, ...]:
        return _sizes(model, layers, n_ctx if most is None else min(n_ctx, most))

    def buffers(n_ctx: int) -> int:
        return layers.buffers(n_ctx, rows, outputs, flash=options.flash_attn != "off", several=len(on) > 1)

    count = len(layers.blocks) + 1
    given = model.gpu_layers
    fixed = None if given is None else count if given < 0 else min(given, count)
    return Model(flag, sizes, buffers, layers.read, tuple(on), fixed)
