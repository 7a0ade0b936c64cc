"""Entry point of the ``localspec`` command. ``--version`` is answered before the command line is built."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from localspec.cli.diagnostics import Ending, errors_end_the_command
from localspec.errors import ExitCode


def main() -> NoReturn:
    """Runs the command line and leaves with its exit code."""
    try:
        with errors_end_the_command(debug=_debug(sys.argv)):
            code = _run(sys.argv[1:])
    except Ending as ending:
        code = ending.code
    sys.exit(code)


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
