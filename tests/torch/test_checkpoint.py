"""Checkpoints: every form gives the same weights, and what is wrong with one is said."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'localspec[torch]')")

from safetensors.torch import save_file  # noqa: E402
from torch import Tensor  # noqa: E402

from localspec.backends.torch.checkpoint import read_checkpoint  # noqa: E402
from localspec.errors import ModelLoadError  # noqa: E402

WEIGHTS = {
    "fc.weight": torch.arange(6.0).reshape(2, 3),
    "norm.weight": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "d2t": torch.arange(4),
}


def sharded(folder: Path, kind: str, save: Callable[[dict[str, Tensor], Path], object]) -> None:
    places = {name: f"part-{i}{Path(kind).suffix}" for i, name in enumerate(WEIGHTS)}
    for name, place in places.items():
        save({name: WEIGHTS[name]}, folder / place)
    (folder / f"{kind}.index.json").write_text(json.dumps({"weight_map": places}))


FORMS: dict[str, Callable[[Path], object]] = {
    "safetensors": lambda folder: save_file(WEIGHTS, folder / "model.safetensors"),
    "bin": lambda folder: torch.save(WEIGHTS, folder / "pytorch_model.bin"),
    "another name": lambda folder: torch.save(WEIGHTS, folder / "medusa_lm_head.pt"),
    "sharded safetensors": lambda folder: sharded(folder, "model.safetensors", save_file),
    "sharded bin": lambda folder: sharded(folder, "pytorch_model.bin", torch.save),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"hidden_size": 2}')
    return tmp_path


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_weights(folder: Path, form: str) -> None:
    FORMS[form](folder)
    found = read_checkpoint(folder)
    assert found.config == {"hidden_size": 2}
    assert found.tensors.keys() == WEIGHTS.keys()
    assert all(torch.equal(found.tensors[name], weight) for name, weight in WEIGHTS.items())
    assert found.tensors["norm.weight"].dtype == torch.bfloat16


class Code:
    """Would run something where it is read carelessly."""

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.write_text, (Path("ran"), "yes"))


@pytest.mark.parametrize(
    "data",
    [b"", b"<html>", pickle.dumps(Code(), protocol=2), pickle.dumps({"a": Code()}, protocol=2)],
    ids=["empty", "page", "code", "code as a weight"],
)
def test_a_file_that_is_no_weights_is_refused(folder: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "pytorch_model.bin").write_bytes(data)
    with pytest.raises(ModelLoadError, match=r"pytorch_model.bin is damaged, or holds more than weights"):
        read_checkpoint(folder)
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("form", ["safetensors", "bin"])
def test_half_a_file_is_damaged(folder: Path, form: str) -> None:
    FORMS[form](folder)
    (path,) = (path for path in folder.iterdir() if path.suffix != ".json")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ModelLoadError, match=f"{path.name} is damaged"):
        read_checkpoint(folder)


def test_other_things_than_weights_are_refused(folder: Path) -> None:
    torch.save({"epoch": 3}, folder / "pytorch_model.bin")
    with pytest.raises(ModelLoadError, match="holds other things than weights"):
        read_checkpoint(folder)


def test_what_is_missing_is_named(folder: Path) -> None:
    with pytest.raises(ModelLoadError, match="has no weights"):
        read_checkpoint(folder)
    FORMS["sharded safetensors"](folder)
    (folder / "part-1.safetensors").unlink()
    with pytest.raises(ModelLoadError, match=r"lacks 1 of 3 files of weights: part-1.safetensors"):
        read_checkpoint(folder)
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(ModelLoadError, match="has no weights"):
        read_checkpoint(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ModelLoadError, match=r"config.json does not exist"):
        read_checkpoint(folder)


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_a_damaged_config_is_named(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelLoadError, match=r"config.json is damaged"):
        read_checkpoint(folder)


def test_an_index_cannot_lead_out_of_its_folder(folder: Path) -> None:
    save_file(WEIGHTS, folder.parent / "elsewhere.safetensors")
    index = {"weight_map": {"fc.weight": "../elsewhere.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelLoadError, match="outside its folder"):
        read_checkpoint(folder)
