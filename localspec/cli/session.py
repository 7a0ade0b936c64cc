"""An engine for a command: started in a process of its own, with what it has to say on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from localspec.cli.diagnostics import note, say
from localspec.host import HostedEngine
from localspec.options import Values, engine_options


@contextmanager
def engine_for(values: Values) -> Iterator[HostedEngine]:
    """Loads the models; progress on stderr if that is a terminal, warnings always.

    Raises:
        LocalspecError: as `localspec.load`.
    """
    shows = sys.stderr is not None and sys.stderr.isatty()
    with HostedEngine(engine_options(values), on_progress=Progress() if shows else None) as engine:
        for warning in engine.info.warnings:
            note(warning)
        yield engine


class Progress:
    """A line on stderr, written anew where it changes and gone when all is done.

    The cursor waits at its start, so that an error takes its place.
    """

    def __init__(self) -> None:
        self._shown = ""

    def __call__(self, stage: str, share: float) -> bool:
        """Progress of loading."""
        return self.show(f"loading the {stage} model", share)

    def show(self, what: str, share: float) -> bool:
        line = f"{what} {share:4.0%}"
        if line != self._shown:
            say(line if share < 1 else " " * len(line), end="\r")
            self._shown = line
        return True
