"""``python -m tests.tools.fake_main``: the command line over engines without weights."""

from __future__ import annotations

from localspec import loading
from localspec.cli import main, session
from tests.tools import factories

if __name__ == "__main__":
    setattr(loading, "load", factories.engine)  # noqa: B010
    setattr(session, "find", lambda path: path)  # noqa: B010  (its models are no files)
    main.main()
