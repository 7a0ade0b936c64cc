"""Tokens to text as they are decided: where the answer ends, and how much of it may be shown already."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from localspec.text.stops import StopFinder
from localspec.text.utf8 import Utf8Decoder


@dataclass(frozen=True, slots=True)
class Cut:
    """The answer ends here.

    ``keep`` tokens, counted from the start of the answer, stay. ``stop`` is the stop string that ended it,
    ``None`` if an end token did.
    """

    keep: int
    stop: str | None


class TextStream:
    """Turns tokens into text as they are decided: split UTF-8, stop strings, end tokens; holds back what may
    not go out yet.

    The rules, decided token by token, so that they do not depend on how many tokens a step brings:

    * An end token ends the answer and is no part of it. So does a token of ``stop_ids``; text and tokens
      before either stay, an almost-finished stop string included. Their own pieces are not looked at.
    * The stop string that is complete first wins. Among those that one token completes it is the one that
      starts earliest in the text, then the longest; their order in ``stops`` means nothing.
    * The text before the match stays, and so does every token whose text begins before it. A token that
      begins at or after its start is dropped, also one without any text (a control token right before the
      match).
    * Held back are the longest end of the text that a stop string begins with, and an unfinished character. A
      token is certain to stay once its text begins before what is held back.
    * A character still unfinished at the end of the answer is dropped; its tokens stay.

    Args:
        stops: non-empty stop strings.
        stop_ids: control tokens that are spelt like a stop string, and that string. They have no text that
            could match.
        end_ids: tokens that end an answer. A token in both maps counts as the stop string.
    """

    def __init__(self, *, stops: Sequence[str], stop_ids: Mapping[int, str], end_ids: Collection[int]) -> None:
        self._finder = StopFinder(stops)
        self._decoder = Utf8Decoder()
        self._stop_ids = dict(stop_ids)
        self._end_ids = frozenset(end_ids)
        self._stays = 0  # bytes that no stop string can take away any more
        self._text = ""  # decoded, not yet released
        self._open: deque[int] = deque()  # byte offsets where the tokens begin that are not certain to stay
        self._kept = 0
        self._over = False

    @property
    def kept(self) -> int:
        """Tokens certain to stay, counted from the start of the answer."""
        return self._kept

    def push(self, token: int, piece: bytes) -> Cut | None:
        """Adds one token and its bytes; ``None``: the answer goes on.

        Raises:
            RuntimeError: the answer has ended already.
        """
        if self._over:
            raise RuntimeError("the answer has ended")
        if token in self._stop_ids or token in self._end_ids:
            self._close()
            return Cut(self._kept, self._stop_ids.get(token))
        self._open.append(self._stays + len(self._finder.held))
        certain, stop = self._finder.push(piece)
        self._let_go(certain)
        if stop is None:
            self._settle(self._stays - self._decoder.pending)
            return None
        self._settle(self._stays)
        self._open.clear()
        self._over = True
        return Cut(self._kept, stop)

    def release(self) -> tuple[str, int]:
        """The text that may go out now and has not yet, and ``kept``."""
        text, self._text = self._text, ""
        return text, self._kept

    def finish(self) -> tuple[str, int]:
        """No more tokens: like ``release``, with everything held back that stays. May be called after a
        `Cut`."""
        if not self._over:
            self._close()
        return self.release()

    def _close(self) -> None:
        """Ends the answer after the last token pushed."""
        self._let_go(self._finder.flush())
        self._kept += len(self._open)
        self._open.clear()
        self._over = True

    def _let_go(self, data: bytes) -> None:
        self._stays += len(data)
        self._text += self._decoder.decode(data)

    def _settle(self, border: int) -> None:
        """Tokens that begin before ``border`` are certain to stay."""
        while self._open and self._open[0] < border:
            self._open.popleft()
            self._kept += 1
