"""``python -m tests.server.fake_main serve …``: the command line over an engine without weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from localspec.cli import main
from localspec.cli import serve as command
from localspec.host import HostedEngine
from tests.server import factories
from tests.server.factories import Options


def hosted(options: object, **more: Any) -> HostedEngine:
    fake = Options(pass_s=float(os.environ.get("LOCALSPEC_TEST_PASS_TIME", "0")))
    return HostedEngine(fake, factory=factories.engine, **more)


def vocabulary(path: Path) -> object:
    return factories.vocabulary()


if __name__ == "__main__":
    setattr(command, "HostedEngine", hosted)  # noqa: B010
    setattr(command, "read_vocabulary", vocabulary)  # noqa: B010
    main.main()
