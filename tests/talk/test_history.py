"""The file of what was typed, in whatever state it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.talk.history import History


@pytest.mark.parametrize("there", ["", '"a"\n', '"a"\n"hal', "[" * 100_000 + "\n", "\x00\udcff\n", "{}\n1\n\n"])
def test_an_entry_is_read_back_whatever_stands_before_it(tmp_path: Path, there: str) -> None:
    path = tmp_path / "history"
    path.write_bytes(there.encode("utf-8", "surrogateescape"))
    History(path).add("b\n\x1b[31mü")
    assert History(path).entries()[-1:] == ["b\n\x1b[31mü"]
    assert len(History(path).entries()) == 1 + there.startswith('"a"')
