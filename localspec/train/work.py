"""The folder of a training run: texts, what the target says of them, and the state."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.backends.torch.llama import TorchLlama
from localspec.errors import UsageError
from localspec.train.notes import READ_AT_ONCE, Notes, joined, take_notes
from localspec.train.texts import HELD, PART, Texts, parts
from localspec.train.whole import whole

#: Held-out texts that are measured at once.
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Work:
    """Everything below ``folder`` that is expensive to make. Parts of texts may come from elsewhere, at any time."""

    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / "state.pt"

    @property
    def texts(self) -> Path:
        return self.folder / "texts"

    def claim(self, about: Mapping[str, Any]) -> None:
        """Makes the folder that of the run that ``about`` tells apart from others.

        Raises:
            UsageError: it is another's, or cannot be written.
        """
        file = self.folder / "about.json"
        try:
            self.texts.mkdir(parents=True, exist_ok=True)
            (self.folder / "notes").mkdir(exist_ok=True)
            if not file.exists():
                _write_json(file, dict(about))
                return
        except OSError as error:
            raise UsageError(
                f"{self.folder} cannot be made the work folder: {error.strerror}",
                hint="Name another folder with --work.",
            ) from None
        if differing := [key for key, value in json.loads(file.read_text()).items() if about.get(key) != value]:
            raise UsageError(
                f"{self.folder} holds another training: its {differing[0]} is not the same",
                hint="Name another folder with --work.",
            )

    def remembered(self, name: str, make: Callable[[], Any]) -> Any:
        """What ``make`` said the first time, as JSON."""
        file = self.folder / f"{name}.json"
        if not file.exists():
            _write_json(file, make())
        return json.loads(file.read_text())

    def kept(self, kind: str) -> list[Path]:
        return parts(self.texts, kind)

    def counts(self, n_vocab: int) -> NDArray[np.int64]:
        """How often each token is drawn in the texts to train on."""
        found = np.zeros(n_vocab, np.int64)
        for path in self.kept(PART):
            text = Texts.read(path)
            found += np.bincount(text.tokens[text.weight > 0], minlength=n_vocab)
        return found

    def unread(self, kind: str) -> list[Path]:
        """Parts of which there are no notes yet."""
        return [path for path in self.kept(kind) if not self._notes(path).exists()]

    def read(self, path: Path, target: TorchLlama, layers: tuple[int, ...], said: Callable[[int], None]) -> None:
        """Has ``target`` read a part, for good; a process that goes on after another reads what that one had not."""
        pieces = []
        for number, texts in enumerate(Texts.read(path).portions(READ_AT_ONCE)):
            piece = self._notes(path).with_suffix(f".{number}")
            if not piece.exists():
                take_notes(target, texts, layers).write(piece)
            pieces.append(piece)
            said(texts.tokens.size)
        joined([Notes.read(piece) for piece in pieces]).write(self._notes(path))
        for piece in pieces:
            piece.unlink()

    def notes(self) -> dict[str, Notes]:
        """Of the parts that were read."""
        return {path.stem: Notes.read(self._notes(path)) for path in self.kept(PART) if self._notes(path).exists()}

    def held(self) -> list[Notes]:
        """Of the texts that only measure, in portions."""
        return [portion for path in self.kept(HELD) for portion in _portions(Notes.read(self._notes(path)))]

    def _notes(self, path: Path) -> Path:
        return self.folder / "notes" / f"{path.stem}.pt"


def _portions(notes: Notes) -> Iterator[Notes]:
    for start in range(0, len(notes.tokens), _AT_ONCE):
        yield notes.rows(slice(start, start + _AT_ONCE))


def _write_json(file: Path, what: Any) -> None:
    with whole(file) as part:
        part.write_text(json.dumps(what))
