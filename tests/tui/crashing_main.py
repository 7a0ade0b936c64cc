"""``python -m tests.tui.crashing_main``: the command line over engines without weights, on a screen with a fault."""

from __future__ import annotations

import runpy
from typing import NoReturn

from localspec.tui.app import LocalspecApp


def fail(_app: LocalspecApp) -> NoReturn:
    raise ValueError("a fault of ours")


if __name__ == "__main__":
    setattr(LocalspecApp, "action_find", fail)  # noqa: B010
    runpy.run_module("tests.cli.repl.fake_main", run_name="__main__")
