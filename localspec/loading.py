"""From options to an engine: the composition root of the library.

Front ends and the engine process both build engines here, and only here do backends and drafters meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.backend_choice import TORCH, choose_backend
from localspec.backends.options import ModelOptions, RopeOptions
from localspec.backends.predicting import check_predictors
from localspec.control import AutoController, Controller, CostCurve, LoadGuard, ThreadTuner, core_count
from localspec.control.measure import measure
from localspec.drafter_making import Made
from localspec.drafters.files import DRAFT_MODEL, MTP, PARD
from localspec.drafters.registry import MAKERS, Sources
from localspec.engine_options import EngineOptions
from localspec.errors import Cancelled, LocalspecError, PairingError, UsageError
from localspec.hub.header import read_header
from localspec.hub.shelf import parts
from localspec.loading_parts import LoadedTarget, Progress, Side, Wish
from localspec.spec_types import check_head_options, check_texts, draft_type, spec_types
from localspec.torch_drafters import require_torch
from localspec.types import EngineInfo, ModelLoad

if TYPE_CHECKING:
    from localspec.backends.base import Target
    from localspec.chat import ChatTemplate
    from localspec.drafters.base import Drafter
    from localspec.engine import Engine

__all__ = ["EngineOptions", "ModelOptions", "Progress", "RopeOptions", "load"]


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
        from localspec.engine import Engine

        options = self._options
        check_texts(options)
        check_head_options(options)
        if options.draft is not None and options.draft.lora:
            raise UsageError("adapters are for the target alone", hint="Merge the adapter into the draft model's file.")
        side = self._side()
        with ExitStack() as undo:  # whatever fails, nothing stays in memory
            loaded = side.target()
            target = loaded.target
            undo.callback(target.close_all)
            self._loads.append(loaded.load)
            template = self._template(loaded)
            drafters = self._drafters(side, loaded)
            undo.pop_all()
        self._warn_of(loaded, drafters)
        info = EngineInfo(
            target=str(options.target.path),
            draft=str(options.draft.path) if options.draft is not None else None,
            drafters=options.spec_types or (),
            backend=side.name,
            n_ctx=target.caps.n_ctx,
            n_ctx_train=target.caps.n_ctx_train,
            n_vocab=target.caps.n_vocab,
            has_template=template is not None,
            chat_template=None if template is None else template.source,
            warnings=tuple(self._warnings),
            loads=tuple(self._loads),
            exact=loaded.exact,
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

    def _side(self) -> Side:
        """The backend that the options ask for."""
        options, carries = self._options, self._carries
        holder = options.target if carries else options.draft
        if holder is not None and MTP in (options.spec_types or ()):
            check_predictors([read_header(part) for part in parts(holder.path)])
        wish = Wish(options, self._kind, carries, self._progress, self._warnings.append)
        choice = choose_backend(options)
        if choice.reason is not None:
            self._warnings.append(choice.reason)
        if choice.backend == TORCH:
            require_torch("--backend torch")
            from localspec.torch_loading import InTorch

            return InTorch(wish)
        from localspec.llamacpp_loading import InLlamacpp

        return InLlamacpp(wish)

    def _warn_of(self, loaded: LoadedTarget, drafters: Sequence[Drafter]) -> None:
        caps = loaded.target.caps
        if loaded.exact is not None:
            self._warnings.append(f"--exact: {', '.join(loaded.exact.parts)}")
        if caps.n_ctx > caps.n_ctx_train:
            self._warnings.append(
                f"the context of {caps.n_ctx} tokens is longer than the {caps.n_ctx_train} the model was trained for:"
                " beyond them its text gets worse"
            )
        if caps.rollback is not None and drafters:
            self._warnings.append(
                "speculation is off: this target cannot take back what it has read (recurrent layers)"
            )
        elif not caps.trees and drafters:
            self._warnings.append(
                "drafts are chains: a sliding-window cache that is not kept whole cannot hold branches"
            )

    def _controller(self, target: Target, drafters: Sequence[Drafter]) -> Controller:
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

    def _drafters(self, side: Side, loaded: LoadedTarget) -> list[Drafter]:
        drafters: list[Drafter] = []
        sources = Sources(self._options.by_text, loaded.target.vocab)
        for name in self._options.spec_types or ():
            if name == MTP and self._carries:
                drafters.append(self._kept(side.drafter(name)))
            elif name == self._kind:
                drafters.append(self._of_file(side, name, loaded))
            else:
                drafters += MAKERS[name](sources)
        return drafters

    def _of_file(self, side: Side, kind: str, loaded: LoadedTarget) -> Drafter:
        options, n_ctx = self._options.draft, loaded.target.caps.n_ctx
        assert options is not None
        if options.path.is_dir():
            from localspec.torch_drafters import torch_drafter

            shape = self._options.medusa_tree or "dynamic"
            return self._kept(torch_drafter(kind, options, loaded.about, self._options.scored, shape))
        try:
            made = side.drafter(kind)
        except (PairingError, Cancelled):
            raise
        except LocalspecError as error:
            raise type(error)(f"the draft model: {error.message}", hint=error.hint) from error
        drafter = self._kept(made)
        if made.n_ctx_train is not None and made.n_ctx_train < n_ctx:
            self._warnings.append(
                f"the draft model was trained for {made.n_ctx_train} tokens: beyond them this chat goes on without it"
            )
        return drafter

    def _kept(self, made: Made) -> Drafter:
        self._loads.append(made.load)
        self._warnings += made.warnings
        return made.drafter

    def _template(self, loaded: LoadedTarget) -> ChatTemplate | None:
        from localspec.chat import ChatTemplate

        if self._options.chat_template is not None:
            return ChatTemplate(self._options.chat_template, origin="--chat-template")
        source = loaded.template
        return ChatTemplate(source, origin=self._options.target.path.name) if source else None
