"""Requests made from the server's own description, and requests that are not: ``python -m scripts.fuzz_server``.

schemathesis (from PyPI, in an environment of its own, since nothing else needs it) reads ``/openapi.json`` of a server
without weights and sends what it allows and what it does not. No answer may be 5xx.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from tests.server.factories import Options
from tests.server.support import serving


def tool(home: Path) -> Path:
    """schemathesis, installed when it is first asked for."""
    program = home / "bin" / "schemathesis"
    if not program.exists():
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([home / "bin" / "pip", "install", "-q", "schemathesis"], check=True)
    return program


def main(arguments: Sequence[str] | None = None) -> int:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "localspec"
    parser = argparse.ArgumentParser(prog="python -m scripts.fuzz_server", description="No answer may be 5xx.")
    parser.add_argument("--examples", type=int, default=100, help="for each endpoint")
    parser.add_argument("--venv", type=Path, default=cache / "schemathesis", metavar="DIR")
    given = parser.parse_args(arguments)
    program = tool(given.venv)
    with serving(Options(n_ctx=2000), queue=200) as site, tempfile.TemporaryDirectory() as folder:
        checks = ("--checks", "not_a_server_error", "--workers", "1", "--max-examples", str(given.examples))
        # It leaves notes of its own where it runs.
        done = subprocess.run([str(program), "run", f"{site.url}/openapi.json", *checks], cwd=folder, check=False)
        return done.returncode or int(site.serving.ledger.read().restarts > 0)


if __name__ == "__main__":
    sys.exit(main())
