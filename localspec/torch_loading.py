"""An engine's models in torch: part of the composition root. Tokenizers are llama.cpp's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from localspec.backends.base import Work
from localspec.backends.llamacpp import LoneVocab, Native
from localspec.backends.memory import available_bytes
from localspec.backends.options import ModelOptions
from localspec.backends.torch.eagle_weights import TargetShape, check_fit
from localspec.backends.torch.gguf_head import read_head
from localspec.backends.torch.kernels.dispatch import Ops, choose
from localspec.backends.torch.kernels.jit import Card
from localspec.backends.torch.llama import TorchLlama, read_header_and_shape
from localspec.backends.torch.memory import Filled, MemoryPlan, memory_plan
from localspec.backends.torch.place import Place, free_bytes
from localspec.backends.torch.sizes import Shape
from localspec.backends.torch.target import TorchTarget
from localspec.backends.torch.tensors import packed_bytes
from localspec.drafter_making import Made, mask_of, same_vocabulary, small_model, small_pairing
from localspec.drafters.files import DRAFT_MODEL, EAGLE3, FROM_FILE, IN_TORCH, MTP, PARD, check_is_target
from localspec.drafters.pard import ParallelModel
from localspec.errors import Cancelled, ModelFault, ModelLoadError, OutOfMemory, UsageError
from localspec.hub.header import Header, read_header
from localspec.loading_parts import LoadedTarget, Wish
from localspec.spec.tree import TokenTree
from localspec.torch_drafters import ForTarget, eagle_drafter
from localspec.torch_options import check_torch_options, count_weights
from localspec.types import ModelLoad, Placement
from localspec.vocab import Vocab

_LLAMACPP = "Use --backend llamacpp."
#: Drafters whose files llama.cpp alone runs.
_NOT_HERE = frozenset({*FROM_FILE, MTP} - {DRAFT_MODEL, *IN_TORCH})


@dataclass(frozen=True, slots=True)
class _Read:
    """A file: what its header says, its decoder, where this lies, its tokenizer, what it takes of memory, whether
    matrices stay quantised, how long its context is to be, and how long the texts were that it was trained with."""

    path: Path
    header: Header
    model: TorchLlama
    place: Place
    vocab: LoneVocab
    plan: MemoryPlan
    packed: bool
    n_ctx: int
    n_ctx_train: int

    @property
    def name(self) -> str:
        return self.path.name


class InTorch:
    """The backend torch.

    Raises:
        UsageError: options that torch cannot honour.
    """

    name = "torch"

    def __init__(self, wish: Wish) -> None:
        self._wish, self._options = wish, wish.options
        check_torch_options(wish.options)
        unfit = next((name for name in wish.options.spec_types or () if name in _NOT_HERE), None)
        if unfit is not None:
            raise UsageError(f"--spec-type {unfit} runs in llama.cpp alone, and the target on torch", hint=_LLAMACPP)
        self._native = Native(wish.options.log_file)
        self._about: ForTarget | None = None

    def target(self) -> LoadedTarget:
        options = self._options
        check_is_target(read_header(options.target.path).architecture, options.target.path.name)
        read = self._read(options.target, "target", "-ngl", lambda trained: options.n_ctx or trained)
        target, shape = self._in_context(read), read.model.shape
        self._about = ForTarget(
            options.target.path, read.vocab, shape.width, shape.layers, read.n_ctx, options.open_sequences
        )
        template = read.header.text("tokenizer.chat_template")
        return LoadedTarget(target, _described("target", read, target), self._about, template)

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
        return small_model(draft, pairing, _described("draft", read, draft), read.name)

    def _parallel(self, read: _Read, vocab: Vocab) -> Made:
        pairing = same_vocabulary(vocab, read.vocab, read.name)
        mask = mask_of(read.header.number("tokenizer.ggml.mask_token_id"), read.name)
        draft = self._in_context(read)
        return Made(ParallelModel(draft, pairing, mask), _described("draft", read, draft))

    def _head(self, options: ModelOptions, about: ForTarget) -> Made:
        same_vocabulary(about.vocab, LoneVocab(self._native, options.path), options.path.name)
        weights = read_head(options.path, "Use the head's own file.")
        shape = TargetShape(about.path.name, about.layers, about.width, about.vocab.n_tokens)
        check_fit(weights, shape, options.path.name)
        return eagle_drafter(EAGLE3, weights, options, about, self._options.scored, Place.of(options))

    def _read(self, options: ModelOptions, stage: str, flag: str, length: Callable[[int], int]) -> _Read:
        """Reads a file. ``length``: tokens that it was trained for → those that its context will have."""
        place = Place.of(options)
        for line in place.warnings(options, flag):
            self._wish.warn(line)

        def told(share: float) -> None:
            if not self._wish.progress(stage, share):
                raise Cancelled(f"loading {options.path.name} was stopped")

        header, shape = read_header_and_shape(options.path, options.rope)
        _check_layers(options, place, header, flag)
        trained = header.number("{arch}.context_length") or 2048
        n_ctx = length(trained)
        kernels = choose(place.device)
        if kernels.note and stage == "target":
            self._wish.warn(kernels.note)
        plan, packed = self._plan(options.path, shape, place, n_ctx, kernels.ops)
        model = TorchLlama.of_file(
            options.path, n_ctx=n_ctx, rope=options.rope, place=place, told=told, ops=kernels.ops, packed=packed
        )
        vocab = LoneVocab(self._native, options.path)
        return _Read(options.path, header, model, place, vocab, plan, packed, n_ctx, trained)

    def _plan(self, path: Path, shape: Shape, place: Place, n_ctx: int, ops: Ops) -> tuple[MemoryPlan, bool]:
        """What the model takes, and whether its matrices stay quantised for that.

        Raises:
            OutOfMemory: the machine, or the card, has not so much that is free.
        """
        (rows, outputs), each = self._rows, place.dtype.itemsize

        def planned(weights: int, *, packed: bool = False) -> MemoryPlan:
            filled = None if ops.waits else Filled(self._options.open_sequences, Card.of(place.device), packed)
            return memory_plan(shape, weights, n_ctx=n_ctx, rows=rows, outputs=outputs, each=each, filled=filled)

        plan = planned(each * count_weights(path))
        free = available_bytes() if place.device.type == "cpu" else free_bytes(place.device)
        if free is None or plan.total <= free:
            return plan, False
        # Numbers of 16 bits need no arithmetic before they are multiplied; which is quicker no card has told yet.
        if not ops.waits:
            plan = planned(packed_bytes(path, each), packed=True)
        if plan.total > free:
            raise OutOfMemory(
                f"{path.name} needs {plan.total / 1e9:.1f} GB in torch ({_parts(plan, 1e9, '.1f')}),"
                f" {free / 1e9:.1f} GB are free",
                hint="Use --backend llamacpp, or a smaller -c.",
            )
        return plan, True

    @property
    def _rows(self) -> tuple[int, int]:
        """Nodes of a pass, and those of them that may have logits."""
        options = self._options
        return max(min(options.n_batch, options.n_ubatch), options.outputs), options.outputs

    def _in_context(self, read: _Read) -> TorchTarget:
        rows, outputs = self._rows
        target = TorchTarget(
            read.model,
            read.vocab,
            n_ctx=read.n_ctx,
            n_ctx_train=read.n_ctx_train,
            sequences=self._options.open_sequences,
            max_rows=rows,
            max_outputs=outputs,
            place=read.place,
        )
        _check_first_pass(target, read)
        if target.note:
            self._wish.warn(f"{read.name}: {target.note}")
        return target


def _parts(plan: MemoryPlan, unit: float, form: str) -> str:
    """Those of ``plan``, in words."""
    return ", ".join(f"{name} {size / unit:{form}}" for name, size in plan.parts.items())


def _check_layers(options: ModelOptions, place: Place, header: Header, flag: str) -> None:
    """Raises `UsageError`: torch puts all layers onto the card, or none."""
    wanted, layers = options.gpu_layers or 0, header.number("{arch}.block_count") or 0
    if place.device.type != "cpu" and 0 < wanted < layers:
        raise UsageError(
            f"{flag} {wanted}: torch takes all {layers} layers of {options.path.name} onto the card, or none",
            hint=f"Use {flag} all or {flag} 0.",
        )


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


def _described(role: str, read: _Read, target: TorchTarget) -> ModelLoad:
    """How a model was loaded and where it lies."""
    device = "CPU" if read.place.device.type == "cpu" else "CUDA0"
    lies = Placement(device, read.model.shape.layers + 1, read.model.bytes, target.cache_bytes)
    settings = (
        ("runs on", "torch"),
        *read.place.settings,
        *(("matrices", "quantised as in the file, where kernels read them"),) * read.packed,
        ("n_ctx", str(target.caps.n_ctx)),
        ("rows of a pass", str(target.caps.max_rows)),
        ("planned memory", f"{read.plan.total / 1e6:.0f} MB ({_parts(read.plan, 1e6, '.0f')})"),
    )
    return ModelLoad(role, str(read.path), settings, (lies,))
