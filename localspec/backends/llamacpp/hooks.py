"""Hidden states out of llama.cpp and into a head: functions that it exports, but not in its C API.

Their names are C++'s, mangled. They are looked up when a head is loaded; a build that lacks one is told so by name.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.errors import UsageError

#: Architectures whose graphs hand out what their layers read. Asked of another, llama.cpp ends the process.
HOOKED = frozenset(
    {
        "deepseek4",
        "gemma4",
        "gpt-oss",
        "hunyuan_vl",
        "llama",
        "mimo2",
        "minimax-m2",
        "muse-glimmer",
        "nanbeige",
        "qwen3",
        "qwen3moe",
    }
)

_KEPT_VIEWS = 256

_CONTEXT = _MODEL = _FLOATS = ctypes.c_void_p
#: Our name → llama.cpp's, what it takes, what it gives.
_FUNCTIONS: dict[str, tuple[str, list[Any], Any]] = {
    "give_layer": (
        "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
        [_CONTEXT, ctypes.c_uint32, ctypes.c_bool],
        None,
    ),
    "layer": ("_Z30llama_get_embeddings_layer_inpP13llama_contextj", [_CONTEXT, ctypes.c_uint32], _FLOATS),
    "give_states": (
        "_Z26llama_set_embeddings_nextnP13llama_contextbb",
        [_CONTEXT, ctypes.c_bool, ctypes.c_bool],
        None,
    ),
    "states": ("_Z26llama_get_embeddings_nextnP13llama_context", [_CONTEXT], _FLOATS),
    "pick_predictor": ("_Z28llama_set_nextn_layer_offsetP13llama_contexti", [_CONTEXT, ctypes.c_int32], None),
    "layer_ids": ("_Z28llama_model_target_layer_idsPK11llama_model", [_MODEL], ctypes.POINTER(ctypes.c_int32)),
    "n_layer_ids": ("_Z30llama_model_target_layer_ids_nPK11llama_model", [_MODEL], ctypes.c_uint32),
    "candidates": ("_Z33llama_model_dflash_selector_top_kPK11llama_model", [_MODEL], ctypes.c_int32),
}


class Hooks:
    """llama.cpp's functions for hidden states. Arrays are views into its buffers, gone with the next pass.

    Args:
        library: the loaded shared library, as `ctypes` has it.

    Raises:
        UsageError: the library lacks one.
    """

    def __init__(self, library: Any) -> None:
        self._call = {}
        for name, (symbol, takes, gives) in _FUNCTIONS.items():
            try:
                function = library[symbol]  # a function object of our own
            except AttributeError:
                raise UsageError(
                    f"this build of llama.cpp cannot drive heads: it lacks {symbol}",
                    hint="Use the llama-cpp-python that localspec asks for, or leave -md out.",
                ) from None
            function.argtypes, function.restype = takes, gives
            self._call[name] = function
        self._views: dict[tuple[int, int, int], NDArray[np.float32]] = {}

    def give_layer(self, context: Any, layer: int) -> None:
        """From the next pass on, ``context`` keeps what its layer ``layer`` reads."""
        self._call["give_layer"](context, layer, True)

    def layer(self, context: Any, layer: int, rows: int, width: int) -> NDArray[np.float32]:
        """What the layer read in the last pass: ``[rows, width]``, in the order of the batch."""
        return self._view(self._call["layer"](context, layer), rows, width)

    def give_states(self, context: Any, *, every_row: bool = False) -> None:
        """From the next pass on, ``context`` keeps what its rows hand on: those with logits, or every one. Asked of an
        architecture whose graph hands nothing on, it changes nothing, and `states` is not to be read."""
        self._call["give_states"](context, True, not every_row)

    def states(self, context: Any, rows: int, width: int) -> NDArray[np.float32]:
        """What rows of the last pass hand on: ``[rows, width]``; of an encoder's, all."""
        return self._view(self._call["states"](context), rows, width)

    def pick_predictor(self, context: Any, number: int) -> None:
        """From the next pass on, ``context`` runs that layer for multi-token prediction, the first being 0."""
        self._call["pick_predictor"](context, number)

    def candidates(self, model: Any) -> int:
        """Tokens of each place among which a selector picks, in the block drafter ``model``; 0: it has none."""
        return int(self._call["candidates"](model))

    def layers_read(self, model: Any) -> tuple[int, ...]:
        """The target's layers whose inputs the head ``model`` reads."""
        return tuple(self._call["layer_ids"](model)[: self._call["n_layer_ids"](model)])

    def _view(self, address: int, rows: int, width: int) -> NDArray[np.float32]:
        # Plain decoding asks for the same ones in every step: llama.cpp writes its passes into the same buffers.
        view = self._views.get((address, rows, width))
        if view is None:
            if len(self._views) >= _KEPT_VIEWS:
                self._views.clear()
            floats = (ctypes.c_float * (rows * width)).from_address(address)
            view = np.frombuffer(memoryview(floats), np.float32).reshape(rows, width)
            self._views[address, rows, width] = view
        return view
