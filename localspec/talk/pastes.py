"""Long pastes at the prompt: each is one sign there, shown as ``[pasted 300 lines]``, until the message is sent."""

from __future__ import annotations

#: What a paste may have and still be shown as it is.
MOST_LINES, MOST_CHARACTERS = 10, 1000
#: The first sign; the others count down, at the far end of what Unicode leaves to private use.
_LAST_CODE = 0x10FFFD


class Pastes:
    """Signs and the texts that they stand for, of all messages: one may be cut out of one message and put into another,
    or come back from the history."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """A new sign for a text that is long, any other text as it is."""
        if not is_long(text):
            return text
        sign = chr(_LAST_CODE - len(self._texts))
        self._texts[sign] = self.unfold(text)
        return sign

    def unfold(self, text: str) -> str:
        """The text with what its signs stand for."""
        return "".join(self._texts.get(char, char) for char in text)

    def shown(self, char: str) -> str:
        """What is seen of a character of a message."""
        text = self._texts.get(char)
        return char if text is None else f"[{described(text)}]"


def is_long(text: str) -> bool:
    """Whether a pasted text is shown in words."""
    return text.count("\n") >= MOST_LINES or len(text) > MOST_CHARACTERS


def described(text: str) -> str:
    """``pasted 300 lines``"""
    lines = text.count("\n") + (not text.endswith("\n"))
    return f"pasted {lines} lines" if lines > 1 else f"pasted {len(text)} characters"
