"""From a loaded model to the drafter that it is: draft models, heads, and the layers a target brings along."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from localspec.drafters.files import DFLASH, DRAFT_MODEL, DSPARK, EAGLE3, MTP, PARD
from localspec.errors import PairingError, UsageError
from localspec.types import ModelLoad

if TYPE_CHECKING:
    from localspec.backends.llamacpp import LlamaModel, LlamaOptions, LlamaTarget
    from localspec.drafters.base import Drafter
    from localspec.vocab import Pairing


@dataclass(frozen=True, slots=True)
class Made:
    """A drafter, how it was loaded, and what the user should know of it."""

    drafter: Drafter
    load: ModelLoad
    warnings: tuple[str, ...] = ()


def make_drafter(kind: str, model: LlamaModel, context: LlamaOptions, target: LlamaTarget) -> Made:
    """The drafter for ``target`` that ``model``, of this ``--spec-type``, is. The model may be the target's own.

    Raises:
        PairingError: target and model spell no token alike, or the head is for another vocabulary.
        UsageError: it cannot guess for this target, or not in this build.
        ModelFault, OutOfMemory: it computes nonsense, or does not fit.
    """
    return _MAKERS[kind](model, context, target)


def _small_model(model: LlamaModel, context: LlamaOptions, target: LlamaTarget) -> Made:
    from localspec.backends.llamacpp import LlamaTarget
    from localspec.drafters.draft_model import DraftModel
    from localspec.drafters.translated import TranslatedModel
    from localspec.drafters.translation import Translation
    from localspec.vocab import pair

    name = model.path.name
    if model.is_recurrent:
        raise UsageError(
            f"{name} has recurrent layers, which cannot take guesses back",
            hint="Use a draft model with attention only.",
        )
    pairing = pair(target.vocab, model.vocab) or Translation(target.vocab, model.vocab, draft_name=name)
    draft = LlamaTarget(model, context)
    loaded = draft.describe("draft")
    if not isinstance(pairing, Translation):
        return Made(DraftModel(draft, pairing), loaded)
    return Made(
        TranslatedModel(draft, pairing),
        _with(loaded, "vocabulary", f"translated, {len(pairing)} tokens are the target's"),
        (f"{name} has another vocabulary than the target: its guesses are translated",),
    )


def _parallel(model: LlamaModel, context: LlamaOptions, target: LlamaTarget) -> Made:
    from localspec.backends.llamacpp import LlamaTarget
    from localspec.drafters.pard import ParallelModel

    pairing, mask = _same_vocabulary(model, target), model.metadata("tokenizer.ggml.mask_token_id")
    if mask is None:
        raise UsageError(
            f"{model.path.name} names no mask token (tokenizer.ggml.mask_token_id): it was not made to guess in"
            " parallel",
            hint="Use it as a draft model (--spec-type draft-simple), or the folder it was converted from.",
        )
    draft = LlamaTarget(model, context)
    return Made(ParallelModel(draft, pairing, int(mask)), draft.describe("draft"))


def _eagle(model: LlamaModel, context: LlamaOptions, target: LlamaTarget) -> Made:
    from localspec.backends.llamacpp import EagleHead
    from localspec.drafters.head import HeadModel

    pairing = _same_vocabulary(model, target)
    head = EagleHead(model, context, target)
    return Made(HeadModel(head, pairing, EAGLE3), _with(head.describe("draft"), "layers", _listed(head.layers)))


def _block(kind: str, model: LlamaModel, context: LlamaOptions, target: LlamaTarget) -> Made:
    from localspec.backends.llamacpp import LlamaBlock
    from localspec.drafters.block import BlockModel

    pairing = _same_vocabulary(model, target)
    block = LlamaBlock(model, context, target)
    return Made(BlockModel(block, pairing, kind), _with(block.describe("draft"), "layers", _listed(block.layers)))


def _predictors(model: LlamaModel, context: LlamaOptions, target: LlamaTarget) -> Made:
    from localspec.backends.llamacpp import as_one, predictors
    from localspec.drafters.head import HeadModel

    pairing = _same_vocabulary(model, target)
    heads = predictors(model, context, target)
    loaded = _with(heads[0].describe("predictors"), "predictors", str(len(heads)))
    return Made(HeadModel(as_one(heads, context), pairing, MTP), loaded)


def _same_vocabulary(model: LlamaModel, target: LlamaTarget) -> Pairing:
    from localspec.vocab import pair

    pairing = pair(target.vocab, model.vocab)
    if pairing is None:
        raise PairingError(
            f"{model.path.name} has another vocabulary than the target: a head guesses in its target's own",
            hint="Use the head that was trained for this target, or leave -md out.",
        )
    return pairing


def _with(load: ModelLoad, name: str, text: str) -> ModelLoad:
    return replace(load, settings=(*load.settings, (name, text)))


def _listed(layers: tuple[int, ...]) -> str:
    return ",".join(map(str, layers))


_MAKERS: Mapping[str, Callable[[LlamaModel, LlamaOptions, LlamaTarget], Made]] = {
    DRAFT_MODEL: _small_model,
    EAGLE3: _eagle,
    DFLASH: partial(_block, DFLASH),
    DSPARK: partial(_block, DSPARK),
    MTP: _predictors,
    PARD: _parallel,
}
