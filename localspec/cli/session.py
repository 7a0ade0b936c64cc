"""An engine for a command: started in a process of its own, with what it has to say on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from localspec.cli.diagnostics import note
from localspec.host import HostedEngine
from localspec.options import Values, engine_options


@contextmanager
def engine_for(values: Values) -> Iterator[HostedEngine]:
    """Loads the models; progress on stderr if that is a terminal, warnings always.

    Raises:
        LocalspecError: as `localspec.load`.
    """
    shows = sys.stderr is not None and sys.stderr.isatty()
    with HostedEngine(engine_options(values), on_progress=_show_progress if shows else None) as engine:
        if shows:
            _clear_line()
        for warning in engine.info.warnings:
            note(warning)
        yield engine


def _show_progress(stage: str, share: float) -> bool:
    sys.stderr.write(f"\rloading the {stage} model {share:4.0%} ")
    sys.stderr.flush()
    return True


def _clear_line() -> None:
    sys.stderr.write("\r" + " " * 40 + "\r")
    sys.stderr.flush()
