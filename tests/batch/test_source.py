"""I03: what a file may hold, line by line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.tools.batch.source import Line, count_lines, open_input, read_lines


def read(data: bytes, longest: int = 100) -> list[Line]:
    return list(read_lines(io.BytesIO(data), longest=longest))


def test_blank_lines_count_and_are_no_lines() -> None:
    assert read(b"a\n\n \t\r\nb\n") == [Line(1, b"a"), Line(4, b"b")]


@pytest.mark.parametrize("data", [b"a\nb\n", b"a\nb", b"a\r\nb\r\n", b"\xef\xbb\xbfa\nb\n", b"  a \n\tb"])
def test_line_ends_and_marks_are_not_part_of_lines(data: bytes) -> None:
    assert [line.data for line in read(data)] == [b"a", b"b"]


def test_a_mark_further_on_is_part_of_its_line() -> None:
    assert read(b"a\n\xef\xbb\xbfb\n")[1].data == b"\xef\xbb\xbfb"


@given(st.integers(1, 40), st.integers(1, 12))
def test_a_line_that_is_too_long_is_one_line(size: int, longest: int) -> None:
    got = read(b"x" * size + b"\ny\n", longest)
    assert got == [Line(1, b"x" * size if size <= longest else None), Line(2, b"y")]


def test_lines_of_a_file_are_counted_and_then_read(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"a\n\nb\nc")
    with open_input(str(path)) as source:
        assert count_lines(source) == 3
        assert len(list(read_lines(source))) == 3


@pytest.mark.parametrize("name", ["nothing.jsonl", ".", "a\0b"])
def test_what_is_no_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="cannot be read") as caught:
        open_input(name)
    assert caught.value.hint
