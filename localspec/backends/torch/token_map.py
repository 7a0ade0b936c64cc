"""Which tokens are worth scoring: the most frequent ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from localspec.errors import UsageError
from localspec.vocab import Vocab

_FLAG = "--spec-token-map"


def frequent(vocab: Vocab, n: int | None, path: Path | None) -> NDArray[np.int64]:
    """The ``n`` most frequent tokens (``None``: all that the file names), and those that end a text: ids, ascending.

    ``path`` is a list of ids, the most frequent first (JSON, or a list or tensor as torch saves it: SGLang's files of
    FR-Spec), or a text, whose tokens are counted. Without one, or beyond those in it, the tokenizer's order counts:
    vocabularies are made from the frequent pieces to the rare ones.

    Raises:
        UsageError: the file cannot be read, or names tokens that are not there.
    """
    ranked = [] if path is None else _ranked(vocab, path)
    if n is not None:
        known = set(ranked)
        ranked = [*ranked, *(token for token in range(vocab.n_tokens) if token not in known)][:n]
    return np.array(sorted({*ranked, *vocab.end_tokens}), np.int64)


def _ranked(vocab: Vocab, path: Path) -> list[int]:
    try:
        found = _read(vocab, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}", hint=f"Check {_FLAG}.") from None
    whole = isinstance(found, list) and all(type(one) is int for one in found)
    if not whole or not found:
        raise UsageError(f"{path} is no list of token ids", hint=f"Check {_FLAG}.")
    if beyond := [one for one in found if not 0 <= one < vocab.n_tokens]:
        raise UsageError(f"{path} names token {beyond[0]}, the target has {vocab.n_tokens}", hint=f"Check {_FLAG}.")
    return list(dict.fromkeys(found))


def _read(vocab: Vocab, path: Path) -> Any:
    if path.suffix == ".json":
        try:
            return json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            return None
    if path.suffix in (".pt", ".bin"):
        return _saved_by_torch(path)
    tokens = vocab.tokenize(path.read_text(encoding="utf-8", errors="replace"))
    counts = np.bincount(np.array(tokens, np.int64), minlength=1)
    order = np.argsort(-counts, kind="stable")
    return [int(token) for token in order if counts[token]]


def _saved_by_torch(path: Path) -> Any:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception:  # a damaged file fails with almost anything
        return None
    return found.flatten().tolist() if isinstance(found, torch.Tensor) else found
