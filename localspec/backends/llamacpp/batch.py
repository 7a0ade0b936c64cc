"""A ``llama_batch`` over numpy arrays, made once and refilled for every pass."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np


class Batch:
    """Rows of one pass: token, position, sequence ids, and whether logits are wanted.

    Args:
        lib: llama.cpp's C API.
        max_rows: rows at most.
        max_ids: sequence ids of one row at most.
        width: of the vector that stands beside each token; 0: none.
        has_tokens: false where rows are vectors alone.

    ``vectors`` is ``[max_rows, width]``, to be filled by the caller.
    """

    def __init__(self, lib: Any, max_rows: int, max_ids: int, *, width: int = 0, has_tokens: bool = True) -> None:
        self.vectors = np.zeros((max_rows, width), np.float32)
        self._tokens = np.zeros(max_rows, np.int32)
        self._positions = np.zeros(max_rows, np.int32)
        self._id_counts = np.zeros(max_rows, np.int32)
        self._ids = np.zeros((max_rows, max_ids), np.int32)
        self._wanted = np.zeros(max_rows, np.int8)
        # llama_batch wants a pointer to each row's ids.
        rows = self._ids.ctypes.data + np.arange(max_rows, dtype=np.uint64) * self._ids.strides[0]
        self._id_rows = rows.astype(np.uint64)
        batch = lib.llama_batch()
        kinds = [("token", self._tokens)] * has_tokens + [("embd", self.vectors)] * bool(width)
        for name, array in (
            *kinds,
            ("pos", self._positions),
            ("n_seq_id", self._id_counts),
            ("seq_id", self._id_rows),
            ("logits", self._wanted),
        ):
            setattr(batch, name, ctypes.cast(array.ctypes.data, dict(batch._fields_)[name]))
        self.max_rows = max_rows
        self._max_ids = max_ids
        self._batch = batch
        # Single rows are written through memoryviews: a fraction of the cost of a numpy item.
        arrays = (self._tokens, self._positions, self._id_counts, self._ids.reshape(-1), self._wanted)
        self._one = tuple(memoryview(array.data) for array in arrays)
        self.clear()

    def clear(self) -> None:
        self.rows = 0

    def add(self, token: int, position: int, ids: Collection[int], wanted: bool) -> int:
        """Adds one row; returns its index."""
        row = self.rows
        tokens, positions, id_counts, id_cells, wants = self._one
        tokens[row] = token
        positions[row] = position
        id_counts[row] = len(ids)
        for at, seq_id in enumerate(ids, row * self._max_ids):
            id_cells[at] = seq_id
        wants[row] = wanted
        self.rows = row + 1
        return row

    def add_chain(self, tokens: Sequence[int], position: int, seq_id: int, wanted_from: int) -> int:
        """Adds a run of tokens of one sequence id; returns the index of its first row."""
        row, n = self.rows, len(tokens)
        rows = slice(row, row + n)
        self._tokens[rows] = tokens
        self._positions[rows] = np.arange(position, position + n)
        self._id_counts[rows] = 1
        self._ids[rows, 0] = seq_id
        self._wanted[rows] = 0
        self._wanted[row + wanted_from : row + n] = 1
        self.rows = row + n
        return row

    @property
    def native(self) -> Any:
        """The ``llama_batch`` struct, for a call."""
        self._batch.n_tokens = self.rows
        return self._batch
