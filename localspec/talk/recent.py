"""Models that were used lately: one path a line, the last one first."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: So many are remembered.
MOST = 12


class Recent:
    """A file with paths. That it cannot be read or written costs nothing but the memory."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def paths(self) -> tuple[Path, ...]:
        """Those that are still there."""
        try:
            lines = self._file.read_bytes().split(b"\n")
        except OSError:
            return ()
        found = (Path(os.fsdecode(line)) for line in dict.fromkeys(lines) if line and b"\0" not in line)
        return tuple(path for path in found if _is_there(path))[:MOST]

    def add(self, path: Path) -> None:
        """This one was used just now. A name with a line break in it is not kept."""
        path = path.absolute()
        others = (one for one in self.paths() if one != path)
        lines = [os.fsencode(one) for one in (path, *others)][:MOST]
        part = self._file.with_suffix(f".{os.getpid()}.part")
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(b"".join(line + b"\n" for line in lines if b"\n" not in line))
            part.replace(self._file)


def _is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def recent_models() -> Recent:
    """The user's own."""
    import platformdirs

    return Recent(platformdirs.user_state_path("localspec") / "recent-models")
