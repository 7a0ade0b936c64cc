"""The engine behind the screen: not there at first, replaced, or gone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Protocol

from localspec.errors import EngineDied, LocalspecError, ModelError
from localspec.options import Values
from localspec.talk.catalogue import Catalogue
from localspec.talk.chat import Engine
from localspec.types import EngineInfo


class Listener(Protocol):
    """Who hears how loading goes, in the thread that loads."""

    def doing(self, what: str, share: float | None = None) -> bool:
        """What is done, and how much of it, 0…1; False asks to give it up."""

    def note(self, text: str) -> None:
        """A line for the user."""


class Opener(Protocol):
    """Where engines come from: handed in by whoever composes the program."""

    def find(self, values: Values, listener: Listener) -> None:
        """Makes sure that the models are here, downloaded if need be.

        Raises:
            LocalspecError: they are not.
        """

    def open(self, values: Values, listener: Listener) -> AbstractContextManager[Engine]:
        """Loads an engine; leaving the context ends it.

        Raises:
            LocalspecError: why it cannot be loaded, or that it was given up.
        """

    def catalogue(self, used: Sequence[Path]) -> Catalogue:
        """What there is to open, and beside the files that are open."""

    def measured(self, target: Path, draft: Path | None) -> float | None:
        """The speed-up that was measured for them, if it was."""


class ScreenEngines:
    """Holds at most one engine: two large models may not fit side by side. Belongs to one thread.

    Args:
        values: what the first is loaded with.
    """

    def __init__(self, opener: Opener, values: Values, listener: Listener) -> None:
        self._opener = opener
        self._values = values
        self._listener = listener
        self._stack = ExitStack()
        self._engine: Engine | None = None

    @property
    def loaded(self) -> bool:
        return self._engine is not None

    @property
    def info(self) -> EngineInfo | None:
        """What runs; ``None``: nothing does."""
        return None if self._engine is None else self._engine.info

    @property
    def memory(self) -> int | None:
        """Bytes that it holds, where that is known."""
        return None if self._engine is None else self._engine.memory

    @property
    def current(self) -> Engine:
        """The engine that runs.

        Raises:
            EngineDied: none does.
        """
        if self._engine is None:
            raise EngineDied("no model is loaded", hint="Load it anew, or choose another with /model.")
        return self._engine

    def load(self, values: Values) -> None:
        """As `Engines.load`."""
        self._opener.find(values, self._listener)  # a file that is not there does not touch the engine that runs
        before, was_loaded = self._values, self.loaded
        try:
            self._open(values)
        except LocalspecError:
            if was_loaded:
                with suppress(LocalspecError):  # if even that fails, the next message tries again
                    self._open(before)
            raise

    def revive(self) -> None:
        """Loads anew with the same options: at first, after an error, in place of one that died; raises as `load`."""
        self._open(self._values)

    def close(self) -> None:
        self._engine = None
        self._stack.close()

    def _open(self, values: Values) -> None:
        self.close()
        engine = self._stack.enter_context(self._opener.open(values, self._listener))
        if not engine.info.has_template:
            self._stack.close()
            raise ModelError(
                f"{engine.info.target} has no chat template: it is a base model, not a chat model",
                hint="Lend it a template: --chat-template chatml.",
            )
        self._engine, self._values = engine, values
