"""Who watches a download."""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """Told how a download goes. Between `begin` and `end` one file is on its way."""

    def begin(self, name: str, size: int | None, done: int) -> None:
        """A file of ``size`` bytes, ``done`` of which are there from an earlier try."""
        ...

    def advance(self, count: int) -> None:
        """So many bytes more; a negative number where some turned out to be useless."""
        ...

    def check(self) -> None:
        """All bytes are there; their checksum is computed, which takes a second per gigabyte or two."""
        ...

    def end(self, whole: bool) -> None:
        """The file is ``whole``, or was given up."""
        ...

    def note(self, text: str) -> None:
        """Something a person should know; the download goes on."""
        ...


class Unwatched:
    """A `Watcher` that looks away."""

    def begin(self, name: str, size: int | None, done: int) -> None:
        pass

    def advance(self, count: int) -> None:
        pass

    def check(self) -> None:
        pass

    def end(self, whole: bool) -> None:
        pass

    def note(self, text: str) -> None:
        pass
