"""An engine's models in llama.cpp: part of the composition root."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import fields, replace

from localspec.backends import llamacpp
from localspec.backends.llamacpp import LlamaModel, LlamaOptions, LlamaTarget, Native
from localspec.backends.options import CPU_ONLY, ModelOptions
from localspec.drafter_making import Made, make_drafter
from localspec.drafters.files import MTP, NORMED_TYPES, check_is_target
from localspec.llamacpp_fit import fitted
from localspec.loading_parts import LoadedTarget, Wish
from localspec.torch_drafters import ForTarget
from localspec.types import ModelLoad


class InLlamacpp:
    """The backend llama.cpp.

    Raises:
        UsageError: options that this build or machine cannot honour.
        NetworkError: an RPC server does not answer.
    """

    name = "llamacpp"

    def __init__(self, wish: Wish) -> None:
        self._wish, self._options = wish, wish.options
        self._native = Native(self._options.log_file, self._options.rpc)
        self._extra_buffers = llamacpp.extra_buffers_are_safe(self._native, wish.warn)
        self._target: LlamaTarget | None = None
        self._check_offload()
        self._fitted = fitted(wish.options, self._native, predictors=wish.carries)
        self._options = self._fitted.options
        if self._fitted.plan is not None:
            wish.warn(self._fitted.plan.told)

    def target(self) -> LoadedTarget:
        options = self._options
        with ExitStack() as undo:  # whatever fails, nothing stays in memory
            model = self._model(options.target, "target")
            undo.callback(model.free)
            check_is_target(model.architecture, model.path.name)
            normed = not {*NORMED_TYPES}.isdisjoint(options.spec_types or ())
            target = LlamaTarget(model, replace(self._context(options.target), exact=options.exact, normed=normed))
            undo.pop_all()
        self._target = target
        caps = target.caps
        if options.n_ctx not in (0, caps.n_ctx):
            self._wish.warn(f"-c {options.n_ctx} became {caps.n_ctx}: llama.cpp's contexts are multiples of 256")
        about = ForTarget(model.path, target.vocab, model.n_embd, model.n_layer, caps.n_ctx, options.open_sequences)
        load = self._checked(target.describe("target"))
        return LoadedTarget(target, load, about, model.chat_template, target.exact)

    def drafter(self, kind: str) -> Made:
        target = self._target
        assert target is not None, "the target comes first"
        if kind == MTP and self._wish.carries:
            context = replace(self._context(self._options.target), n_ctx=target.caps.n_ctx)
            return make_drafter(MTP, target.model, context, target)
        options = self._options.draft
        assert options is not None
        with ExitStack() as undo:
            model = self._model(options, "draft")
            undo.callback(model.free)
            context = replace(self._context(options), n_ctx=min(target.caps.n_ctx, model.n_ctx_train))
            made = make_drafter(kind, model, context, target)
            undo.pop_all()
        return replace(made, load=self._checked(made.load), n_ctx_train=model.n_ctx_train)

    def _checked(self, load: ModelLoad) -> ModelLoad:
        """Says where a model takes more of a device than was planned for it."""
        for line in self._fitted.unplanned(load):
            self._wish.warn(line)
        return load

    def _model(self, model: ModelOptions, stage: str) -> LlamaModel:
        progress = self._wish.progress
        loaded = LlamaModel(self._native, self._context(model), lambda share: progress(stage, share))
        for line in loaded.warnings:
            self._wish.warn(line if stage == "target" else f"the {stage} model: {line}")
        return loaded

    def _context(self, model: ModelOptions) -> LlamaOptions:
        options = self._options
        own = {field.name: getattr(model, field.name) for field in fields(model)}
        own["repack"] = model.repack and self._extra_buffers
        return LlamaOptions(
            **own,
            predictors=self._wish.carries if model is options.target else self._wish.kind == MTP,
            n_ctx=options.n_ctx,
            n_batch=options.n_batch,
            n_ubatch=options.n_ubatch,
            flash_attn=options.flash_attn,
            sequences=options.open_sequences,
            branches=max(options.tree_nodes - 1, 1),
            outputs=options.outputs,
            swa_full=options.swa_full,
        )

    def _check_offload(self) -> None:
        """Hints that lead nowhere are one warning."""
        by_choice, by_machine = list[str](), list[str]()
        draft = self._options.draft
        if draft is not None and draft.path.is_dir():  # what runs on torch says so itself
            draft = None
        for flag, model in (("-ngl", self._options.target), ("-ngld", draft)):
            if model is not None and not self._native.devices.chosen(model.devices):
                ignored = by_choice if model.devices == (CPU_ONLY,) and self._native.can_offload else by_machine
                ignored += [name for name in _offload_flags(model, flag) if name not in ignored]
        for flags, why in (
            (by_machine, "there is no device to offload to, all layers run on the CPU"),
            (by_choice, "none as -dev or -devd keeps all layers on the CPU"),
        ):
            if flags:
                *others, last = flags
                self._wish.warn(f"{', '.join(others)}{' and ' if others else ''}{last} ignored: {why}")


def _offload_flags(model: ModelOptions, layers: str) -> list[str]:
    """The flags given for ``model`` that mean nothing where there is only a CPU."""
    given = {
        layers: bool(model.gpu_layers),
        "-sm": model.split_mode is not None,
        "-mg": model.main_gpu is not None,
        "-ts": bool(model.tensor_split),
    }
    return [flag for flag, is_given in given.items() if is_given]
