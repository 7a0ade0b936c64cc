"""A llama.cpp context behind the `Target` protocol."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import CARRIED, NORMED, Row, Rows, TargetCaps, Work
from localspec.backends.llamacpp.batch import Batch
from localspec.backends.llamacpp.branches import Branches, IdPool
from localspec.backends.llamacpp.context import LlamaContext
from localspec.backends.llamacpp.exact import ROWS, exact_options, fill_passes
from localspec.backends.llamacpp.model import LlamaModel
from localspec.backends.llamacpp.native import InterruptFlag
from localspec.backends.llamacpp.options import LlamaOptions
from localspec.backends.llamacpp.placement import placement
from localspec.backends.llamacpp.vocab import LlamaVocab
from localspec.errors import Cancelled, DecodeError, EngineError, ModelFault, OutOfMemory, UsageError
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import Exact, ModelLoad

Features = NDArray[np.float32]

NO_ROOM = 1  # llama_decode's code where the cache lacks cells; it is unchanged then
FEW = 8  # rows up to here are written one by one, more of a chain as arrays
#: Rows of a pass at most where each may have to give what comes out of the final norm, and with it its logits.
NORMED_ROWS = 128
NAN_HINT = "The file is damaged: compare its checksum or download it again."


class LlamaTarget:
    """One context over one model: several sequences in a unified cache. ``exact`` says how passes are filled up, where
    the options ask for it.

    Raises:
        UsageError: an option that this model or build cannot honour.
        OutOfMemory: the cache or the buffers do not fit.
        ModelFault: the first pass gives no finite scores.
    """

    def __init__(self, model: LlamaModel, options: LlamaOptions, interrupt: InterruptFlag | None = None) -> None:
        if options.normed:
            rows = max(NORMED_ROWS, options.outputs, options.sequences + options.branches + 1)
            options = replace(options, n_batch=rows, n_ubatch=min(options.n_ubatch, rows), outputs=rows)
        if options.exact:
            options = exact_options(model, options)
        self._filled_to = 1
        self._model = model
        self._options = options
        self._lib = model.native.lib
        self._flag = interrupt or InterruptFlag()
        self._window = 0 if options.swa_full else model.n_swa
        # A recurrent state belongs to one id, and a window cache frees no old cell that two ids hold.
        self._shares = not model.is_recurrent and not self._window
        branches = min(options.branches, 255 - options.sequences) if self._shares else 0
        n_ids = options.sequences + branches
        # One more: for waste, or for the rows that fill up a pass.
        self._spare = n_ids
        self._context = self._make_context(n_ids + 1 if self._shares else n_ids)
        self._ctx = self._context.handle
        self._memory = CacheMemory(self._lib, self._lib.llama_get_memory(self._ctx))
        waste = self._spare if self._shares and not options.exact else None
        self._pool = IdPool(n_ids, waste=waste, gapless=options.exact)
        self._seqs: dict[int, Branches] = {}
        self._next_seq = 0
        self._caps = TargetCaps(
            n_ctx=options.n_ctx - ROWS if options.exact else int(self._lib.llama_n_ctx(self._ctx)),
            n_ctx_train=model.n_ctx_train,
            n_vocab=model.vocab.n_tokens,
            max_rows=int(self._lib.llama_n_batch(self._ctx)),
            max_outputs=max(options.outputs, n_ids + 1),
            max_sequences=options.sequences,
            max_leaves=n_ids,
            trees=self._shares,
            rollback=0 if model.is_recurrent else None,
            mixes=not options.exact,
            feature_layers=frozenset(_layers(model)) | frozenset([NORMED] * options.normed),
        )
        self._layers: set[int] = set()  # whose inputs are kept
        self._normed = False  # whether passes give what comes out of the final norm
        self._batch = self._make_batch(n_ids)
        self._row_type = ctypes.c_float * self._caps.n_vocab
        self._row_address = model.native.row_address
        self._views: dict[int, Row] = {}
        try:
            self._check_first_pass()
            self.exact: Exact | None = fill_passes(self) if options.exact else None
        except BaseException:
            self.close_all()
            raise

    def _make_context(self, n_ids: int) -> LlamaContext:
        return LlamaContext(self._model, self._options, n_ids, self._flag)

    def _make_batch(self, n_ids: int) -> Batch:
        return Batch(self._lib, self._caps.max_rows, n_ids)

    def _check_first_pass(self) -> None:
        """A bit-rotted file loads and computes NaN with return code 0; better said now than token 0 for ever."""
        seq = self.open()
        token = self._model.vocab.bos or 0
        rows = self.forward([self._first_work(seq, token)])[0]
        row = rows.logits(0)
        finite = bool(np.isfinite(row).any()) and not bool(np.isnan(row).any())
        self.close(seq)
        if not finite:
            raise ModelFault(f"{self._model.path.name} computes no finite scores (NaN)", hint=NAN_HINT)
        if NORMED in rows.features and not rows.features[NORMED].any():
            raise UsageError(
                f"llama.cpp does not give what comes out of the final norm of the architecture"
                f" {self._model.architecture}",
                hint="Use a draft model (-md) or n-grams (--spec-type).",
            )

    def _first_work(self, seq: int, token: int) -> Work:
        return Work(seq, TokenTree.root(token), features=(NORMED,) if self._options.normed else ())

    @property
    def caps(self) -> TargetCaps:
        return self._caps

    @property
    def vocab(self) -> LlamaVocab:
        return self._model.vocab

    @property
    def model(self) -> LlamaModel:
        return self._model

    @property
    def handle(self) -> Any:
        """llama.cpp's context."""
        return self._ctx

    def describe(self, role: str) -> ModelLoad:
        """How it was loaded and where it lies."""
        return ModelLoad(
            role=role,
            path=str(self._model.path),
            settings=(*self._model.settings(), *self._context.settings()),
            placement=placement([*self._model.lines, *self._context.lines], self._model.buffer_types),
        )

    def open(self) -> int:
        if len(self._seqs) >= self._caps.max_sequences:
            raise EngineError(
                f"{len(self._seqs)} sequences are open already", hint="Load the engine with more sequences."
            )
        seq = self._next_seq
        self._next_seq += 1
        self._seqs[seq] = Branches(self._pool, self._memory)
        return seq

    def fork(self, seq: int, n: int) -> int:
        new = self.open()
        if self._shares:
            self._seqs[seq].share(n, self._seqs[new])
        return new

    def close(self, seq: int) -> None:
        self._seqs.pop(seq).close()
        self._tidy()

    def _tidy(self) -> None:
        """Frees what nothing keeps its order by: all waste behind the text, where there is one text at most."""
        texts = [seq.n_past for seq in self._seqs.values() if seq.n_past]
        if self._pool.waste is not None and len(texts) <= 1:
            self._memory.remove(self._pool.waste, max(texts, default=0), -1)

    def n_past(self, seq: int) -> int:
        return self._seqs[seq].n_past

    def forward(self, work: Sequence[Work]) -> list[Rows]:
        self._keep_layers({layer for item in work for layer in item.features})
        batch = self._batch
        batch.clear()
        rows: list[Rows] = []
        try:
            for item in work:
                rows.append(LlamaRows(self, item, self._add(item)))
            self._fill_up(work)
            code = self._lib.llama_decode(self._ctx, batch.native)
            if code == NO_ROOM and self._pool.waste is not None:
                # Better another order of cells, and its rounding, than an answer that ends early.
                self._memory.remove(self._pool.waste, -1, -1)
                code = self._lib.llama_decode(self._ctx, batch.native)
        except BaseException:
            self._recover(work)
            raise
        finally:
            if self._filled_to > 1:
                self._memory.remove(self._spare, -1, -1)
        if code:
            self._recover(work)
            raise self._failure(code)
        return rows

    def _keep_layers(self, layers: Set[int]) -> None:
        normed = NORMED in layers
        if normed != self._normed:
            self._lib.llama_set_embeddings(self._ctx, normed)
            self._normed = normed
        for layer in layers - self._layers - {NORMED}:
            hooks = self._model.native.hooks
            if layer == CARRIED:
                hooks.give_states(self._ctx, every_row=True)
            else:
                hooks.give_layer(self._ctx, layer)
            self._layers.add(layer)

    def fill_up_to(self, multiple: int) -> None:
        """From now on passes have a multiple of so many rows; the options must be for an exact target."""
        self._filled_to = multiple

    def _fill_up(self, work: Sequence[Work]) -> None:
        """Adds rows that nothing looks at. The last layers compute only rows with logits, so these have them too where
        others have: none or all of them, in all passes that are made."""
        wanted = self._normed or any(item.rows_from < len(item.tree) for item in work)
        for position in range(-self._batch.rows % self._filled_to):
            self._batch.add(0, position, (self._spare,), wanted)

    def _add(self, item: Work) -> dict[int, int]:
        """Puts the new nodes of ``item`` into the batch; node → row."""
        seq, tree, batch = self._seqs[item.seq], item.tree, self._batch
        if batch.rows + len(tree) - item.done > self._caps.max_rows:
            raise DecodeError(
                f"a pass of more than {self._caps.max_rows} rows was asked for",
                hint="Raise -b or draft fewer tokens.",
            )
        ids = seq.place(tree, item.done)
        # llama.cpp gives what comes out of the final norm of all rows, with their logits, or of none.
        rows_from = 0 if self._normed else item.rows_from
        if len(tree) - item.done > FEW and tree.is_chain:
            tokens = tree.tokens[item.done :]
            wanted_from = max(rows_from - item.done, 0)
            first = batch.add_chain(tokens, seq.n_past + item.done, ids[item.done][0], wanted_from)
            return {node: first + node - item.done for node in range(item.done, len(tree))}
        return {
            node: batch.add(tree.tokens[node], seq.n_past + tree.depths[node], ids[node], node >= rows_from)
            for node in seq.order
        }

    def _recover(self, work: Sequence[Work]) -> None:
        for item in work:
            seq = self._seqs[item.seq]
            if not seq.drop():
                self._empty(seq)

    def _failure(self, code: int) -> EngineError | OutOfMemory:
        if code == 2 or self._flag.is_set:
            return Cancelled("the pass was stopped")
        if code == NO_ROOM:
            return OutOfMemory(
                f"the context of {self._caps.n_ctx} cells is full",
                hint="Raise -c, or start a new conversation.",
            )
        if code == -2:
            return OutOfMemory("llama.cpp could not allocate its buffers", hint="Use a smaller -b, -ub or -c.")
        return DecodeError(f"llama_decode failed with code {code}", hint="See the log file (--log-file).")

    def commit(self, seq: int, path: Sequence[int]) -> None:
        branches = self._seqs[seq]
        if not branches.commit(path) and self._caps.rollback is None:
            raise EngineError("the cache did not take back rejected tokens", hint="Turn speculation off.")

    def truncate(self, seq: int, n: int) -> int:
        branches = self._seqs[seq]
        if n >= branches.n_past:
            return branches.n_past
        if n == 0 or not branches.truncate(n) or not self._window_is_whole(branches):
            self._empty(branches)
        self._tidy()
        return branches.n_past

    def _window_is_whole(self, branches: Branches) -> bool:
        """Whether every key that the next token attends to is still there. A window cache that has dropped old
        cells says "removed" and goes on with what it has."""
        first_needed = max(branches.n_past - self._window, 0)
        return not self._window or 0 <= self._memory.first_position(branches.main) <= first_needed

    def _empty(self, branches: Branches) -> None:
        branches.release_reserve()
        self._memory.remove(branches.main, -1, -1)
        branches.n_past = 0

    def interrupt(self, on: bool) -> None:
        self._flag.set(on)

    def set_threads(self, n: int) -> None:
        # Passes of more than one row run on the second number. What the user fixed stays fixed.
        one, many = self._options.threads, self._options.threads_batch
        self._lib.llama_set_n_threads(self._ctx, one or n, many or one or n)

    def row(self, index: int) -> Row:
        """Logits of row ``index`` of the last pass, a view."""
        # llama.cpp writes every pass into the same buffer, so a row's view can be kept by its address.
        address = self._row_address(self._ctx, index)
        view = self._views.get(address)
        if view is None:
            view = np.frombuffer(memoryview(self._row_type.from_address(address)), np.float32)
            self._views[address] = view
        return view

    def layer(self, layer: int, rows: Sequence[int]) -> Features:
        """What a layer read, the final norm gave, or is carried on, for ``rows`` of the last pass: ``[len(rows),
        n_embd]``, a view where they lie in a row."""
        hooks, size = self._model.native.hooks, (self._batch.rows, self._model.n_embd)
        if layer == NORMED:
            states = np.ctypeslib.as_array(self._lib.llama_get_embeddings(self._ctx), size)
        elif layer == CARRIED:
            states = hooks.states(self._ctx, *size)
        else:
            states = hooks.layer(self._ctx, layer, *size)
        return picked(states, rows)

    def cells(self, seq: int) -> int:
        """Bytes of state the cache holds for a sequence: linear in its cells, for checks in tests."""
        return int(self._lib.llama_state_seq_get_size(self._ctx, self._seqs[seq].main))

    def close_all(self) -> None:
        if self._ctx:
            self._lib.llama_free(self._ctx)
            self._ctx = None
            self._free_model()

    def _free_model(self) -> None:
        self._model.free()


class LlamaRows:
    """Rows of one work item, read on demand."""

    def __init__(self, target: LlamaTarget, work: Work, rows: Mapping[int, int]) -> None:
        self._target = target
        self._rows = rows
        self._from = work.rows_from
        self._layers = work.features
        self._read: dict[int, Row] = {}

    def logits(self, node: int) -> Row:
        row = self._read.get(node)
        if row is None:
            if node < self._from:
                raise KeyError(f"no logits were asked for at node {node}")
            row = self._read[node] = self._target.row(self._rows[node])
        return row

    def draw(self, node: int, state: SamplerState) -> int:
        return state.draw(self.logits(node))

    @property
    def features(self) -> Mapping[int, Features]:
        rows = [self._rows[node] for node in sorted(self._rows)]
        return {layer: self._target.layer(layer, rows) for layer in self._layers}


def _layers(model: LlamaModel) -> Iterator[int]:
    """Those that hidden states can be asked of."""
    if model.gives_layers:
        yield from range(model.n_layer)
    if model.gives_states:
        yield CARRIED


def picked(states: Features, rows: Sequence[int]) -> Features:
    """``rows`` of ``states``; of those that lie in a row, a view."""
    if len(rows) == 1 or (rows and list(rows) == list(range(rows[0], rows[0] + len(rows)))):
        return states[rows[0] : rows[0] + len(rows)]
    return states[list(rows)]


class CacheMemory:
    """llama.cpp's cache as `Branches` sees it."""

    def __init__(self, lib: Any, handle: Any) -> None:
        self._remove = lib.llama_memory_seq_rm
        self._copy = lib.llama_memory_seq_cp
        self._first = lib.llama_memory_seq_pos_min
        self._handle = handle

    def remove(self, seq_id: int, start: int, end: int) -> bool:
        return bool(self._remove(self._handle, seq_id, start, end))

    def copy(self, source: int, target: int, start: int, end: int) -> None:
        self._copy(self._handle, source, target, start, end)

    def first_position(self, seq_id: int) -> int:
        return int(self._first(self._handle, seq_id))
