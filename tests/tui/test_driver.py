"""What comes from the terminal: keys and pastes, however they are cut."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual._xterm_parser import XTermParser
from textual.events import Key, Paste

from localspec.tui.driver import PasteSplitter, keys_in

START, END = "\x1b[200~", "\x1b[201~"
#: Cut into pieces, an escape may stand at the end of one.
INNER = st.text(st.sampled_from("\x1b[201~\r\n\tab"), max_size=12).filter(lambda text: END not in text + END[:-1])


def parts(pieces: Iterable[str]) -> list[str]:
    """What is typed as it is, what is pasted with its marks."""
    pastes, found = PasteSplitter(), []
    for piece in pieces:
        found += [f"{START}{one.text}{END}" if isinstance(one, Paste) else one for one in pastes.feed(piece)]
    return found + [one for one in pastes.rest() if isinstance(one, str)]


def test_escapes_in_a_paste_are_no_keys() -> None:
    (pasted,) = PasteSplitter().feed(f"{START}\x1b[31mred\x1b[13u\x1b\r{END}")
    assert isinstance(pasted, Paste)
    assert pasted.text == "\x1b[31mred\x1b[13u\x1b\r"


@given(st.data(), st.lists(INNER, min_size=1, max_size=3))
def test_cuts_change_nothing(data: st.DataObject, inner: list[str]) -> None:
    text = "".join(f"ab{START}{one}{END}" for one in inner) + "c"
    cuts = sorted(data.draw(st.sets(st.integers(1, len(text) - 1), max_size=6)))
    cuts = [cut for cut in cuts if not text[:cut].endswith("\x1b") or text[:cut].rfind(START) > text[:cut].rfind(END)]
    pieces = [text[one:other] for one, other in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    found = parts(pieces)
    assert "".join(found) == text
    assert [one[len(START) : -len(END)] for one in found if one.startswith(START)] == inner


def test_an_escape_by_itself_is_not_held_back() -> None:
    pastes = PasteSplitter()
    assert [*pastes.feed("a\x1b")] == ["a\x1b"]
    assert [*pastes.feed("\x1b[20")] == []
    assert [*pastes.rest()] == ["\x1b[20"]


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("\x1bn\x1bn\x1bn", ["alt+n"] * 3),
        ("\x1bn\x1bOR", ["alt+n", "f3"]),
        ("\x1btlist", ["alt+t", "l", "i", "s", "t"]),
        ("a\x1bnb", ["a", "alt+n", "b"]),
        ("\x1b\x1bn", ["escape", "alt+n"]),
        ("\x1b[1;3D\x1b[1;3C", ["alt+left", "alt+right"]),
        ("\x1bf\x1bOP", ["ctrl+right", "f1"]),
    ],
)
def test_keys_that_come_at_once_stay_apart(typed: str, keys: list[str]) -> None:
    """Held keys repeat, and a screen that was busy reads several at once."""
    assert [one.key for one in keys_in(XTermParser(), typed) if isinstance(one, Key)] == keys
