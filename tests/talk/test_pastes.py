"""Long pastes: signs at the prompt, and the texts that they stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localspec.talk.pastes import MOST_CHARACTERS, MOST_LINES, Pastes


def test_only_long_pastes_are_folded() -> None:
    pastes = Pastes()
    for text in ("", "a", "a\n" * (MOST_LINES - 1), "a" * MOST_CHARACTERS):
        assert pastes.fold(text) == text
    for text in ("a\n" * MOST_LINES, "a" * (MOST_CHARACTERS + 1)):
        assert len(pastes.fold(text)) == 1


def test_what_is_seen_of_them() -> None:
    pastes = Pastes()
    folded = [pastes.fold(text) for text in ("a\n" * 300, "a\n" * 299 + "a", "a" * 2000)]
    assert [pastes.shown(sign) for sign in folded] == [
        "[pasted 300 lines]",
        "[pasted 300 lines]",
        "[pasted 2000 characters]",
    ]
    assert pastes.shown("a") == "a"


@given(st.lists(st.text(st.sampled_from("ab\n漢"), min_size=0, max_size=40), max_size=9))
def test_a_message_of_pastes_is_their_texts(texts: list[str]) -> None:
    pastes = Pastes()
    assert pastes.unfold("-".join(map(pastes.fold, texts))) == "-".join(texts)


def test_a_sign_that_is_pasted_stands_for_its_text() -> None:
    pastes = Pastes()
    first = pastes.fold("a\n" * 20)
    assert pastes.unfold(pastes.fold(first + "b\n" * 20)) == "a\n" * 20 + "b\n" * 20
