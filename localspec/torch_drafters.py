"""Drafters in torch from a folder of the hub: part of the composition root, where `localspec.loading` needs one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.backends.options import ModelOptions
from localspec.drafter_making import Made
from localspec.drafters.files import EAGLE, EAGLE3, HYDRA, IN_TORCH, MEDUSA, PARD
from localspec.drafters.head import HeadModel
from localspec.drafters.medusa import Hydra, Medusa
from localspec.drafters.options import Scored, Shape
from localspec.drafters.pard import ParallelModel
from localspec.errors import ModelLoadError, UsageError
from localspec.torch_options import own_flags
from localspec.types import ModelLoad
from localspec.vocab import Pairing, Vocab

if TYPE_CHECKING:
    from localspec.backends.torch.checkpoint import Checkpoint
    from localspec.backends.torch.eagle_weights import EagleWeights
    from localspec.backends.torch.place import Place
    from localspec.drafters.base import Drafter


@dataclass(frozen=True, slots=True)
class ForTarget:
    """What a drafter has to know of its target: ``path`` is its file, where heads borrow what they lack."""

    path: Path
    vocab: Vocab
    width: int
    layers: int
    n_ctx: int
    sequences: int


def torch_drafter(
    kind: str, options: ModelOptions, target: ForTarget, scored: Scored, shape: Shape = "dynamic"
) -> Made:
    """The drafter of ``kind`` that lies in the folder of ``options``; ``shape`` is for Medusa's trees.

    Raises:
        UsageError: torch is not installed, or it was made for another target.
        PairingError: it has another vocabulary.
        ModelLoadError: the folder is none of a head, lacks something, or holds what it should not.
    """
    folder = options.path
    if kind not in IN_TORCH:
        raise ModelLoadError(
            f"the draft model: {folder.name} is a folder, not a GGUF file, and no head that is known",
            hint="Use a GGUF file of it.",
        )
    require_torch(kind)
    _check_options(options)
    from localspec.backends.torch.checkpoint import read_checkpoint
    from localspec.backends.torch.place import Gpu, Place

    place = Place.of(options, Gpu.seen())
    if kind == MEDUSA:
        medusa = _medusa(folder, target, place, shape)
        return made_in_torch(medusa, options, place, ("tree", shape))
    checkpoint = read_checkpoint(folder)
    if kind in (EAGLE, EAGLE3):
        return _eagle(kind, checkpoint, options, target, scored, place)
    return made_in_torch(_MAKERS[kind](checkpoint, folder, target, place), options, place)


def made_in_torch(drafter: Drafter, options: ModelOptions, place: Place, *settings: tuple[str, str]) -> Made:
    """A drafter that lies at ``place``, with what is to be said of it."""
    load = ModelLoad("draft", str(options.path), (("runs on", "torch"), *place.settings, *settings))
    return Made(drafter, load, place.warnings(options, "-ngld"))


def _check_options(options: ModelOptions) -> None:
    """Raises `UsageError`: what llama.cpp can do with a draft model, and torch cannot."""
    for flag, is_given in own_flags(options, "d"):
        if is_given:
            raise UsageError(f"{flag} is for GGUF files: {options.path.name} runs on torch", hint="Leave it out.")


def require_torch(what: str) -> None:
    """Raises `UsageError` where torch is not installed."""
    if find_spec("torch") is None:
        raise UsageError(f"{what} runs on torch, which is not installed", hint="pip install 'localspec[torch]'")


def _medusa(folder: Path, target: ForTarget, place: Place, shape: Shape) -> Drafter:
    from localspec.backends.torch.checkpoint import read_checkpoint
    from localspec.backends.torch.medusa import TorchMedusa, is_of_medusa
    from localspec.backends.torch.tensors import UNEMBEDDING, gguf_tensor

    n, checkpoint = target.vocab.n_tokens, read_checkpoint(folder, is_of_medusa)
    heads = TorchMedusa(checkpoint, target.width, n, partial(gguf_tensor, target.path, UNEMBEDDING), place)
    return Medusa(heads, Pairing(n, frozenset()), shape)


def _hydra(checkpoint: Checkpoint, folder: Path, target: ForTarget, place: Place) -> Drafter:
    from localspec.backends.torch.medusa import TorchHydra
    from localspec.backends.torch.tensors import EMBEDDING, UNEMBEDDING, gguf_tensor

    n = target.vocab.n_tokens
    fetch = partial(gguf_tensor, target.path)
    heads = TorchHydra(checkpoint, target.width, n, partial(fetch, EMBEDDING), partial(fetch, UNEMBEDDING), place)
    return Hydra(heads, Pairing(n, frozenset()))


def _pard(checkpoint: Checkpoint, folder: Path, target: ForTarget, place: Place) -> Drafter:
    from localspec.backends.torch.hub_model import HubLlama, paired
    from localspec.backends.torch.target import TorchTarget

    model = HubLlama(checkpoint, place)
    rows, mask = len(model.embedding), checkpoint.config["pard_token"]
    if not isinstance(mask, int) or not 0 <= mask < rows:
        raise ModelLoadError(f"its mask token is {mask!r}; it has {rows} tokens", hint="Download it again.")
    pairing = paired(folder, rows, target.vocab)
    n_ctx = min(target.n_ctx, model.n_ctx_train)
    draft = TorchTarget(model, target.vocab, n_ctx=n_ctx, sequences=target.sequences)
    return ParallelModel(draft, pairing, mask)


def _eagle(
    kind: str, checkpoint: Checkpoint, options: ModelOptions, target: ForTarget, scored: Scored, place: Place
) -> Made:
    from localspec.backends.torch.eagle_weights import TargetShape, read_eagle

    name = options.path.name
    shape = TargetShape(target.path.name, target.layers, target.width, target.vocab.n_tokens)
    weights = read_eagle(checkpoint, shape, name)
    if weights.is_third != (kind == EAGLE3):
        raise ModelLoadError(
            f"{name} is an {'EAGLE-3' if weights.is_third else 'EAGLE-1'} head, and its config.json says otherwise",
            hint="Check its config.json.",
        )
    return eagle_drafter(kind, weights, options, target, scored, place)


def eagle_drafter(
    kind: str, weights: EagleWeights, options: ModelOptions, target: ForTarget, scored: Scored, place: Place
) -> Made:
    """The drafter that a head with these weights is.

    Raises:
        UsageError: it scores a choice of tokens already, and ``scored`` asks for another.
        ModelLoadError: the target's file lacks what a head borrows.
    """
    from localspec.backends.torch.ends import ends_of
    from localspec.backends.torch.head import TorchHead
    from localspec.backends.torch.kernels.dispatch import choose
    from localspec.backends.torch.token_map import frequent

    name, vocab = options.path.name, target.vocab
    keep = frequent(vocab, scored.n, scored.path) if scored.flag else None
    ends = ends_of(weights, target.path, vocab.n_tokens, keep, name)
    head = TorchHead(
        weights,
        ends,
        vocab,
        n_ctx=target.n_ctx,
        sequences=target.sequences,
        place=place,
        ops=choose(place.device).ops,
    )
    drafter = HeadModel(head, Pairing(vocab.n_tokens, frozenset()), kind)
    layers = "final norm" if kind == EAGLE else ",".join(map(str, head.layers))
    n_scored = vocab.n_tokens if ends.ids is None else len(ends.ids)
    made = made_in_torch(drafter, options, place, ("layers", layers), ("scored tokens", str(n_scored)))
    note = head.try_out()
    return replace(made, warnings=(*made.warnings, f"{name}: {note}")) if note else made


_MAKERS: Mapping[str, Callable[[Checkpoint, Path, ForTarget, Place], Drafter]] = {HYDRA: _hydra, PARD: _pard}
