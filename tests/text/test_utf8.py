from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localspec.text.utf8 import Utf8Decoder


@given(st.lists(st.binary(max_size=5)))
def test_pieces_decode_like_the_whole(pieces: list[bytes]) -> None:
    decoder = Utf8Decoder()
    text = "".join(decoder.decode(piece) for piece in pieces)
    whole = b"".join(pieces)
    complete = whole[: len(whole) - decoder.pending]
    assert text == complete.decode("utf-8", "replace")
    assert decoder.pending <= 3


@given(st.text())
def test_well_formed_text_never_shows_a_replacement(text: str) -> None:
    decoder = Utf8Decoder()
    out = "".join(decoder.decode(bytes([byte])) for byte in text.encode())
    assert out == text
    assert decoder.pending == 0


def test_pending_counts_the_bytes_of_an_unfinished_character() -> None:
    decoder = Utf8Decoder()
    assert decoder.decode("é😀".encode()[:4]) == "é"
    assert decoder.pending == 2
    assert decoder.decode(b"x") == "\N{REPLACEMENT CHARACTER}x"
    assert decoder.pending == 0
