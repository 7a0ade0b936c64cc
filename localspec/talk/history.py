"""What was typed, kept in a file: written before a message is answered, so that nothing typed is lost."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

MOST = 5000  # entries read back
MOST_BYTES = 4 << 20


class History:
    """One JSON string a line, the oldest first. A file that cannot be read or written is no reason to fail."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._last: str | None = None

    def add(self, text: str) -> None:
        """Appends an entry; the same one twice in a row counts once."""
        if not text.strip() or text == self._last or not _is_text(text):
            return
        self._last = text
        if self._path is None:
            return
        line = json.dumps(text) + "\n"
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Messages are private; one write, so that two chats at a time do not mix their lines.
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                size = os.fstat(file).st_size
                if size and os.pread(file, 1, size - 1) != b"\n":  # the disk was full once: half an entry stands there
                    line = "\n" + line
                os.write(file, line.encode())
            finally:
                os.close(file)

    def entries(self) -> list[str]:
        """The newest entries, the oldest of them first."""
        if self._path is None:
            return []
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - MOST_BYTES))
                lines = file.read().splitlines()
        except OSError:
            return []
        found: list[str] = []
        for line in lines:
            with suppress(ValueError, RecursionError):
                entry = json.loads(line)
                if isinstance(entry, str):
                    found.append(entry)
        return found[-MOST:]


def _is_text(text: str) -> bool:
    """Bytes that are no UTF-8 come as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def history_file() -> Path:
    from platformdirs import user_state_path

    return user_state_path("localspec", appauthor=False) / "history"
