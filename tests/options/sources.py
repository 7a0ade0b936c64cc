"""Settings from all sources, without the machine's own files and variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from localspec.options import COMMANDS, Settings, settle
from localspec.options import config as files
from localspec.options.parse import parse


class Sources:
    """A system's and a user's file, which need not exist."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.system, self.user = folder / "system.toml", folder / "user.toml"
        patch.setattr(files, "system_file", lambda: self.system)
        patch.setattr(files, "user_file", lambda: self.user)

    def settle(
        self, arguments: Sequence[str] = (), env: Mapping[str, str] | None = None, *, command: str = "complete"
    ) -> Settings:
        return settle(COMMANDS[command], parse(arguments, COMMANDS[command]), env or {})
