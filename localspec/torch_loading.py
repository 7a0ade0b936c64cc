"""An engine's models in torch: part of the composition root. Tokenizers are llama.cpp's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from localspec.backends.base import Work
from localspec.backends.llamacpp import LoneVocab, Native
from localspec.backends.memory import available_bytes
from localspec.backends.options import ModelOptions
from localspec.backends.torch.eagle_weights import TargetShape, check_fit
from localspec.backends.torch.gguf_head import read_head
from localspec.backends.torch.kernels.dispatch import choose
from localspec.backends.torch.llama import TorchLlama, read_header_and_shape
from localspec.backends.torch.memory import MemoryPlan
from localspec.backends.torch.place import Gpu, Place
from localspec.backends.torch.places import Places
from localspec.backends.torch.target import TorchTarget
from localspec.drafter_making import Made, mask_of, same_vocabulary, small_model, small_pairing
from localspec.drafters.files import DRAFT_MODEL, EAGLE3, FROM_FILE, IN_TORCH, MTP, PARD, check_is_target
from localspec.drafters.pard import ParallelModel
from localspec.errors import Cancelled, ModelFault, ModelLoadError, OutOfMemory, UsageError
from localspec.hub.header import Header, read_header
from localspec.loading_parts import LoadedTarget, Wish
from localspec.spec.tree import TokenTree
from localspec.torch_drafters import ForTarget, eagle_drafter
from localspec.torch_fit import fitted
from localspec.torch_memory import Needs, Passes
from localspec.torch_options import check_torch_options
from localspec.types import ModelLoad, Placement
from localspec.vocab import Vocab

_LLAMACPP = "Use --backend llamacpp."
#: Drafters whose files llama.cpp alone runs.
_NOT_HERE = frozenset({*FROM_FILE, MTP} - {DRAFT_MODEL, *IN_TORCH})


@dataclass(frozen=True, slots=True)
class _Read:
    """A file: what its header says, its decoder, its tokenizer, what it takes of memory by place, whether matrices stay
    quantised, what was free before of the last of these places, how long its context is to be, and how long the texts
    were that it was trained with."""

    path: Path
    header: Header
    model: TorchLlama
    vocab: LoneVocab
    plans: Mapping[Place, MemoryPlan]
    packed: bool
    free: int | None
    n_ctx: int
    n_ctx_train: int

    @property
    def name(self) -> str:
        return self.path.name


class InTorch:
    """The backend torch.

    Args:
        gpu: looks for a card.

    Raises:
        UsageError: options that torch cannot honour.
    """

    name = "torch"

    def __init__(self, wish: Wish, gpu: Callable[[], Gpu | None] = Gpu.seen) -> None:
        self._wish, self._options = wish, wish.options
        check_torch_options(wish.options)
        unfit = next((name for name in wish.options.spec_types or () if name in _NOT_HERE), None)
        if unfit is not None:
            raise UsageError(f"--spec-type {unfit} runs in llama.cpp alone, and the target on torch", hint=_LLAMACPP)
        self._native = Native(wish.options.log_file)
        self._about: ForTarget | None = None
        check_is_target(read_header(wish.options.target.path).architecture, wish.options.target.path.name)
        self._gpu = gpu()
        kernels = choose(Place().device if self._gpu is None else self._gpu.place.device)
        self._fitted = fitted(wish.options, self._gpu, kernels.ops, wish.kind)
        self._options = self._fitted.options
        if self._fitted.plan is not None:
            wish.warn(self._fitted.plan.told)

    def target(self) -> LoadedTarget:
        options = self._options
        read = self._read(options.target, "target", "-ngl", lambda trained: options.n_ctx or trained)
        target, shape = self._in_context(read), read.model.shape
        self._about = ForTarget(
            options.target.path, read.vocab, shape.width, shape.layers, read.n_ctx, options.open_sequences
        )
        template = read.header.text("tokenizer.chat_template")
        return LoadedTarget(target, self._described("target", read, target), self._about, template)

    def drafter(self, kind: str) -> Made:
        options, about = self._options.draft, self._about
        assert options is not None
        assert about is not None, "the target comes first"
        if kind == EAGLE3:
            return self._head(options, about)
        read = self._read(options, "draft", "-ngld", lambda trained: min(about.n_ctx, trained))
        made = (self._parallel if kind == PARD else self._small)(read, about.vocab)
        return replace(made, n_ctx_train=read.n_ctx_train)

    def _small(self, read: _Read, vocab: Vocab) -> Made:
        pairing = small_pairing(vocab, read.vocab, read.name)
        draft = self._in_context(read)
        return small_model(draft, pairing, self._described("draft", read, draft), read.name)

    def _parallel(self, read: _Read, vocab: Vocab) -> Made:
        pairing = same_vocabulary(vocab, read.vocab, read.name)
        mask = mask_of(read.header.number("tokenizer.ggml.mask_token_id"), read.name)
        draft = self._in_context(read)
        return Made(ParallelModel(draft, pairing, mask), self._described("draft", read, draft))

    def _head(self, options: ModelOptions, about: ForTarget) -> Made:
        same_vocabulary(about.vocab, LoneVocab(self._native, options.path), options.path.name)
        weights = read_head(options.path, "Use the head's own file.")
        shape = TargetShape(about.path.name, about.layers, about.width, about.vocab.n_tokens)
        check_fit(weights, shape, options.path.name)
        return eagle_drafter(EAGLE3, weights, options, about, self._options.scored, Place.of(options, self._gpu))

    def _read(self, options: ModelOptions, stage: str, flag: str, length: Callable[[int], int]) -> _Read:
        """Reads a file. ``length``: tokens that it was trained for → those that its context will have."""
        header, shape = read_header_and_shape(options.path, options.rope)
        places = Places.of(options, self._gpu, shape.layers)
        for line in places.last.warnings(options, flag):
            self._wish.warn(line)

        def told(share: float) -> None:
            if not self._wish.progress(stage, share):
                raise Cancelled(f"loading {options.path.name} was stopped")

        trained = header.number("{arch}.context_length") or 2048
        n_ctx = length(trained)
        kernels = choose(places.last.device)
        if kernels.note and stage == "target":
            self._wish.warn(kernels.note)
        needs = Needs(options.path, shape, Passes.of(self._options), kernels.ops)
        plans, packed = self._planned(needs, places, n_ctx)
        free = self._free(places.last)
        model = TorchLlama.of_file(
            options.path, n_ctx=n_ctx, rope=options.rope, places=places, told=told, ops=kernels.ops, packed=packed
        )
        vocab = LoneVocab(self._native, options.path)
        return _Read(options.path, header, model, vocab, plans, packed, free, n_ctx, trained)

    def _planned(self, needs: Needs, places: Places, n_ctx: int) -> tuple[dict[Place, MemoryPlan], bool]:
        """What the model takes of each place, and whether its matrices stay quantised for that.

        Raises:
            OutOfMemory: the machine, or the card, has not so much that is free.
        """
        ways = [False, True][: 1 if needs.ops.waits else 2]
        # Numbers of 16 bits need no arithmetic before they are multiplied; which is quicker no card has told yet.
        for packed in ways[-1:] if self._fitted.packed else ways:
            plans = needs.by_place(places, n_ctx, packed=packed)
            short = next((place for place, plan in plans.items() if self._is_short(place, plan)), None)
            if short is None:
                return plans, packed
        assert short is not None
        plan, where = plans[short], f" of {short.name}" if places.is_divided else ""
        raise OutOfMemory(
            f"{needs.path.name} needs {plan.total / 1e9:.1f} GB{where} in torch ({_parts(plan, 1e9, '.1f')}),"
            f" {(self._free(short) or 0) / 1e9:.1f} GB are free",
            hint=f"Use --backend llamacpp, {'fewer layers (-ngl, -ngld), ' if short.card else ''}or a smaller -c.",
        )

    def _is_short(self, place: Place, plan: MemoryPlan) -> bool:
        free = self._free(place)
        return free is not None and plan.total > free

    def _free(self, place: Place) -> int | None:
        """Bytes; ``None``: nobody knows."""
        return self._gpu.free() if self._gpu is not None and place.card else available_bytes()

    def _in_context(self, read: _Read) -> TorchTarget:
        passes = Passes.of(self._options)
        target = TorchTarget(
            read.model,
            read.vocab,
            n_ctx=read.n_ctx,
            n_ctx_train=read.n_ctx_train,
            sequences=passes.texts,
            max_rows=passes.rows,
            max_outputs=passes.outputs,
        )
        _check_first_pass(target, read)
        if target.note:
            self._wish.warn(f"{read.name}: {target.note}")
        return target

    def _described(self, role: str, read: _Read, target: TorchTarget) -> ModelLoad:
        """How a model was loaded and where it lies; says where it takes more of a card than was planned for it."""
        load = ModelLoad(role, str(read.path), _settings(read, target), tuple(self._lies(read, target)))
        for line in self._fitted.unplanned(load):
            self._wish.warn(line)
        return load

    def _lies(self, read: _Read, target: TorchTarget) -> Iterator[Placement]:
        """By place. Of a card, what is neither weights nor cache is what it has less than before."""
        model, places, count = read.model, read.model.places, read.model.shape.layers
        for place in places.each:
            weights, layers = model.bytes_in(place), places.layers_in(place, count)
            cache = sum(target.caches[layer] for layer in range(count) if places.of_layer(layer) == place)
            left = self._free(place) if place.card else None
            taken = 0 if left is None or read.free is None else read.free - left
            behind = int(place == places.last)
            yield Placement(place.name, layers + behind, weights, cache, max(taken - weights - cache, 0))


def _parts(plan: MemoryPlan, unit: float, form: str) -> str:
    """Those of ``plan``, in words."""
    return ", ".join(f"{name} {size / unit:{form}}" for name, size in plan.parts.items())


def _check_first_pass(target: TorchTarget, read: _Read) -> None:
    """A damaged file may load and compute nonsense; better said now."""
    seq = target.open()
    try:
        (rows,) = target.forward([Work(seq, TokenTree.root(read.vocab.bos or 0))])
    except RuntimeError as error:  # torch's, where matrices do not fit together
        raise ModelLoadError(f"the tensors of {read.name} do not fit together: {error}", hint=_LLAMACPP) from None
    target.close(seq)
    if not np.isfinite(rows.logits(0)).all():
        raise ModelFault(
            f"{read.name} computes no finite scores (NaN)",
            hint="The file is damaged: compare its checksum or download it again.",
        )


def _settings(read: _Read, target: TorchTarget) -> tuple[tuple[str, str], ...]:
    places = read.model.places
    told = {one.name: f"{plan.total / 1e6:.0f} MB ({_parts(plan, 1e6, '.0f')})" for one, plan in read.plans.items()}
    planned = [f"{name}: {text}" for name, text in told.items()] if places.is_divided else told.values()
    no_graphs = places.is_divided and not read.model.ops.waits
    return (
        ("runs on", "torch"),
        *places.settings,
        *(("matrices", "quantised as in the file, where kernels read them"),) * read.packed,
        *(("CUDA graphs", "none: layers lie in two places"),) * no_graphs,
        ("n_ctx", str(target.caps.n_ctx)),
        ("rows of a pass", str(target.caps.max_rows)),
        ("planned memory", "; ".join(planned)),
    )
