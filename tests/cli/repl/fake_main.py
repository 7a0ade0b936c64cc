"""``python -m tests.cli.repl.fake_main``: the command line over engines without weights that differ by name."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from localspec.cli import main, session
from localspec.errors import ModelError
from localspec.host import HostedEngine
from tests.cli import recipes


def find(path: Path) -> Path:
    """Models need not be there, but for ``missing*``."""
    if path.name.startswith("missing"):
        raise ModelError(f"{path} does not exist", hint="Check the path.")
    return path


if __name__ == "__main__":
    setattr(session, "HostedEngine", partial(HostedEngine, factory=recipes.by_name))  # noqa: B010
    setattr(session, "find", find)  # noqa: B010
    main.main()
