"""From options to an engine: the composition root of the library.

Front ends and the engine process both build engines here, and only here do backends and drafters meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.backends.options import CPU_ONLY, ModelOptions, RopeOptions
from localspec.backends.predicting import check_predictors
from localspec.control import AutoController, Controller, CostCurve, LoadGuard, ThreadTuner, core_count
from localspec.control.measure import measure
from localspec.drafter_making import Made, make_drafter
from localspec.drafters.files import DRAFT_MODEL, MTP, NORMED_TYPES, PARD
from localspec.drafters.registry import MAKERS, Sources
from localspec.engine_options import EngineOptions
from localspec.errors import Cancelled, LocalspecError, PairingError, UsageError
from localspec.hub.header import read_header
from localspec.hub.shelf import parts
from localspec.spec_types import check_head_options, check_texts, draft_type, spec_types
from localspec.types import EngineInfo, ModelLoad

if TYPE_CHECKING:
    from localspec.backends.llamacpp import LlamaModel, LlamaOptions, LlamaTarget, Native
    from localspec.chat import ChatTemplate
    from localspec.drafters.base import Drafter
    from localspec.engine import Engine

__all__ = ["EngineOptions", "ModelOptions", "Progress", "RopeOptions", "load"]

#: Called with what is being loaded and the share that is done, 0…1; returning False gives up.
Progress = Callable[[str, float], bool]
#: Rows of a pass that have logits, where one sequence alone needs no more: each takes a vocabulary of floats.
_OUTPUTS = 128


def load(
    target: str | Path | EngineOptions, *, draft: str | Path | None = None, progress: Progress | None = None
) -> Engine:
    """Loads an engine from a path, or from full options.

    Raises:
        UsageError: options that contradict each other, that this build or machine cannot honour, or that name a corpus
            or a lookup cache that cannot be used.
        NetworkError: an RPC server does not answer.
        ModelLoadError, ModelFault, OutOfMemory: a file does not load, computes nonsense or does not fit.
        PairingError: target and draft model spell no token alike.
        Cancelled: ``progress`` returned False.
    """
    if not isinstance(target, EngineOptions):
        pair = ModelOptions(Path(draft)) if draft is not None else None
        target = EngineOptions(ModelOptions(Path(target)), draft=pair)
    options = replace(target, spec_types=spec_types(target))
    return _Loader(options, progress or (lambda stage, share: True)).load()


class _Loader:
    def __init__(self, options: EngineOptions, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self._warnings: list[str] = []
        self._loads: list[ModelLoad] = []
        self._kind = None if options.draft is None else draft_type(options.draft.path)
        if self._kind == DRAFT_MODEL and PARD in (options.spec_types or ()):
            self._kind = PARD
        #: Whether layers for multi-token prediction are the target's own, not those of a file beside it.
        self._carries = MTP in (options.spec_types or ()) and self._kind != MTP

    def load(self) -> Engine:
        from localspec.backends.llamacpp import LlamaTarget, Native, extra_buffers_are_safe
        from localspec.engine import Engine

        options = self._options
        check_texts(options)
        check_head_options(options)
        native = Native(options.log_file, options.rpc)
        self._extra_buffers = extra_buffers_are_safe(native, self._warn)
        self._check_offload(native)
        holder = options.target if self._carries else options.draft
        if holder is not None and MTP in (options.spec_types or ()):
            check_predictors([read_header(part) for part in parts(holder.path)])
        with ExitStack() as undo:  # whatever fails, nothing stays in memory
            model = self._model(native, options.target, "target")
            undo.callback(model.free)
            normed = not {*NORMED_TYPES}.isdisjoint(options.spec_types or ())
            target = LlamaTarget(model, replace(self._context(options.target), exact=options.exact, normed=normed))
            undo.callback(target.close_all)
            template = self._template(model)
            self._loads.append(target.describe("target"))
            drafters = self._drafters(native, target)
            undo.pop_all()
        if target.exact is not None:
            self._warn(f"--exact: {', '.join(target.exact.parts)}")
        if options.n_ctx not in (0, target.caps.n_ctx):
            self._warn(f"-c {options.n_ctx} became {target.caps.n_ctx}: llama.cpp's contexts are multiples of 256")
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
            drafters=options.spec_types or (),
            backend="llamacpp",
            n_ctx=target.caps.n_ctx,
            n_ctx_train=target.caps.n_ctx_train,
            n_vocab=target.caps.n_vocab,
            has_template=template is not None,
            chat_template=None if template is None else template.source,
            warnings=tuple(self._warnings),
            loads=tuple(self._loads),
            exact=target.exact,
        )
        return Engine(
            target,
            drafters,
            template=template,
            info=info,
            controller=self._controller(target, drafters),
            load=LoadGuard(options.most_running, options.most_waiting),
            most_running=options.sequences,
        )

    def _controller(self, target: LlamaTarget, drafters: Sequence[Drafter]) -> Controller:
        """Measures what rows cost, where that is going to be asked."""
        curve = CostCurve()
        if drafters and self._options.measure and target.caps.rollback is None:
            self._progress("target", 1.0)
            curve = measure(target, self._options.tree_nodes + 1, threads=self._threads_of_a_pass())
        fixed = self._options.target.threads is not None or self._options.exact
        tuner = None if fixed else ThreadTuner(core_count())
        return AutoController(curve, tuner)

    def _threads_of_a_pass(self) -> int:
        """0 where other devices than the CPU take part: a pass that waits for them burns no CPU time."""
        placed = [placement.device for load in self._loads[:1] for placement in load.placement]
        here = bool(placed) and all(device == "CPU" for device in placed)
        return (self._options.target.threads or core_count()) if here else 0

    def _warn(self, text: str) -> None:
        self._warnings.append(text)

    def _check_offload(self, native: Native) -> None:
        """Refuses what is not there before anything is loaded; hints that lead nowhere are one warning."""
        if self._options.draft is not None and self._options.draft.lora:
            raise UsageError("adapters are for the target alone", hint="Merge the adapter into the draft model's file.")
        by_choice, by_machine = list[str](), list[str]()
        # What runs on torch says so itself.
        draft = None if self._draft_is_folder else self._options.draft
        for flag, model in (("-ngl", self._options.target), ("-ngld", draft)):
            if model is not None and not native.devices.chosen(model.devices):
                ignored = by_choice if model.devices == (CPU_ONLY,) and native.can_offload else by_machine
                ignored += [name for name in _offload_flags(model, flag) if name not in ignored]
        for flags, why in (
            (by_machine, "there is no device to offload to, all layers run on the CPU"),
            (by_choice, "none as -dev or -devd keeps all layers on the CPU"),
        ):
            if flags:
                *others, last = flags
                self._warn(f"{', '.join(others)}{' and ' if others else ''}{last} ignored: {why}")

    def _context(self, model: ModelOptions) -> LlamaOptions:
        from localspec.backends.llamacpp import LlamaOptions

        options = self._options
        own = {field.name: getattr(model, field.name) for field in fields(model)}
        own["repack"] = model.repack and self._extra_buffers
        return LlamaOptions(
            **own,
            predictors=self._carries if model is options.target else self._kind == MTP,
            n_ctx=options.n_ctx,
            n_batch=options.n_batch,
            n_ubatch=options.n_ubatch,
            flash_attn=options.flash_attn,
            sequences=self._sequences,
            branches=max(options.tree_nodes - 1, 1),
            outputs=min(options.sequences * (options.tree_nodes + 1), max(_OUTPUTS, options.tree_nodes + 1)),
            swa_full=options.swa_full,
        )

    def _model(self, native: Native, model: ModelOptions, stage: str) -> LlamaModel:
        from localspec.backends.llamacpp import LlamaModel

        loaded = LlamaModel(native, self._context(model), lambda share: self._progress(stage, share))
        for line in loaded.warnings:
            self._warn(line if stage == "target" else f"the {stage} model: {line}")
        return loaded

    def _drafters(self, native: Native, target: LlamaTarget) -> list[Drafter]:
        drafters: list[Drafter] = []
        sources = Sources(self._options.by_text, target.vocab)
        for name in self._options.spec_types or ():
            if name == MTP and self._carries:
                context = replace(self._context(self._options.target), n_ctx=target.caps.n_ctx)
                drafters.append(self._kept(make_drafter(MTP, target.model, context, target)))
            elif name == self._kind and self._draft_is_folder:
                drafters.append(self._torch_drafter(name, target))
            elif name == self._kind:
                drafters.append(self._draft_model(native, target))
            else:
                drafters += MAKERS[name](sources)
        return drafters

    def _torch_drafter(self, kind: str, target: LlamaTarget) -> Drafter:
        from localspec.torch_drafters import ForTarget, torch_drafter

        options, model, caps = self._options.draft, target.model, target.caps
        assert options is not None
        about = ForTarget(model.path, target.vocab, model.n_embd, model.n_layer, caps.n_ctx, self._sequences)
        shape = self._options.medusa_tree or "dynamic"
        return self._kept(torch_drafter(kind, options, about, self._options.scored, shape))

    @property
    def _sequences(self) -> int:
        return self._options.sequences + self._options.kept

    @property
    def _draft_is_folder(self) -> bool:
        return self._options.draft is not None and self._options.draft.path.is_dir()

    def _draft_model(self, native: Native, target: LlamaTarget) -> Drafter:
        options, kind = self._options.draft, self._kind
        assert options is not None
        assert kind is not None
        try:
            with ExitStack() as undo:
                model = self._model(native, options, "draft")
                undo.callback(model.free)
                context = replace(self._context(options), n_ctx=min(target.caps.n_ctx, model.n_ctx_train))
                drafter = self._kept(make_drafter(kind, model, context, target))
                undo.pop_all()
        except (PairingError, Cancelled):
            raise
        except LocalspecError as error:
            raise type(error)(f"the draft model: {error.message}", hint=error.hint) from error
        if model.n_ctx_train < target.caps.n_ctx:
            self._warn(
                f"the draft model was trained for {model.n_ctx_train} tokens: beyond them this chat goes on without it"
            )
        return drafter

    def _kept(self, made: Made) -> Drafter:
        self._loads.append(made.load)
        self._warnings += made.warnings
        return made.drafter

    def _template(self, model: LlamaModel) -> ChatTemplate | None:
        from localspec.chat import ChatTemplate

        if self._options.chat_template is not None:
            return ChatTemplate(self._options.chat_template, origin="--chat-template")
        source = model.chat_template
        return ChatTemplate(source, origin=model.path.name) if source else None


def _offload_flags(model: ModelOptions, layers: str) -> list[str]:
    """The flags given for ``model`` that mean nothing where there is only a CPU."""
    given = {
        layers: bool(model.gpu_layers),
        "-sm": model.split_mode is not None,
        "-mg": model.main_gpu is not None,
        "-ts": bool(model.tensor_split),
    }
    return [flag for flag, is_given in given.items() if is_given]
