"""The engine of a chat, and its replacements."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from localspec.cli.diagnostics import fail
from localspec.cli.session import Progress, engine_for, model_files
from localspec.errors import LocalspecError, ModelError
from localspec.options import Values

if TYPE_CHECKING:
    from localspec.client.engine import RemoteEngine
    from localspec.host import HostedEngine


class LoadedEngines:
    """Holds one engine at a time: two large models may not fit side by side.

    Args:
        progress: shows how loading goes.

    Raises:
        LocalspecError: as `localspec.load`.
        ModelError: the model is no chat model.
    """

    def __init__(self, values: Values, progress: Progress) -> None:
        self._progress = progress
        self._stack = ExitStack()
        self._values = values
        self._engine = self._open(values)

    @property
    def current(self) -> HostedEngine | RemoteEngine:
        return self._engine

    def load(self, values: Values) -> None:
        model_files(values)  # a file that is not there, or a download, does not touch the engine that runs
        self._stack.close()
        try:
            self._engine = self._open(values)
        except (LocalspecError, KeyboardInterrupt):
            self._back()
            raise
        self._values = values

    def revive(self) -> None:
        self._restart()

    def __enter__(self) -> LoadedEngines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _open(self, values: Values) -> HostedEngine | RemoteEngine:
        engine = self._stack.enter_context(engine_for(values, self._progress))
        if not engine.info.has_template:
            self._stack.close()
            raise ModelError(
                f"{engine.info.target} has no chat template: it is a base model, not a chat model",
                hint="Use localspec complete, or lend it a template: --chat-template chatml.",
            )
        return engine

    def _back(self) -> None:
        """The engine as it was. If even that fails, the next message tries again (`revive`)."""
        self._stack.callback(self._engine.close)
        try:
            self._restart()
        except LocalspecError as error:
            fail(error.message, error.hint)

    def _restart(self) -> None:
        info = self._engine.info
        with self._progress.loading(Path(info.target), Path(info.draft) if info.draft else None):
            self._engine.restart()
