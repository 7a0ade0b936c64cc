"""The user's own editor, on a text of ours."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from localspec.errors import UsageError

#: Where an editor is looked for if the environment names none.
EDITORS = ("editor", "nano", "vi", "emacs")


def editor() -> list[str]:
    """The command that opens a file.

    Raises:
        UsageError: there is none.
    """
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    found = shlex.split(named) if named else [one for one in map(shutil.which, EDITORS) if one][:1]
    if not found:
        raise UsageError("there is no editor", hint="Set EDITOR.")
    return found


def edited(text: str, command: list[str]) -> str:
    """The text as it is after the editor has been left.

    Raises:
        UsageError: the editor does not run, has failed, or what it left is no text.
    """
    with tempfile.TemporaryDirectory(prefix="localspec-") as folder:
        path = Path(folder) / "message.md"
        path.write_text(text, encoding="utf-8")
        try:
            subprocess.run([*command, str(path)], check=True)
            return path.read_text(encoding="utf-8").removesuffix("\n")
        except (OSError, subprocess.CalledProcessError, ValueError) as error:
            raise UsageError(f"{command[0]} did not work: {error}", hint="Set EDITOR to another one.") from None
