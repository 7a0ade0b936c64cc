"""``ngram-cache`` against brute force over the text, and llama.cpp's files."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control import Limits
from localspec.drafters.ngram_cache import Counts, NgramCache, TextCounts, read_lookup
from localspec.errors import UsageError
from tests.drafters.support import guess

few = settings(max_examples=80, deadline=None)
TEXTS = st.lists(st.integers(0, 2), max_size=30)


def counted(tokens: list[int]) -> dict[tuple[int, ...], Counter[int]]:
    counts: dict[tuple[int, ...], Counter[int]] = {}
    for n in range(1, 5):
        for i in range(n, len(tokens)):
            counts.setdefault(tuple(tokens[i - n : i]), Counter())[tokens[i]] += 1
    return counts


@few
@given(st.lists(st.tuples(st.integers(0, 30), TEXTS), max_size=5))
def test_counts_of_a_text_that_is_cut_and_grows(turns: list[tuple[int, list[int]]]) -> None:
    text, tokens = TextCounts(), list[int]()
    for keep, more in turns:
        text.truncate(keep)
        tokens = tokens[:keep] + more
        text.read_on(tokens)
        assert text.counts == counted(tokens)


@few
@given(TEXTS.filter(bool))
def test_the_longest_that_is_clear_enough(tokens: list[int]) -> None:
    drafter = NgramCache()
    drafter.open(0)
    tree = guess(drafter, tokens, Limits(1, 9, 9))
    for n, (times, percent) in {4: (1, 50), 3: (1, 50), 2: (2, 50), 1: (2, 66)}.items():
        after = counted(tokens).get(tuple(tokens[-n:]), Counter()) if len(tokens) >= n else Counter()
        total = after.total()
        if after and total >= times and 100 * max(after.values()) >= percent * total:
            guessed = {tree.tokens[node]: tree.scores[node] for node in range(1, len(tree))}
            assert guessed == {token: times / (total + 1) for token, times in after.items()}
            assert after[tree.tokens[1]] == max(after.values()), "the best stands first"
            return
    assert tree.draft_n == 0


def first(tokens: list[int], dynamic: Counts | None = None, static: Counts | None = None) -> tuple[int, ...]:
    drafter = NgramCache(dynamic, static)
    drafter.open(0)
    return guess(drafter, tokens, Limits(1, 9, 1)).tokens[1:]


def test_files_come_after_the_conversation() -> None:
    dynamic: Counts = {(1, 2): {7: 4, 8: 1}, (2,): {9: 3}}
    static: Counts = {(1, 2): {6: 5}, (4, 5): {6: 5, 7: 4}}
    assert first([1, 2, 3, 1, 2, 3, 1, 2], dynamic, static) == (3,)
    assert first([0, 1, 2], dynamic, static) == (7,)
    assert first([0, 0, 2], dynamic, static) == (), "3 times are too few for one token"
    assert first([1, 2], None, static) == (6,)
    assert first([4, 5], None, static) == (6,)
    assert first([9, 4], None, static) == ()


def test_a_dynamic_file_must_be_clearer() -> None:
    assert first([1, 2], {(1, 2): {7: 3, 8: 2}}) == ()
    assert first([1, 2], None, {(1, 2): {7: 3, 8: 2}}) == (7,)


def test_what_is_usual_decides_between_rivals() -> None:
    text = [1, 2, 3, 1, 2, 4, 1, 2]
    assert first(text, None, {(1, 2): {4: 1}}) == (4,)
    assert first(text, None, {(1, 2): {3: 1}}) == (3,)


def written(path: Path, counts: Mapping[tuple[int, ...], Mapping[int, int]]) -> Path:
    with path.open("wb") as file:
        for run, after in counts.items():
            file.write(struct.pack("<5i", *run, *[-1] * (4 - len(run)), len(after)))
            for token, times in after.items():
                file.write(struct.pack("<2i", token, times))
    return path


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    counts = {(5, 0): {1: 3, 0: 2}, (7,): {7: 1}, (1, 2, 3, 4): {9: 2_000_000}}
    assert read_lookup(written(tmp_path / "cache", counts), 10) == counts
    assert read_lookup(written(tmp_path / "none", {}), 10) == {}


def ints(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"abc", "no lookup cache"),
        (b"abcde" + ints(1, 2), "no lookup cache"),
        (ints(1, -1, -1, -1), "no lookup cache"),
        (ints(1, -1, -1, -1, 2, 3, 1), "no lookup cache"),
        (ints(-1, -1, -1, -1, 1, 3, 1), "no lookup cache"),
        (ints(1, -2, -1, -1, 1, 3, 1), "no lookup cache"),
        (ints(1, -1, -1, -1, 1, -3, 1), "no lookup cache"),
        (ints(1, -1, -1, -1, 1, 3, 0), "no lookup cache"),
        (ints(1, -1, -1, -1, 0), "no lookup cache"),
        (ints(1, -1, -1, -1, -4), "no lookup cache"),
        (ints(1, -1, -1, -1, 1, 10, 1), "another vocabulary"),
        (ints(10, -1, -1, -1, 1, 1, 1), "another vocabulary"),
        (None, "cannot be read"),
    ],
)
def test_other_files_are_refused(content: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "cache"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=words):
        read_lookup(path, 10)


def test_a_huge_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.drafters.ngram_cache._MOST_BYTES", 20)
    with pytest.raises(UsageError, match="28 bytes"):
        read_lookup(written(tmp_path / "cache", {(1,): {2: 3}}), 10)


def test_the_files_stay_as_they_are() -> None:
    """E13: what is said is no source for others."""
    dynamic: Counts = {(1, 2): {7: 4}}
    drafter = NgramCache(dynamic)
    drafter.open(0)
    drafter.open(1)
    guess(drafter, [1, 2, 3, 1, 2, 3, 1, 2])
    assert dynamic == {(1, 2): {7: 4}}
    assert guess(drafter, [3, 1, 2], Limits(1, 9, 1), seq=1).tokens == (2, 7)
