"""The tokenizer of a model that runs elsewhere."""

from __future__ import annotations

import weakref
from pathlib import Path

from localspec.backends.llamacpp.model import load_vocabulary
from localspec.backends.llamacpp.native import Native
from localspec.backends.llamacpp.vocab import LlamaVocab


class LoneVocab(LlamaVocab):
    """The vocabulary of a file whose weights are not loaded.

    Raises:
        ModelLoadError, OutOfMemory: the file cannot be read.
    """

    def __init__(self, native: Native, path: Path) -> None:
        model = load_vocabulary(native, path)
        super().__init__(native.lib, native.lib.llama_model_get_vocab(model))
        # When the process ends all memory goes anyway, and the library may be gone before.
        weakref.finalize(self, native.lib.llama_model_free, model).atexit = False
