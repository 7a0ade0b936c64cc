"""What llama.cpp makes of a model file, through the plainest of its calls."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import llama_cpp as ll
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Loaded:
    """``logits``: ``[n_vocab]``, after the tokens that were decoded."""

    logits: NDArray[np.float32]
    text_300: str
    n_ctx_train: int
    add_bos: bool
    recurrent: bool
    template: str | None


def decode(path: Path, tokens: tuple[int, ...] = (504, 3575, 282, 4649, 314)) -> Loaded | None:
    """Loads the model and decodes ``tokens``; ``None`` if it does not load.

    The default is "The capital of France is" in SmolLM2's vocabulary.
    """
    ll.llama_backend_init()
    params = ll.llama_model_default_params()
    params.use_extra_bufts = False
    # llama.cpp would take all devices it knows: those of RPC servers that other tests had, too.
    none = (ctypes.c_void_p * 1)()
    params.devices = ctypes.addressof(none)
    model = ll.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        return None
    vocab = ll.llama_model_get_vocab(model)
    options = ll.llama_context_default_params()
    options.n_ctx = options.n_batch = 64
    options.n_threads = options.n_threads_batch = 1
    context = ll.llama_init_from_model(model, options)
    batch = ll.llama_batch_init(len(tokens), 0, 1)
    try:
        batch.n_tokens = len(tokens)
        for row, token in enumerate(tokens):
            batch.token[row], batch.pos[row], batch.n_seq_id[row] = token, row, 1
            batch.seq_id[row][0] = 0
            batch.logits[row] = row == len(tokens) - 1
        assert ll.llama_decode(context, batch) == 0
        shape = (ll.llama_vocab_n_tokens(vocab),)
        template = ll.llama_model_chat_template(model, None)
        return Loaded(
            logits=np.ctypeslib.as_array(ll.llama_get_logits_ith(context, -1), shape).copy(),
            text_300=ll.llama_vocab_get_text(vocab, 300).decode(),
            n_ctx_train=ll.llama_model_n_ctx_train(model),
            add_bos=ll.llama_vocab_get_add_bos(vocab),
            recurrent=ll.llama_model_is_recurrent(model),
            template=template.decode() if template else None,
        )
    finally:
        ll.llama_batch_free(batch)
        ll.llama_free(context)
        ll.llama_model_free(model)
