"""Entry point of the ``localspec`` command. ``--version`` is answered before anything is imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line and leaves with its exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from localspec import __version__

        print(f"localspec {__version__}")
        return
    from localspec.cli.app import run

    run()


if __name__ == "__main__":
    main()
