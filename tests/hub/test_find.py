"""Paths: spaces, accents, split files, folders, links."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import gguf
import pytest

from localspec.errors import ModelError, ModelLoadError, UsageError
from localspec.hub import find, models_in
from localspec.hub.check import verify
from localspec.hub.shelf import facts
from tests.real.support import running
from tests.support.gguf_keys import read_keys

FOLDER = "модель ü　全角 [x]"  # a full-width space too


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / FOLDER
    folder.mkdir()
    return folder


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_bytes(b"GGUF")
    return folder / names[0]


def part_names(count: int = 5) -> list[str]:
    return [f"big-Q4_0-{index:05}-of-{count:05}.gguf" for index in range(1, count + 1)]


def test_a_file_is_itself(folder: Path) -> None:
    path = write(folder, "größe 1.gguf")
    assert find(path) == path


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.gguf")
    path.write_bytes(b"GGUF")
    assert find(path) == path


def test_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    path = write(folder, "a.gguf")
    assert find(Path("~/a.gguf")) == path
    with pytest.raises(ModelLoadError, match="~no-such-user"):
        find(Path("~no-such-user/a.gguf"))


@pytest.mark.parametrize("part", range(5))
def test_any_part_leads_to_the_first(folder: Path, part: int) -> None:
    first = write(folder, *part_names())
    assert find(folder / part_names()[part]) == first


def test_missing_parts_are_named(folder: Path) -> None:
    names = part_names()
    write(folder, names[0], names[2])
    for asked in (names[0], names[3]):
        with pytest.raises(ModelError, match="3 of 5 parts are missing") as caught:
            find(folder / asked)
        for missing in (names[1], names[3], names[4]):
            assert missing in caught.value.message
        assert str(folder) in caught.value.hint


def test_a_folder_with_one_model(folder: Path) -> None:
    write(folder, "mmproj-a.gguf", "notes.txt")
    path = write(folder, "a.GGUF")
    assert find(folder) == path


def test_a_folder_with_one_split_model(folder: Path) -> None:
    first = write(folder, *part_names())
    assert find(folder) == first
    (folder / part_names()[1]).unlink()
    with pytest.raises(ModelError, match="1 of 5 parts are missing"):
        find(folder)


def test_a_folder_with_several(folder: Path) -> None:
    write(folder, "b.gguf", "a.gguf", *part_names())
    with pytest.raises(ModelError, match="holds 3 models") as caught:
        find(folder)
    assert caught.value.hint == f"Name one of them: a.gguf, b.gguf, {part_names()[0]}."


def test_a_folder_with_none(folder: Path) -> None:
    with pytest.raises(ModelError, match="a folder without a GGUF model"):
        find(folder)


def test_links_keep_their_names(folder: Path, tmp_path: Path) -> None:
    blob = write(tmp_path, "0123abcd")
    link = folder / "model.gguf"
    link.symlink_to(blob)
    assert find(link) == link
    names = part_names(2)
    for name in names:
        (folder / name).symlink_to(blob)
    assert find(folder / names[1]) == folder / names[0]


def test_a_link_with_another_name_leads_to_its_set(folder: Path, tmp_path: Path) -> None:
    first = write(tmp_path, *part_names(2))
    link = folder / "model.gguf"
    link.symlink_to(tmp_path / part_names(2)[1])
    assert find(link) == first


def test_a_link_to_nothing(folder: Path) -> None:
    (folder / "a.gguf").symlink_to(folder / "gone")
    with pytest.raises(ModelLoadError, match="does not exist"):
        find(folder / "a.gguf")


@pytest.mark.parametrize("name", ["a" * 300, "a\0b"])
def test_names_that_no_file_can_have(folder: Path, name: str) -> None:
    with pytest.raises(ModelLoadError, match=r"cannot be read|does not exist"):
        find(folder / name)


def test_a_repository_given_as_a_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(ModelLoadError) as caught:
        find(Path("ggml-org/gemma-3-1b-it-GGUF:Q8_0"))
    assert "-hf ggml-org/gemma-3-1b-it-GGUF:Q8_0" in caught.value.hint


def test_models_below_a_folder(folder: Path) -> None:
    (folder / "deep").mkdir()
    deep = write(folder / "deep", "a.gguf", "mmproj-a.gguf")
    first = write(folder, *part_names())
    assert models_in(folder) == [first, deep]
    with pytest.raises(UsageError, match="nowhere does not exist"):
        models_in(folder / "nowhere")
    with pytest.raises(UsageError, match="is no folder"):
        models_in(deep)


@pytest.mark.real
@pytest.mark.parametrize("via", ["file", "folder"])
def test_a_model_in_a_folder_with_accents_loads(smol: Path, folder: Path, via: str) -> None:
    path = folder / smol.name
    path.symlink_to(smol) if sys.platform != "win32" else shutil.copy(smol, path)
    with running(find(path if via == "file" else folder)) as engine:
        assert engine.info.target == str(path)


@pytest.fixture(scope="module")
def split(random_draft: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model in several parts, written as llama.cpp splits."""
    folder = tmp_path_factory.mktemp("split")
    writer = gguf.GGUFWriter(folder / "tiny.gguf", "llama", split_max_tensors=5)
    reader = gguf.GGUFReader(random_draft)
    for name, value, kind, element in read_keys(random_draft):
        if name != "general.architecture":
            writer.add_key_value(name, value, kind, sub_type=element)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder


@pytest.mark.real
def test_a_split_model_loads_by_any_part_and_by_its_folder(split: Path, random_draft: Path) -> None:
    files = sorted(split.iterdir())
    assert len(files) > 2
    whole, parts = facts(random_draft), facts(files[0])
    assert parts["parameters"] == whole["parameters"]
    assert (parts["files"], parts["architecture"], parts["vocabulary"]) == (len(files), "llama", whole["vocabulary"])
    assert len(list(verify(files[0]))) == len(files)
    for path in (files[-1], split):
        with running(find(path)) as engine:
            assert engine.info.target == str(files[0])
