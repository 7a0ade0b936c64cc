"""From options to an engine: the composition root of the library.

Front ends and the engine process both build engines here, and only here do backends and drafters meet.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.control import FixedController, ThreadTuner, core_count
from localspec.drafters.ngram import NgramOptions
from localspec.errors import Cancelled, LocalspecError, PairingError, UsageError
from localspec.types import EngineInfo

if TYPE_CHECKING:
    from localspec.backends.llamacpp import LlamaModel, LlamaOptions, LlamaTarget, Native
    from localspec.chat import ChatTemplate
    from localspec.drafters.base import Drafter
    from localspec.engine import Engine

#: Called with what is being loaded and the share that is done, 0…1; returning False gives up.
Progress = Callable[[str, float], bool]

DRAFT_MODEL = "draft-simple"
SPEC_TYPES = ("none", DRAFT_MODEL, "ngram-simple")


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """One model and its context; ``None`` leaves the choice to us or to llama.cpp."""

    path: Path
    gpu_layers: int | None = None
    threads: int | None = None
    threads_batch: int | None = None
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Everything an engine is built from. ``spec_types=None``: the draft model if there is one, n-grams otherwise.

    ``tree_nodes`` and ``sequences`` size the sequence-id pool and the logits buffer; a request may draft fewer.
    ``chat_template`` replaces the one in the file.
    """

    target: ModelOptions
    draft: ModelOptions | None = None
    spec_types: tuple[str, ...] | None = None
    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    flash_attn: str = "auto"
    swa_full: bool = True
    sequences: int = 1
    tree_nodes: int = 16
    ngram: NgramOptions = field(default_factory=NgramOptions)
    chat_template: str | None = None
    log_file: Path | None = None


def load(
    target: str | Path | EngineOptions, *, draft: str | Path | None = None, progress: Progress | None = None
) -> Engine:
    """Loads an engine from a path, or from full options.

    Raises:
        UsageError: options that contradict each other or that this build cannot honour.
        ModelLoadError, ModelFault, OutOfMemory: a file does not load, computes nonsense or does not fit.
        PairingError: target and draft model do not share a vocabulary.
        Cancelled: ``progress`` returned False.
    """
    if not isinstance(target, EngineOptions):
        pair = ModelOptions(Path(draft)) if draft is not None else None
        target = EngineOptions(ModelOptions(Path(target)), draft=pair)
    options = replace(target, spec_types=spec_types(target))
    return _Loader(options, progress or (lambda stage, share: True)).load()


def spec_types(options: EngineOptions) -> tuple[str, ...]:
    """The drafters to load.

    Raises:
        UsageError: an unknown type, or one that lacks its model.
    """
    if options.spec_types is None:
        return (DRAFT_MODEL,) if options.draft is not None else ("ngram-simple",)
    for name in options.spec_types:
        if name not in SPEC_TYPES:
            raise UsageError(f"--spec-type {name} is not known", hint=f"Known types: {', '.join(SPEC_TYPES)}.")
    types = tuple(dict.fromkeys(name for name in options.spec_types if name != "none"))
    if DRAFT_MODEL in types and options.draft is None:
        raise UsageError(f"--spec-type {DRAFT_MODEL} needs a draft model", hint="Give one with -md.")
    if options.draft is not None and DRAFT_MODEL not in types:
        raise UsageError(
            f"a draft model is given, but --spec-type {','.join(options.spec_types)} does not use it",
            hint=f"Add {DRAFT_MODEL} to --spec-type, or leave -md out.",
        )
    return types


class _Loader:
    def __init__(self, options: EngineOptions, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self._warnings: list[str] = []

    def load(self) -> Engine:
        from localspec.backends.llamacpp import LlamaTarget, Native, extra_buffers_are_safe
        from localspec.engine import Engine

        options = self._options
        native = Native(options.log_file)
        self._extra_buffers = extra_buffers_are_safe(native, self._warn)
        self._check_offload(native)
        with ExitStack() as undo:  # whatever fails, nothing stays in memory
            model = self._model(native, options.target, "target")
            undo.callback(model.free)
            target = LlamaTarget(model, self._context(options.target))
            undo.callback(target.close_all)
            template = self._template(model)
            drafters = self._drafters(native, target)
            undo.pop_all()
        if target.caps.n_ctx > target.caps.n_ctx_train:
            self._warn(
                f"the context of {target.caps.n_ctx} tokens is longer than the {target.caps.n_ctx_train} the model was"
                " trained for: beyond them its text gets worse"
            )
        if target.caps.rollback is not None and drafters:
            self._warn("speculation is off: this target cannot take back what it has read (recurrent layers)")
        elif not target.caps.trees and drafters:
            self._warn("drafts are chains: a sliding-window cache that is not kept whole cannot hold branches")
        info = EngineInfo(
            target=str(options.target.path),
            draft=str(options.draft.path) if options.draft is not None else None,
            drafters=tuple(drafter.name for drafter in drafters),
            backend="llamacpp",
            n_ctx=target.caps.n_ctx,
            n_ctx_train=target.caps.n_ctx_train,
            n_vocab=target.caps.n_vocab,
            has_template=template is not None,
            warnings=tuple(self._warnings),
        )
        tuner = ThreadTuner(core_count()) if options.target.threads is None else None
        return Engine(target, drafters, template=template, info=info, controller=FixedController(tuner))

    def _warn(self, text: str) -> None:
        self._warnings.append(text)

    def _check_offload(self, native: Native) -> None:
        wanted = [
            flag
            for flag, model in (("-ngl", self._options.target), ("-ngld", self._options.draft))
            if model is not None and model.gpu_layers
        ]
        if wanted and not native.can_offload:
            self._warn(
                f"{' and '.join(wanted)} ignored: this build of llama.cpp has no GPU support, all layers run on the CPU"
            )

    def _context(self, model: ModelOptions) -> LlamaOptions:
        from localspec.backends.llamacpp import LlamaOptions

        options = self._options
        return LlamaOptions(
            path=model.path,
            n_ctx=options.n_ctx,
            n_batch=options.n_batch,
            n_ubatch=options.n_ubatch,
            gpu_layers=model.gpu_layers,
            threads=model.threads,
            threads_batch=model.threads_batch,
            flash_attn=options.flash_attn,
            cache_type_k=model.cache_type_k,
            cache_type_v=model.cache_type_v,
            sequences=options.sequences,
            branches=max(options.tree_nodes - 1, 1),
            outputs=options.sequences * (options.tree_nodes + 1),
            swa_full=options.swa_full,
            extra_buffers=self._extra_buffers,
        )

    def _model(self, native: Native, model: ModelOptions, stage: str) -> LlamaModel:
        from localspec.backends.llamacpp import LlamaModel

        return LlamaModel(native, self._context(model), lambda share: self._progress(stage, share))

    def _drafters(self, native: Native, target: LlamaTarget) -> list[Drafter]:
        makers = {"ngram-simple": self._ngram, DRAFT_MODEL: self._draft_model}
        return [makers[name](native, target) for name in self._options.spec_types or ()]

    def _ngram(self, native: Native, target: LlamaTarget) -> Drafter:
        from localspec.drafters.ngram import NgramSimple

        return NgramSimple(self._options.ngram)

    def _draft_model(self, native: Native, target: LlamaTarget) -> Drafter:
        from localspec.backends.llamacpp import LlamaTarget
        from localspec.drafters.draft_model import DraftModel
        from localspec.vocab import pair

        options = self._options.draft
        assert options is not None
        try:
            with ExitStack() as undo:
                model = self._model(native, options, "draft")
                undo.callback(model.free)
                if model.is_recurrent:
                    raise UsageError(
                        f"{options.path.name} has recurrent layers, which cannot take guesses back",
                        hint="Use a draft model with attention only.",
                    )
                pairing = pair(target.vocab, model.vocab, draft_name=options.path.name)
                context = replace(self._context(options), n_ctx=min(target.caps.n_ctx, model.n_ctx_train))
                draft = LlamaTarget(model, context)
                undo.pop_all()
        except (PairingError, Cancelled):
            raise
        except LocalspecError as error:
            raise type(error)(f"the draft model: {error.message}", hint=error.hint) from error
        if model.n_ctx_train < target.caps.n_ctx:
            self._warn(
                f"the draft model was trained for {model.n_ctx_train} tokens: beyond them this chat goes on without it"
            )
        return DraftModel(draft, pairing)

    def _template(self, model: LlamaModel) -> ChatTemplate | None:
        from localspec.chat import ChatTemplate

        if self._options.chat_template is not None:
            return ChatTemplate(self._options.chat_template, origin="--chat-template")
        source = model.chat_template
        return ChatTemplate(source, origin=model.path.name) if source else None
