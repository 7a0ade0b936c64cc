"""``python -m tests.cli.repl.fake_main``: the command line over engines without weights that differ by name."""

from __future__ import annotations

from functools import partial

from localspec.cli import main, session
from localspec.host import HostedEngine
from tests.cli.repl import factories

if __name__ == "__main__":
    setattr(session, "HostedEngine", partial(HostedEngine, factory=factories.engine))  # noqa: B010
    setattr(session, "find", factories.find)  # noqa: B010
    main.main()
