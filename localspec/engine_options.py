"""What an engine is built from."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from localspec.backends.options import ModelOptions
from localspec.drafters.options import Scored, Shape, TextOptions

#: Megabytes (MiB) of a device that ``--fit`` leaves free, and the shortest context that it sets, as in llama.cpp.
FIT_MARGIN, FIT_CONTEXT = 1024, 4096
#: Rows of a pass that have logits, where one sequence alone needs no more: each takes a vocabulary of floats.
_OUTPUTS = 128


@dataclass(frozen=True, slots=True)
class FitOptions:
    """Whether layers whose number is not given go to devices only as far as these have room; else all of them go.
    ``margins``: MiB of each device that stay free, or one number for all; ``n_ctx``: the shortest context that is set
    where none was given."""

    on: bool = True
    margins: tuple[int, ...] = (FIT_MARGIN,)
    n_ctx: int = FIT_CONTEXT


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Everything an engine is built from. ``spec_types=None``: suffixes, and the draft model if there is one.

    ``sequences`` answers run at a time, and ``kept`` conversations beside them wait for a prompt that begins alike.
    ``most_running`` and ``most_waiting`` requests: with more than that nothing is guessed (0: no such limit).
    ``tree_nodes`` and ``sequences`` size the sequence-id pool and the logits buffer; a request may draft fewer.
    ``measure`` times passes of some row counts when all is loaded (about a second), for requests that leave it to the
    controller what is guessed; without it the first answers teach. ``chat_template`` replaces the one in the file.
    ``by_text`` are settings of the drafters that need no model. ``rpc`` are servers (HOST:PORT) whose devices join this
    machine's. ``exact``: an answer is the same to the bit whatever guesses there are, and whatever was in the cache.
    ``scored``: which tokens a head with a full vocabulary scores. ``medusa_tree``: the shape of Medusa's trees, dynamic
    if it is ``None``. ``backend``: what runs the models, one of `localspec.backend_choice.BACKENDS`. ``fit``: what
    is done where devices are short of memory.
    """

    target: ModelOptions
    draft: ModelOptions | None = None
    spec_types: tuple[str, ...] | None = None
    n_ctx: int = 0
    n_batch: int = 2048
    n_ubatch: int = 512
    flash_attn: str = "auto"
    swa_full: bool = True
    sequences: int = 1
    kept: int = 0
    most_running: int = 0
    most_waiting: int = 0
    tree_nodes: int = 16
    measure: bool = True
    by_text: TextOptions = field(default_factory=TextOptions)
    chat_template: str | None = None
    log_file: Path | None = None
    rpc: tuple[str, ...] = ()
    exact: bool = False
    scored: Scored = field(default_factory=Scored)
    medusa_tree: Shape | None = None
    backend: str = "auto"
    fit: FitOptions = field(default_factory=FitOptions)

    @property
    def open_sequences(self) -> int:
        """Sequences that may be open at a time."""
        return self.sequences + self.kept

    @property
    def outputs(self) -> int:
        """Rows of a pass that may have logits."""
        return min(self.sequences * (self.tree_nodes + 1), max(_OUTPUTS, self.tree_nodes + 1))
