"""What can draft for a target: files that are here, and what is published."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.cli import models
from localspec.errors import ExitCode, ModelError
from localspec.hub import is_repo
from localspec.hub.shelf import Entry
from localspec.models.drafters import Drafter, known
from localspec.models.pairing import here, made_for, published, target_called, words
from tests.hub.conftest import Client
from tests.hub.test_cli import run
from tests.support.gguf_blocks import TinyBlock
from tests.support.gguf_files import TokenizerKeys
from tests.support.gguf_heads import TinyHead

TYPES = {"draft-simple", "draft-eagle", "draft-eagle3", "draft-medusa", "draft-mtp", "draft-dflash", "draft-pard"}
ALL_TYPES = sorted(TYPES)


def write(
    path: Path,
    *,
    name: str = "some model",
    architecture: str = "llama",
    width: int = 64,
    rows: int = 32,
    tokens: int = 10,
    splits: str | None = None,
    guessing_layers: int = 0,
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    writer.add_embedding_length(width)
    writer.add_block_count(2)
    writer.add_token_list([f"token {i}" for i in range(tokens)])
    if splits is not None:
        writer.add_tokenizer_pre(splits)
    if guessing_layers:
        writer.add_uint32(f"{architecture}.nextn_predict_layers", guessing_layers)
    for layer in range(2 - guessing_layers, 2):
        writer.add_tensor(f"blk.{layer}.nextn.eh_proj.weight", np.ones((1, 1), np.float32))
    writer.add_tensor("blk.0.weight", np.ones((rows, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def entries(*paths: Path) -> list[Entry]:
    return [Entry.of(str(path), path) for path in paths]


# The list


def test_every_entry_says_where_it_is_and_who_says_so() -> None:
    assert len(known()) > 50
    for one in known():
        assert is_repo(one.repo)
        assert all(map(is_repo, one.targets))
        assert one.targets or one.tokens
        assert one.type in TYPES
        assert one.format in ("gguf", "safetensors")
        assert one.source
        assert one.revision == "main" or re.fullmatch("[0-9a-f]{40}", one.revision)
        assert one.revision != "main" or not one.checked
        assert (one.tokenizer is None) == (one.tokens is None)
    assert len({(one.repo, one.type) for one in known()}) == len(known())


def test_a_key_that_is_none_is_refused() -> None:
    group = {"type": "draft-simple", "format": "gguf", "source": "x", "licence": "mit", "drafters": []}
    assert Drafter.read({"repo": "a/b", "targets": ["c/d"]}, group).licence == "mit"
    with pytest.raises(ValueError, match="a/b: no such keys: license"):
        Drafter.read({"repo": "a/b", "license": "mit"}, group)


# Names


@pytest.mark.parametrize(
    ("name", "published_as"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Qwen/Qwen3-8B"),
        ("bartowski/Qwen_Qwen3-8B-GGUF:Q4_K_M", "Qwen/Qwen3-8B"),
        ("qwen3-8b-ud-q4_k_xl.gguf", "Qwen/Qwen3-8B"),
        ("Meta Llama 3.1 8B Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("llama-2-7b-chat.Q4_K_M.gguf", "meta-llama/Llama-2-7b-chat-hf"),
        ("SmolLM2-1.7B-Instruct-F16.gguf", "HuggingFaceTB/SmolLM2-1.7B-Instruct"),
    ],
)
def test_names_of_one_model(name: str, published_as: str) -> None:
    assert words(name) == words(published_as)
    assert made_for([name])


@pytest.mark.parametrize(
    "name", ["Qwen3-8B-Base.gguf", "Tessa-Qwen3-8B.gguf", "Qwen3-80B.gguf", "DeepSeek-R1-0528-Qwen3-8B", "model", ""]
)
def test_names_of_other_models(name: str) -> None:
    assert not [one for one in made_for([name]) if "Qwen/Qwen3-8B" in one.targets]


def test_a_model_of_another_architecture_is_another_whatever_it_is_called() -> None:
    heads = [one.repo for one in made_for(["Qwen3-8B"], "qwen3")]
    assert "AngelSlim/Qwen3-8B_eagle3" in heads
    assert "AngelSlim/Qwen3-8B_eagle3" not in [one.repo for one in made_for(["Qwen3-8B"], "llama")]


# What is here


def test_smaller_models_of_the_same_vocabulary_and_heads_of_the_same_width(tmp_path: Path) -> None:
    target = write(tmp_path / "target.gguf", rows=400)
    small = write(tmp_path / "small.gguf")
    large = write(tmp_path / "large.gguf", rows=390)
    foreign = write(tmp_path / "foreign.gguf", tokens=300)
    head, other = tmp_path / "head.gguf", tmp_path / "other.gguf"
    TinyHead(10, 64, (0, 1, 1)).write(head, TokenizerKeys({}))
    TinyHead(10, 32, (0, 1, 1)).write(other, TokenizerKeys({}))
    block, narrow = tmp_path / "block.gguf", tmp_path / "narrow.gguf"
    TinyBlock(10, 64, (0, 1), rank=4).write(block, TokenizerKeys({}))
    TinyBlock(10, 32, (0, 1)).write(narrow, TokenizerKeys({}))
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    all_of_them = entries(target, small, small, large, foreign, head, other, block, narrow, broken)
    found = list(here(target_called(str(target)), all_of_them))
    assert [(one.path, one.type) for one in found] == [
        (small, "draft-simple"),
        (head, "draft-eagle3"),
        (block, "draft-dspark"),
    ]
    assert "10 tokens" in found[0].why
    assert "width 64" in found[1].why
    assert found[0].command == f"localspec chat -m {target} -md {small}"


def test_a_target_that_has_layers_that_guess(tmp_path: Path) -> None:
    target = write(tmp_path / "target.gguf", architecture="glm4moe", guessing_layers=1)
    (own,) = here(target_called(str(target)), entries(target))
    assert (own.type, own.why) == ("draft-mtp", "its own file has 1 layer that guesses")
    assert own.command == f"localspec chat -m {target} --spec-type draft-mtp"


def test_layers_that_guess_beside_their_target(tmp_path: Path) -> None:
    target = write(tmp_path / "target.gguf", architecture="glm4moe")
    layers = write(tmp_path / "mtp.gguf", architecture="glm4moe", guessing_layers=1)
    write(tmp_path / "other.gguf", architecture="mimo2", guessing_layers=1)
    (found,) = here(target_called(str(target)), entries(layers, tmp_path / "other.gguf"))
    assert (found.path, found.type) == (layers, "draft-mtp")


@pytest.mark.parametrize("architecture", ["llama", "qwen35"])
def test_layers_that_cannot_be_run_are_none(tmp_path: Path, architecture: str) -> None:
    target = write(tmp_path / "target.gguf", architecture=architecture, guessing_layers=1)
    assert not list(here(target_called(str(target)), entries(target)))


def test_no_file_drafts_for_a_target_that_is_not_here(client: Client, tmp_path: Path) -> None:
    assert not list(here(target_called("Qwen/Qwen3-8B"), entries(write(tmp_path / "a.gguf"))))


# What is published


def test_what_is_published_by_name(client: Client) -> None:
    found = published(target_called("Qwen/Qwen3-8B"), ["draft-simple", "draft-eagle3"])
    small, *heads = found
    assert (small.name, small.needs) == ("Qwen/Qwen3-0.6B-GGUF", ())
    assert small.command == "localspec chat -m TARGET.gguf -hfd Qwen/Qwen3-0.6B-GGUF -hffd Qwen3-0.6B-Q8_0.gguf"
    by_name = {one.name: one for one in heads}
    eagle, block = by_name["AngelSlim/Qwen3-8B_eagle3"], by_name["z-lab/Qwen3-8B-DFlash-b16"]
    assert eagle.needs == ("PyTorch: it is a Hugging Face checkpoint, not GGUF",)
    assert eagle.command == "localspec chat -m TARGET.gguf -hfd AngelSlim/Qwen3-8B_eagle3"
    assert "--spec-type draft-dflash" in block.needs[0]
    assert "convert_hf_to_gguf" in block.needs[1]
    assert block.command == ""
    assert all(one.why.endswith("Qwen/Qwen3-8B") for one in found)


def test_what_is_published_by_vocabulary(tmp_path: Path) -> None:
    target = target_called(str(write(tmp_path / "mine.gguf", splits="smollm", tokens=49150)))
    assert published(target, ALL_TYPES) == []  # it is smaller itself
    (found,) = published(replace(target, parameters=1_350_000_000), ALL_TYPES)
    assert found.name == "HuggingFaceTB/SmolLM2-135M-Instruct-GGUF"
    assert found.why == "the same tokenizer (smollm, 49152 tokens), 10 times smaller"
    other = target_called(str(write(tmp_path / "other.gguf", splits="gpt-2", tokens=49150)))
    assert published(replace(other, parameters=1_350_000_000), ALL_TYPES) == []


def test_a_repository_of_gguf_files_is_named_in_the_command(client: Client) -> None:
    found = published(target_called("ggml-org/Qwen3.6-27B-GGUF"), ALL_TYPES)
    own = next(one for one in found if one.type == "draft-mtp")
    assert own.command == "localspec chat -hf ggml-org/Qwen3.6-27B-GGUF --spec-type draft-mtp"


def test_a_head_is_no_target(tmp_path: Path) -> None:
    head = tmp_path / "head.gguf"
    TinyHead(10, 64, (0, 1, 1)).write(head, TokenizerKeys({}))
    with pytest.raises(ModelError, match=r"head\.gguf is itself a drafter \(draft-eagle3\), not a target"):
        target_called(str(head))


def test_nothing_known_for_what_is_not_here_is_an_error(client: Client) -> None:
    with pytest.raises(ModelError, match="nobody/nothing is not in the cache"):
        target_called("nobody/nothing")


# The commands


def test_pair_tells_files_first_then_what_is_published(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repo, name = "bartowski/Qwen_Qwen3-8B-GGUF", "Qwen_Qwen3-8B-Q4_K_M.gguf"
    source = write(tmp_path / "source.gguf", architecture="qwen3", rows=400)
    client.hub.repos[repo] = {name: source.read_bytes()}
    client.get(repo)
    folder = tmp_path / "mine"
    folder.mkdir()
    small = write(folder / "small.gguf", name="\x1b[31mred", architecture="qwen3")
    assert run(models.pair, model=repo, models_dir=str(folder)) == ExitCode.OK
    out = capsys.readouterr().out
    first, why, command, *_ = out.splitlines()
    assert first == f"{small} (draft-simple)"
    assert "on this machine" in why
    assert command == f"  localspec chat -m {repo} -md {small}"
    assert "\nAngelSlim/Qwen3-8B_eagle3 (draft-eagle3)\n  made for Qwen/Qwen3-8B; published\n  needs PyTorch: it" in out
    assert run(models.pair, model=repo, models_dir=str(folder), json=True) == ExitCode.OK
    partners = json.loads(capsys.readouterr().out)["partners"]
    assert partners[0]["path"] == str(small)
    assert partners[0]["listed"] is None
    assert {"AngelSlim/Qwen3-8B_eagle3", "Qwen/Qwen3-0.6B-GGUF"} <= {one["name"] for one in partners}
    assert run(models.ls) == ExitCode.OK
    assert re.search(r"Qwen_Qwen3-8B-GGUF:Q4_K_M .* \d+ known$", capsys.readouterr().out, re.MULTILINE)
    assert run(models.info, model=repo) == ExitCode.OK
    assert re.search(r"^drafters +AngelSlim/Qwen3-8B_eagle3 \(draft-eagle3\), ", capsys.readouterr().out, re.MULTILINE)


def test_pair_says_where_nothing_is_known(client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "unheard-of.gguf")
    assert run(models.pair, model=str(path)) == ExitCode.OK
    assert capsys.readouterr() == (
        "",
        "localspec: nothing is known that was made for it; suffixes and n-grams guess without a file (--spec-type), "
        "and localspec train makes a head\n",
    )


@pytest.mark.parametrize(
    ("model", "words_of_it"),
    [
        ("nobody/nothing", "is not in the cache"),
        ("missing.gguf", "does not exist"),
        ("broken.gguf", "damaged header"),
        ("no model", "does not exist"),
    ],
)
def test_pair_refuses_what_is_no_model(
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: str,
    words_of_it: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF\x03\0\0\0")
    assert run(models.pair, model=model) == ExitCode.MODEL
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words_of_it in err
