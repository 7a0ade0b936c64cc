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
    from localspec.backends.base import Target
    from localspec.backends.llamacpp import LlamaModel, LlamaOptions, LlamaTarget
    from localspec.drafters.base import Drafter
    from localspec.drafters.translation import Translation
    from localspec.vocab import Pairing, Vocab


@dataclass(frozen=True, slots=True)
class Made:
    """A drafter, how it was loaded, what the user should know of it, and the length it was trained for, where that is
    told."""

    drafter: Drafter
    load: ModelLoad
    warnings: tuple[str, ...] = ()
    n_ctx_train: int | None = None


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

    name = model.path.name
    if model.is_recurrent:
        raise UsageError(
            f"{name} has recurrent layers, which cannot take guesses back",
            hint="Use a draft model with attention only.",
        )
    pairing = small_pairing(target.vocab, model.vocab, name)
    draft = LlamaTarget(model, context)
    return small_model(draft, pairing, draft.describe("draft"), name)


def small_pairing(target: Vocab, draft: Vocab, name: str) -> Pairing | Translation:
    """How tokens of the target become those of the draft model called ``name``, and back.

    Raises:
        PairingError: they spell no token alike.
    """
    from localspec.drafters.translation import Translation
    from localspec.vocab import pair

    return pair(target, draft) or Translation(target, draft, draft_name=name)


def small_model(draft: Target, pairing: Pairing | Translation, loaded: ModelLoad, name: str) -> Made:
    """The drafter that a small model is."""
    from localspec.drafters.draft_model import DraftModel
    from localspec.drafters.translated import TranslatedModel
    from localspec.drafters.translation import Translation

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

    pairing = same_vocabulary(target.vocab, model.vocab, model.path.name)
    mask = mask_of(model.metadata("tokenizer.ggml.mask_token_id"), model.path.name)
    draft = LlamaTarget(model, context)
    return Made(ParallelModel(draft, pairing, mask), draft.describe("draft"))


def mask_of(found: str | int | None, name: str) -> int:
    """The mask token of a parallel model, from what its file says.

    Raises:
        UsageError: it says nothing.
    """
    if found is None:
        raise UsageError(
            f"{name} names no mask token (tokenizer.ggml.mask_token_id): it was not made to guess in parallel",
            hint="Use it as a draft model (--spec-type draft-simple), or the folder it was converted from.",
        )
    return int(found)


def _eagle(model: LlamaModel, context: LlamaOptions, target: LlamaTarget) -> Made:
    from localspec.backends.llamacpp import EagleHead
    from localspec.drafters.head import HeadModel

    pairing = same_vocabulary(target.vocab, model.vocab, model.path.name)
    head = EagleHead(model, context, target)
    return Made(HeadModel(head, pairing, EAGLE3), _with(head.describe("draft"), "layers", _listed(head.layers)))


def _block(kind: str, model: LlamaModel, context: LlamaOptions, target: LlamaTarget) -> Made:
    from localspec.backends.llamacpp import LlamaBlock
    from localspec.drafters.block import BlockModel

    pairing = same_vocabulary(target.vocab, model.vocab, model.path.name)
    block = LlamaBlock(model, context, target)
    return Made(BlockModel(block, pairing, kind), _with(block.describe("draft"), "layers", _listed(block.layers)))


def _predictors(model: LlamaModel, context: LlamaOptions, target: LlamaTarget) -> Made:
    from localspec.backends.llamacpp import as_one, predictors
    from localspec.drafters.head import HeadModel

    pairing = same_vocabulary(target.vocab, model.vocab, model.path.name)
    heads = predictors(model, context, target)
    loaded = _with(heads[0].describe("predictors"), "predictors", str(len(heads)))
    return Made(HeadModel(as_one(heads, context), pairing, MTP), loaded)


def same_vocabulary(target: Vocab, draft: Vocab, name: str) -> Pairing:
    """Of the target and the head called ``name``.

    Raises:
        PairingError: theirs differ.
    """
    from localspec.vocab import pair

    pairing = pair(target, draft)
    if pairing is None:
        raise PairingError(
            f"{name} has another vocabulary than the target: a head guesses in its target's own",
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
