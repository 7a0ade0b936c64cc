"""Models are told apart by their contents, wherever they lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import ModelLoadError
from localspec.hub.fingerprint import fingerprint

SIZE = 5 << 20


def write(path: Path, *, at: int = 0, byte: int = 0, size: int = SIZE) -> Path:
    content = bytearray(size)
    content[at] = byte
    path.write_bytes(content)
    return path


def test_a_copy_is_the_same_model(tmp_path: Path) -> None:
    assert fingerprint(write(tmp_path / "a.gguf")) == fingerprint(write(tmp_path / "b.gguf"))
    assert fingerprint(write(tmp_path / "c.gguf", size=10)) == fingerprint(write(tmp_path / "d.gguf", size=10))


@pytest.mark.parametrize("change", [{"at": 100}, {"at": (1 << 20) + 5}, {"size": SIZE + 1}])
def test_another_size_start_or_sample_is_another_model(tmp_path: Path, change: dict[str, int]) -> None:
    before = fingerprint(write(tmp_path / "a.gguf"))
    assert fingerprint(write(tmp_path / "b.gguf", **{"byte": 1, **change})) != before


def test_a_bit_between_two_samples_goes_unnoticed(tmp_path: Path) -> None:
    before = fingerprint(write(tmp_path / "a.gguf"))
    assert fingerprint(write(tmp_path / "b.gguf", at=SIZE - 1000, byte=1)) == before


def test_every_part_of_a_split_model_counts(tmp_path: Path) -> None:
    first, second = (tmp_path / f"m-0000{i}-of-00002.gguf" for i in (1, 2))
    write(first)
    write(second)
    before = fingerprint(first)
    write(second, at=3, byte=1)
    assert fingerprint(first) != before


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="cannot be read"):
        fingerprint(tmp_path / "nothing.gguf")
