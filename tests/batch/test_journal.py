"""The output file: whole lines, whatever happens; and what a later run makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.tools.batch.form import OpenAI, Plain
from localspec.tools.batch.journal import Journal, as_line
from tests.batch.support import lines, records


def plain(line: int, name: Any = None, **more: Any) -> dict[str, Any]:
    return {"line": line, "id": name, **more}


def openai(line: int, name: str, status: int | None = 200) -> dict[str, Any]:
    response = None if status is None else {"status_code": status, "body": {}}
    return {"id": f"batch_req_{line}", "custom_id": name, "response": response, "error": None}


def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with Journal(str(path), resume=False) as journal:
        journal.write(plain(1, "a", text="é\n\ud800"))
        assert records(path) == [plain(1, "a", text="é\n\ud800")]  # at once
        journal.write(plain(2))
    assert [record["line"] for record in records(path)] == [1, 2]


@settings(max_examples=60)
@given(st.lists(st.text(max_size=5), min_size=1, max_size=5), st.data())
def test_a_torn_line_is_dropped(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject
) -> None:
    """Wherever a run is killed: what was whole stays, and what follows stands on a line of its own."""
    path = tmp_path_factory.mktemp("torn") / "out.jsonl"
    whole = [as_line(plain(n, f"n{n}", text=text)) for n, text in enumerate(texts, 1)]
    kept = data.draw(st.integers(0, len(texts) - 1))
    torn = whole[kept][: data.draw(st.integers(0, len(whole[kept]) - 1))]
    path.write_bytes(b"".join(whole[:kept]) + torn)
    with Journal(str(path), resume=True) as journal:
        assert journal.done == {n: f"n{n}" for n in range(1, kept + 1)}
        journal.write(plain(99))
    assert [record["line"] for record in records(path)] == [*range(1, kept + 1), 99]


def test_both_forms_tell_what_is_done_and_what_failed(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    found = [plain(1, "a"), plain(3, 7, error={}), openai(5, "x"), openai(6, "y", 400), openai(8, "z", None)]
    path.write_bytes(lines(found))
    with Journal(str(path), resume=True) as journal:
        assert journal.done == {1: "a", 3: 7, 5: "x", 6: "y", 8: "z"}
        assert journal.failed == 3
        assert journal.check(Plain(1, "a"))
        assert journal.check(OpenAI(5, "x"))
        assert not journal.check(Plain(2, "b"))
        with pytest.raises(UsageError, match=r"made from another input.*line 1 is for 'a', the line is 'b'"):
            journal.check(Plain(1, "b"))


@pytest.mark.parametrize("middle", [b"no json\n", b"[1]\n", b'{"a": 1}\n', b'{"custom_id": "a", "id": "x"}\n'])
def test_a_file_of_something_else_is_left_alone(middle: bytes, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    data = lines([plain(1)]) + middle + lines([plain(2)])
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"line 2 of .* is not of a batch"):
        Journal(str(path), resume=True)
    assert path.read_bytes() == data


def test_answers_are_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(lines([plain(1)]))
    with pytest.raises(UsageError, match="is there already") as caught:
        Journal(str(path), resume=False)
    assert "--resume" in caught.value.hint
    assert records(path) == [plain(1)]


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    path = str(tmp_path / "out.jsonl")
    with Journal(path, resume=False), pytest.raises(UsageError, match="another run is writing"):
        Journal(path, resume=True)
    with Journal(path, resume=True):
        pass


def test_a_file_that_got_nothing_goes_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with pytest.raises(ZeroDivisionError), Journal(str(path), resume=False):
        raise ZeroDivisionError
    assert not path.exists()
    path.touch()
    with pytest.raises(ZeroDivisionError), Journal(str(path), resume=False):
        raise ZeroDivisionError
    assert path.exists()


@pytest.mark.parametrize("name", ["no/such/folder/out.jsonl", ".", "a\0b"])
def test_where_nothing_can_be_written(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="cannot be written"):
        Journal(name, resume=False)


def test_numbers_that_json_has_not() -> None:
    assert json.loads(as_line({"a": [float("inf"), float("nan"), 1.5]})) == {"a": [None, None, 1.5]}
