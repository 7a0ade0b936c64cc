"""``draft-simple`` across vocabularies: a small model of another tokenizer guesses ahead.

Guesses are made as by `DraftModel`, over the tokens that both vocabularies spell alike (`translation` says why). What
is new here is reading: the draft model's cache holds the target's text in the draft model's own tokens. The text is
tokenised in segments, runs of the target's tokens that end before a space, where tokenizers put a border anyway; when
a segment is over its tokens stay, and only the open one is tokenised again as it grows. Where the new tokens differ
from those in the cache, accepted guesses among them, the cache is taken back and reads them again.

While the text ends within a character nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.backends.base import Target
from localspec.drafters.base import Ask
from localspec.drafters.draft_model import DraftModel
from localspec.drafters.translation import Translation
from localspec.text.utf8 import Utf8Decoder

#: Target tokens after which a segment ends even if no space comes.
_LONGEST = 32


class TranslatedModel(DraftModel):
    """A `Target` that guesses for another of a different vocabulary. Reads lazily, as `DraftModel`."""

    _lends = False

    def __init__(self, model: Target, translation: Translation) -> None:
        super().__init__(model, translation)
        self._translation = translation
        self._read: dict[int, Reading] = {}

    def open(self, seq: int) -> None:
        super().open(seq)
        self._read[seq] = Reading(self._translation)

    def fork(self, seq: int, new: int, n: int) -> None:
        reading = self._read[seq].fork(n)
        self._lanes[new] = self._model.fork(self._lanes[seq], len(reading.cells))
        self._read[new] = reading
        self._agree(new)

    def close(self, seq: int) -> None:
        super().close(seq)
        del self._read[seq]

    def truncate(self, seq: int, n: int) -> None:
        self._settle(seq)
        self._read[seq].truncate(n)
        self._agree(seq)

    def lag(self, seq: int, n_past: int) -> int:
        return max(n_past - self._read[seq].covered, 0)

    def _text(self, ask: Ask) -> Sequence[int]:
        reading = self._read[ask.seq]
        text = reading.text(ask.tokens)
        if text:
            reading.keep(text)
            self._agree(ask.seq)
        return text

    def _agree(self, seq: int) -> None:
        """Takes the cache back to what is to stay of it, or further where the model cannot stop there."""
        lane, cells = self._lanes[seq], self._read[seq].cells
        if self._model.n_past(lane) > len(cells):
            del cells[self._model.truncate(lane, len(cells)) :]

    def _noted(self, seq: int, read: Sequence[int], n: int) -> None:
        self._read[seq].note(read, n)


class Reading:
    """A text of the target's in the draft model's tokens, and how much of it the draft model's cache holds.

    ``cells``: the draft model's tokens in its cache: the beginning of what `text` last gave, and, if that is all there,
    guesses that stood.
    """

    def __init__(self, translation: Translation) -> None:
        self._translation = translation
        self._closed: list[int] = []  # the draft model's tokens of all closed segments
        self._ends = [(0, 0)]  # of the closed segments: target tokens, draft tokens
        self._upto = 0  # target tokens beyond which no cell spells anything
        self.cells: list[int] = []

    def text(self, tokens: Sequence[int]) -> list[int]:
        """The draft model's tokens for ``tokens``, the last of them pending; [] where nothing can be guessed now."""
        start = self._ends[-1][0]
        for at in range(start + 1, len(tokens)):
            if self._is_border(tokens, start, at):
                self._closed += self._spell(tokens[start:at], start)
                self._ends.append((at, len(self._closed)))
                start = at
        if not self._is_whole(tokens[start:]):
            return []
        return self._closed + self._spell(tokens[start:], start)

    def _spell(self, segment: Sequence[int], start: int) -> list[int]:
        ids, opening = self._translation.spell(segment), self._translation.opening
        return ids if start or ids[: len(opening)] == opening else opening + ids

    def _is_border(self, tokens: Sequence[int], start: int, at: int) -> bool:
        """Whether a segment that began at ``start`` ends before token ``at``."""
        before, after = self._translation.piece(tokens[at - 1]), self._translation.piece(tokens[at])
        if after.startswith(b" ") and before and not before[-1:].isspace():
            return True
        return at - start >= _LONGEST and self._is_whole(tokens[start:at])

    def _is_whole(self, segment: Sequence[int]) -> bool:
        """Whether the text of ``segment`` ends with a whole character."""
        decoder = Utf8Decoder()
        decoder.decode(b"".join(map(self._translation.piece, segment)))
        return not decoder.pending

    def keep(self, text: Sequence[int]) -> None:
        """Cells from where they differ from ``text`` on are no more, the last one of ``text`` included: what follows it
        is read from its row."""
        most = min(len(self.cells), len(text) - 1)
        if self.cells[:most] != list(text[:most]):
            most = next(i for i in range(most) if self.cells[i] != text[i])
        del self.cells[most:]

    def note(self, read: Sequence[int], n: int) -> None:
        """Cells were added that spell nothing beyond the first ``n`` target tokens."""
        self.cells += read
        self._upto = n

    @property
    def covered(self) -> int:
        """How many target tokens the cells spell, to the end of a segment at least."""
        if len(self.cells) > self._ends[-1][1]:
            return self._upto
        return next(tokens for tokens, ids in reversed(self._ends) if ids <= len(self.cells))

    def truncate(self, n: int) -> None:
        """Only the first ``n`` target tokens still stand: their last segment is read again."""
        while self._ends[-1][0] > n:
            self._ends.pop()
        del self._closed[self._ends[-1][1] :]
        if n < self._upto:
            del self.cells[len(self._closed) :]
            self._upto = self._ends[-1][0]

    def fork(self, n: int) -> Reading:
        """A reading of the first ``n`` target tokens."""
        new = Reading(self._translation)
        new._closed, new._ends = self._closed.copy(), self._ends.copy()
        new._upto, new.cells = self._upto, self.cells.copy()
        new.truncate(n)
        return new
