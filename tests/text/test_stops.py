from __future__ import annotations

import pytest

from localspec.text.stops import StopFinder


def test_a_match_ends_the_bytes_where_it_starts() -> None:
    finder = StopFinder(["STOP"])
    assert finder.push(b"abST") == (b"ab", None)
    assert finder.held == b"ST"
    assert finder.push(b"OP and more") == (b"", "STOP")


@pytest.mark.parametrize("stops", [["cd", "b"], ["b", "cd"]])
def test_earliest_in_the_text_wins_whatever_the_list_says(stops: list[str]) -> None:
    assert StopFinder(stops).push(b"abcd") == (b"a", "b")


@pytest.mark.parametrize("stops", [["ab", "abc"], ["abc", "ab"]])
def test_same_start_in_one_piece_is_the_longest(stops: list[str]) -> None:
    assert StopFinder(stops).push(b"xabcx") == (b"x", "abc")
    slow = StopFinder(stops)
    assert slow.push(b"xab") == (b"x", "ab")


def test_a_mismatch_lets_go_all_but_the_next_possible_start() -> None:
    finder = StopFinder(["aab"])
    assert finder.push(b"aa") == (b"", None)
    assert finder.push(b"a") == (b"a", None)
    assert finder.push(b"c") == (b"aac", None)
    assert finder.flush() == b""


def test_flush_gives_back_an_almost_stop() -> None:
    finder = StopFinder(["HIJKLM"])
    assert finder.push(b"GHIJKL") == (b"G", None)
    assert finder.flush() == b"HIJKL"
    assert finder.held == b""


def test_a_lone_surrogate_is_no_error_and_matches_nothing() -> None:
    finder = StopFinder(["\ud83d"])
    assert finder.push("😀".encode()) == ("😀".encode(), None)


def test_the_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopFinder(["a", ""])
