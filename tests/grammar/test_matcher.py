"""Tokens that a grammar allows: by a walk over all of them, and one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.grammar import Grammars
from tests.grammar.support import grammars, language

END = 0
PIECES = st.lists(
    st.one_of(st.text("abc", max_size=4).map(str.encode), st.binary(max_size=3), st.just("é😀".encode()[:3])),
    min_size=1,
    max_size=40,
)


@settings(deadline=None, max_examples=100)
@given(pair=grammars("abc"), pieces=PIECES, choices=st.lists(st.integers(0, 99), max_size=6))
def test_masks_and_single_tokens_agree(pair: tuple[str, str], pieces: list[bytes], choices: list[int]) -> None:
    pieces = [b"", *pieces]
    place = Grammars(pieces, {END}).start(pair[0])
    holds, text = language(pair[0]), b""
    for choice in choices:
        n = len(pieces)
        one_by_one = [place.allows(token) for token in range(n)]
        assert place.allowed(np.arange(n, dtype=np.int32)).tolist() == np.flatnonzero(one_by_one).tolist()
        mask = place.ban(np.zeros(n, np.float32)) == 0
        assert mask.tolist() == one_by_one
        assert place.allowed(np.arange(n, dtype=np.int32)).tolist() == np.flatnonzero(mask).tolist()
        assert place.allows(END) == holds(text)
        assert place.only == (mask.argmax() if mask.sum() == 1 else None)
        assert place.must_end <= (mask[1:].sum() == 0)
        left = np.flatnonzero(mask[1:]) + 1
        if not len(left):
            break
        token = int(left[choice % len(left)])
        place, text = place.advance(token), text + pieces[token]


def test_a_place_is_not_changed_by_what_follows_it() -> None:
    start = Grammars((b"", b"a", b"b", b"ab"), {END}).start('root ::= "ab" "b"*')
    one, other = start.advance(1), start.advance(3)
    assert [start.allows(t) for t in range(4)] == [False, True, False, True]
    assert [one.allows(t) for t in range(4)] == [False, False, True, False]
    assert [other.allows(t) for t in range(4)] == [True, False, True, False]
    assert start.follow(2) is None
    with pytest.raises(ValueError, match="does not allow token 2"):
        start.advance(2)
    ended = other.advance(END)
    assert ended.ended
    assert all(ended.allows(t) for t in range(4))
    assert ended.advance(1) is ended


def test_rows_may_be_longer_or_shorter_than_the_vocabulary() -> None:
    place = Grammars((b"", b"a", b"b"), {END}).start('root ::= "a"')
    for n in (1, 2, 3, 7):
        row = np.arange(n, dtype=np.float32)
        banned = place.ban(row)
        assert banned.tolist() == [1.0 if token == 1 else -np.inf for token in range(n)]
        assert row.tolist() == list(range(n))
    assert not place.allows(7)
    assert place.allowed(np.array([1, 2, 9], np.int32)).tolist() == [0]


def test_characters_may_be_split_between_tokens() -> None:
    head, tail = "é".encode()[:1], "é".encode()[1:]
    place = Grammars((b"", head, tail, b"\xff", b"e"), {END}).start("root ::= [à-ÿ]")
    assert [place.allows(t) for t in range(5)] == [False, True, False, False, False]
    assert [place.advance(1).allows(t) for t in range(5)] == [False, False, True, False, False]
    assert place.advance(1).advance(2).must_end


def test_what_is_forced() -> None:
    grammars_ = Grammars((b"", *(bytes([byte]) for byte in range(32, 127))), {END})
    place = grammars_.start('root ::= "name: " ("x" | "y") "!"?')
    assert place.forced(100) == b"name: "
    assert place.forced(3) == b"nam"
    for char in b"name: x":
        place = place.advance(char - 31)
    assert place.forced(9) == b""  # it may end here
    assert not place.must_end
    assert place.advance(ord("!") - 31).must_end


def test_few_grammars_and_masks_are_kept() -> None:
    kept = Grammars((b"", b"a"), {END})
    first = kept.start("root ::= [a]{0,500}")
    place = first
    for _ in range(300):
        place.ban(np.zeros(2, np.float32))
        place = place.advance(1)
    assert len(first._language._masks) <= 32
    for i in range(30):
        kept.start(f"root ::= [a]{{{i}}}")
    assert len(kept._languages) <= 4
    with pytest.raises(UsageError):
        kept.start("root ::= (")
    assert len(kept._languages) <= 4
