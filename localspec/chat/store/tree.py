"""The messages of a session as a tree: edited questions and new answers stand beside the old ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from localspec.chat.store.entries import Entry


class MessageTree:
    """Entries under their parents, siblings in the order they came. Nothing is ever taken out.

    An entry whose parent is not there begins a branch of its own.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries: dict[str, Entry] = {}
        self._below: dict[str | None, list[str]] = {}
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        """All entries in the order they came: each after its parent."""
        return iter(self._entries.values())

    def __contains__(self, entry: object) -> bool:
        return entry in self._entries

    def __getitem__(self, entry: str) -> Entry:
        return self._entries[entry]

    def add(self, entry: Entry) -> None:
        """Puts an entry under its parent; one that is there already changes nothing."""
        if entry.id not in self._entries:
            self._entries[entry.id] = entry
            self._below.setdefault(self._parent(entry), []).append(entry.id)

    def below(self, parent: str | None) -> tuple[Entry, ...]:
        """What follows an entry, the oldest first; what begins the session for ``None``."""
        return tuple(self._entries[one] for one in self._below.get(parent, ()))

    def siblings(self, entry: str) -> tuple[Entry, ...]:
        """The entry and those in its place, the oldest first."""
        return self.below(self._parent(self._entries[entry]))

    def path(self, leaf: str | None) -> tuple[Entry, ...]:
        """From the beginning to ``leaf``; empty for ``None`` and for an entry that is not there."""
        found: list[Entry] = []
        at = leaf if leaf in self._entries else None
        while at is not None:
            found.append(self._entries[at])
            at = self._parent(found[-1])
        return tuple(reversed(found))

    def leaf_below(self, entry: str) -> str:
        """The end of the newest branch through an entry. A question that was left out ends it only where no other
        goes on."""
        while below := self._below.get(entry):
            entry = next((one for one in reversed(below) if not self.left_out(one)), below[-1])
        return entry

    def left_out(self, entry: str) -> bool:
        """Whether this is a question that was never answered."""
        return self._entries[entry].role == "user" and entry not in self._below

    def _parent(self, entry: Entry) -> str | None:
        return entry.parent if entry.parent in self._entries else None
