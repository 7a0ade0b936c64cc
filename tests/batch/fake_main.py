"""``python -m tests.batch.fake_main``: the command line over an engine without weights, in a process of its own."""

from __future__ import annotations

from functools import partial

from localspec.cli import main, session
from localspec.host import HostedEngine
from tests.batch import recipes

if __name__ == "__main__":
    setattr(session, "HostedEngine", partial(HostedEngine, factory=recipes.fake))  # noqa: B010
    setattr(session, "find", lambda path: path)  # noqa: B010  (its model is no file)
    main.main()
