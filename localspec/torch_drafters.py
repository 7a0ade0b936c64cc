"""Drafters in torch from a folder of the hub: part of the composition root, where `localspec.loading` needs one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.drafters.files import HYDRA, MEDUSA, PARD
from localspec.drafters.medusa import Hydra, Medusa
from localspec.drafters.pard import ParallelModel
from localspec.errors import ModelLoadError, UsageError
from localspec.vocab import Pairing, Vocab

if TYPE_CHECKING:
    from localspec.backends.torch.checkpoint import Checkpoint
    from localspec.drafters.base import Drafter


@dataclass(frozen=True, slots=True)
class ForTarget:
    """What a drafter has to know of its target: ``path`` is its file, where heads borrow what they lack."""

    path: Path
    vocab: Vocab
    width: int
    n_ctx: int
    sequences: int


def torch_drafter(kind: str, folder: Path, target: ForTarget) -> Drafter:
    """The drafter of ``kind`` that lies in ``folder``.

    Raises:
        UsageError: torch is not installed, or it was made for another target.
        PairingError: it has another vocabulary.
        ModelLoadError: the folder lacks something, or holds what it should not.
    """
    require_torch(kind)
    from localspec.backends.torch.checkpoint import read_checkpoint

    return _MAKERS[kind](read_checkpoint(folder), folder, target)


def require_torch(kind: str) -> None:
    """Raises `UsageError` where torch is not installed."""
    if find_spec("torch") is None:
        raise UsageError(f"{kind} runs on torch, which is not installed", hint="pip install 'localspec[torch]'")


def _medusa(checkpoint: Checkpoint, folder: Path, target: ForTarget) -> Drafter:
    from localspec.backends.torch.medusa import TorchMedusa
    from localspec.backends.torch.tensors import UNEMBEDDING, gguf_tensor

    n = target.vocab.n_tokens
    heads = TorchMedusa(checkpoint, target.width, n, partial(gguf_tensor, target.path, UNEMBEDDING))
    return Medusa(heads, Pairing(n, frozenset()))


def _hydra(checkpoint: Checkpoint, folder: Path, target: ForTarget) -> Drafter:
    from localspec.backends.torch.medusa import TorchHydra
    from localspec.backends.torch.tensors import EMBEDDING, UNEMBEDDING, gguf_tensor

    n = target.vocab.n_tokens
    fetch = partial(gguf_tensor, target.path)
    heads = TorchHydra(checkpoint, target.width, n, partial(fetch, EMBEDDING), partial(fetch, UNEMBEDDING))
    return Hydra(heads, Pairing(n, frozenset()))


def _pard(checkpoint: Checkpoint, folder: Path, target: ForTarget) -> Drafter:
    from localspec.backends.torch.hub_model import HubLlama, paired
    from localspec.backends.torch.target import TorchTarget

    model = HubLlama(checkpoint)
    rows, mask = len(model.embedding), checkpoint.config["pard_token"]
    if not isinstance(mask, int) or not 0 <= mask < rows:
        raise ModelLoadError(f"its mask token is {mask!r}; it has {rows} tokens", hint="Download it again.")
    pairing = paired(folder, rows, target.vocab)
    n_ctx = min(target.n_ctx, model.n_ctx_train) * target.sequences
    return ParallelModel(TorchTarget(model, target.vocab, n_ctx=n_ctx, sequences=target.sequences), pairing, mask)


_MAKERS: Mapping[str, Callable[[Checkpoint, Path, ForTarget], Drafter]] = {MEDUSA: _medusa, HYDRA: _hydra, PARD: _pard}
