"""Rows that are the same to the bit whatever is computed beside them: the backend's part of ``--exact``.

On a CPU, ggml computes each row of a pass by itself, but *how* depends on how many there are. One row takes another way
through matrix products than several, and its keys are shared out among the threads; some weights are multiplied by
fours from 4 rows on, and by tiles from 8 on, after another rounding of what they are multiplied with; from 64 on
attention goes through the keys in tiles. Some of that shows in a few rows of a hundred, so trying does not find it. So
every pass is filled up and computed `ROWS` rows at a time, prompts too: the kernels are the same by construction. What
is left to try is whether it matters which of the rows one is (`fill_passes`). The other half is the order in which
attention adds up: the cells of a text lie in its order, without gaps (`Branches.commit`).

Where more decides than that, the mode is refused: on devices other than the CPU (they choose kernels by the length of
the context), with experts (how many rows an expert gets depends on the others), and for caches that are not kept whole.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import Work
from localspec.backends.llamacpp.model import LlamaModel
from localspec.backends.llamacpp.options import LlamaOptions
from localspec.errors import UsageError
from localspec.spec.tree import TokenTree
from localspec.types import Exact

if TYPE_CHECKING:
    from localspec.backends.llamacpp.target import LlamaTarget

#: Rows computed at a time. More make a step without guesses dearer, fewer a prompt and a step with guesses.
ROWS = 8
_SHIFTS = (1, 2, 4, 7)
_ROUNDS = 5


def exact_options(model: LlamaModel, options: LlamaOptions) -> LlamaOptions:
    """The options with room for filled passes.

    Raises:
        UsageError: something about this model or these options keeps rows from being exact; it is named.
    """
    name = model.path.name
    if model.is_recurrent:
        raise _refused(f"{name} has recurrent layers, which read a text in one piece")
    if model.n_swa and not options.swa_full:
        raise _refused("a cache that is not kept whole loses its order", "Leave --no-swa-full out.")
    if model.has_experts:
        raise _refused(f"{name} has experts: how their rows are computed depends on all others")
    if model.devices:
        raise _refused(f"{model.devices[0].label} computes by the length of the context", "Use the CPU: -dev none.")
    if options.sequences > 1:
        raise _refused("several conversations share a cache", "Load the engine with one sequence.")
    outputs = -(-options.outputs // ROWS) * ROWS
    return replace(
        options,
        n_ctx=(options.n_ctx or model.n_ctx_train) + ROWS,
        n_batch=max(options.n_batch // ROWS * ROWS, outputs),
        n_ubatch=ROWS,
        outputs=outputs,
    )


def _refused(why: str, hint: str = "Leave --exact out.") -> UsageError:
    return UsageError(f"--exact is not possible: {why}", hint=hint)


def fill_passes(target: LlamaTarget) -> Exact:
    """Makes all passes of ``target`` filled ones, after a few of them have shown that a row is the same wherever it
    stands, and tells what they cost.

    Raises:
        UsageError: it is not the same.
    """
    text = [number * 7919 % target.caps.n_vocab for number in range(1, 2 * ROWS + 1)]
    seq = target.open()
    try:
        times = {1: list[float](), ROWS: list[float]()}
        for _ in range(_ROUNDS):
            for rows in times:
                target.fill_up_to(rows)
                times[rows].append(_seconds(target, seq, text[0]))
        whole = _rows(target, seq, text)
        for shift in _SHIFTS:
            target.forward([Work.prompt(seq, text[:shift])])
            target.commit(seq, range(shift))
            shifted = _rows(target, seq, text[shift : shift + ROWS])
            target.truncate(seq, 0)
            if not np.array_equal(shifted, whole[shift : shift + ROWS]):
                raise _refused("this build computes the rows of a pass in several ways")
    finally:
        target.close(seq)
    return Exact(ROWS, min(times[ROWS]), min(times[1]))


def _seconds(target: LlamaTarget, seq: int, token: int) -> float:
    """A step without guesses, after another one: the graph is there."""
    for _ in range(2):
        began = time.perf_counter()
        target.forward([Work(seq, TokenTree.root(token))])
        took = time.perf_counter() - began
        target.commit(seq, ())
    return took


def _rows(target: LlamaTarget, seq: int, tokens: list[int]) -> NDArray[np.float32]:
    rows = target.forward([Work(seq, TokenTree.chain(tokens))])[0]
    found = np.array([rows.logits(node) for node in range(len(tokens))])
    target.commit(seq, ())
    return found
