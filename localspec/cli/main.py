"""Entry point of the ``localspec`` command. ``--version`` is answered before the command line is built."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from localspec.cli.diagnostics import Ending, errors_end_the_command, flush_or_discard
from localspec.errors import ExitCode


def main() -> NoReturn:
    """Runs the command line and leaves with its exit code."""
    try:
        code = _code(sys.argv[1:])
        _ignore_ends()
    except KeyboardInterrupt:  # a second one, while the first was being answered
        _ignore_ends()
        code = ExitCode.INTERRUPTED
    flush_or_discard()
    sys.exit(code)


def _code(arguments: Sequence[str]) -> int:
    try:
        with errors_end_the_command(debug=_debug(arguments)):
            return _run(arguments)
    except Ending as ending:
        return ending.code


def _ignore_ends() -> None:
    """The code is known: an interpreter interrupted while it shuts down would end by the signal instead."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _debug(arguments: Sequence[str]) -> bool:
    """Known before anything can fail, and so not from a file."""
    wish = os.environ.get("LOCALSPEC_DEBUG", "").lower()
    return "--debug" in arguments or wish in ("true", "1", "on", "enabled", "yes")


def _run(arguments: Sequence[str]) -> int:
    if arguments in (["--version"], ["-V"]):
        from localspec import __version__

        print(f"localspec {__version__}", flush=True)
        return ExitCode.OK
    from localspec.cli.app import run

    return run(arguments)


if __name__ == "__main__":
    main()
