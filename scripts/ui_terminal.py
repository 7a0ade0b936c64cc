"""The full screen at a terminal that is only read: when what came, and what the process behind it has cost."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS, ROWS = 100, 30
_ESCAPES = re.compile(rb"\x1b(\[[0-9;?<>=]*[A-Za-z]|[=>()][0-9A-Z]?|\][^\x07\x1b]*(\x07|\x1b\\))")
_TICK = os.sysconf("SC_CLK_TCK")
_KEPT = 65536  # bytes


class FullScreen:
    """``localspec chat --tui`` at a terminal of 100 × 30.

    Args:
        arguments: for the program.
        home: its folder of sessions, settings and history.
        module: the program.
        env: more of its environment.
    """

    def __init__(
        self,
        *arguments: str,
        home: Path,
        module: str = "localspec",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._line, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, "chat", "--tui", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            env=environment(home, {"TERM": "xterm-256color", "COLORTERM": "truecolor", **(env or {})}),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._seen = b""

    def __enter__(self) -> FullScreen:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._line)

    def send(self, keys: str) -> None:
        """Typed now; what came before is forgotten."""
        while self._read(0.0):
            pass
        self._seen = b""
        os.write(self._line, keys.encode())

    def until(self, pattern: str, seconds: float = 60.0) -> re.Match[str]:
        """The first place in what came since the last that has the pattern, colours and moves left out.

        Raises:
            SystemExit: it does not come in time, or the program ends.
        """
        end = time.monotonic() + seconds
        while (found := re.search(pattern, self.text)) is None:
            left = end - time.monotonic()
            if left <= 0 or self.process.poll() is not None:
                raise SystemExit(f"{pattern!r} does not come after:\n{self.text[-2000:]}")
            self._read(min(left, 0.5))
        self._seen = b""
        return found

    def wait(self, seconds: float) -> None:
        """Reads on."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._read(left)

    def leave(self) -> None:
        self.send("\x11")
        end = time.monotonic() + 20
        while self.process.poll() is None and time.monotonic() < end:
            self._read(0.1)

    @property
    def text(self) -> str:
        return _ESCAPES.sub(b"", self._seen).decode("utf-8", "replace")

    @property
    def cpu(self) -> float:
        """Seconds of processor that the process of the screen has used; the engine has its own."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    def _read(self, seconds: float) -> bool:
        if not select.select([self._line], [], [], seconds)[0]:
            return False
        try:
            self._seen = (self._seen + os.read(self._line, 65536))[-_KEPT:]
        except OSError:  # the other side is closed
            return False
        return True


def environment(home: Path, more: Mapping[str, str]) -> dict[str, str]:
    """Settings of this machine stay out."""
    places = dict.fromkeys(("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"), str(home))
    return {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": tempfile.gettempdir(), **places, **more}
