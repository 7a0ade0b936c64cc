"""A program in a terminal that nobody sits at: tmux runs it, types for us, and tells what the screen shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path


class Screen:
    """One program in a tmux server of its own, which ends with it.

    Args:
        shown: the command line to draw above the output, after a ``$``.
        pipe: a named pipe that gets all that the program writes, from the first byte on.

    Raises:
        SystemExit: tmux is missing or refuses.
    """

    def __init__(self, command: Sequence[str], columns: int, rows: int, shown: str, pipe: Path | None = None) -> None:
        self._socket = f"localspec-{uuid.uuid4().hex[:8]}"
        # Something stays when the program is over, so that its last screen can be taken. ctrl-c reaches the shell too.
        script = f"trap : INT; printf '$ %s\\n' {shlex.quote(shown)}; {shlex.join(command)}; exec sleep 1000"
        size = ("-x", str(columns), "-y", str(rows))
        # In one go with the start: the server does not read from the program before.
        piped = () if pipe is None else (";", "pipe-pane", f"cat > {shlex.quote(str(pipe))}")
        self._tmux("-f", "/dev/null", "new-session", "-d", *size, "sh", "-c", script, *piped)

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server", check=False)

    def _tmux(self, *command: str, check: bool = True, text: str | None = None) -> str:
        try:
            done = subprocess.run(
                ["tmux", "-L", self._socket, *command],
                capture_output=True,
                text=True,
                check=False,
                encoding="utf-8",
                input=text,
            )
        except FileNotFoundError:
            raise SystemExit("tmux is needed") from None
        if check and done.returncode:
            raise SystemExit(f"tmux {command[0]}: {done.stderr.strip()}")
        return done.stdout

    def press(self, key: str) -> None:
        """One key, by tmux's name for it: ``Enter``, ``Escape``, ``C-d``."""
        self._tmux("send-keys", key)

    def write(self, text: str) -> None:
        """Typed text, without Enter."""
        self._tmux("send-keys", "-l", text)

    def type(self, text: str) -> None:
        """A line and Enter."""
        self.write(text)
        self.press("Enter")

    def paste(self, text: str) -> None:
        """As from a clipboard: between the marks of a bracketed paste if the program asked for them."""
        self._tmux("load-buffer", "-", text=text)
        self._tmux("paste-buffer", "-p", "-d")

    def resize(self, columns: int, rows: int) -> None:
        """As when a window is dragged."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def text(self) -> str:
        """What the screen shows, without colours and without blanks at the ends of lines."""
        return _stripped(self._tmux("capture-pane", "-p"))

    def history(self) -> str:
        """The same with what has left the screen at its top."""
        return _stripped(self._tmux("capture-pane", "-p", "-S", "-"))

    def coloured(self) -> str:
        return self._tmux("capture-pane", "-e", "-p").rstrip("\n")

    def until(self, pattern: str, seconds: float, *, every: float = 0.1) -> None:
        """Waits for a screen that ``pattern`` is found in (``.`` and ``$`` as with re.S); looks ``every`` so often.

        Raises:
            SystemExit: it does not come in time, or the program ends first; the screen is shown.
        """
        end = time.monotonic() + seconds
        while not re.search(pattern, self.text(), re.DOTALL):
            if self.over or time.monotonic() > end:
                raise SystemExit(f"{pattern!r} does not come:\n{self.text()}")
            time.sleep(every)

    def until_over(self, seconds: float) -> None:
        """Waits for the end of the program.

        Raises:
            SystemExit: it does not come in time; the screen is shown.
        """
        end = time.monotonic() + seconds
        while not self.over:
            if time.monotonic() > end:
                raise SystemExit(f"it does not end:\n{self.text()}")
            time.sleep(0.1)

    @property
    def over(self) -> bool:
        """The program has ended: the shell has become what comes last."""
        return self._tmux("display-message", "-p", "#{pane_current_command}").strip() == "sleep"


def _stripped(screen: str) -> str:
    return "\n".join(line.rstrip() for line in screen.splitlines()).rstrip("\n")
