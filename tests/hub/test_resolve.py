"""From references to files: what a repository has, what the cache has, and --offline."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import ExitCode, ModelError, NetworkError
from localspec.hub import HubRef, RepoCache, cached, locate, repos, resolve
from tests.hub.conftest import Client
from tests.hub.server import COMMIT, NEXT_COMMIT, FakeHub, Fault

REPO = "user/model-GGUF"
PARTS = [f"Q6_K/big-Q6_K-{index:05}-of-00003.gguf" for index in (1, 2, 3)]


@pytest.fixture(autouse=True)
def repo(hub: FakeHub) -> None:
    hub.repos[REPO] = {
        name: f"GGUF {name}".encode() for name in ("mmproj-Q4_K_M.gguf", "a-F16.gguf", "a-Q8_0.gguf", *PARTS)
    }
    hub.repos["user/words"] = {"README.md": b"#", "model.safetensors": b"x"}


def test_default_and_named_quantisations(client: Client) -> None:
    assert client.get(REPO).name == "a-Q8_0.gguf"
    assert client.get(f"{REPO}:f16").name == "a-F16.gguf"
    assert client.get(REPO, "A-f16.GGUF").name == "a-F16.gguf"
    assert client.get(f"{REPO}:f16", "a-Q8_0.gguf").name == "a-Q8_0.gguf"


@pytest.mark.parametrize("file", [None, PARTS[2]])
def test_all_parts_of_a_split_model(client: Client, file: str | None) -> None:
    path = client.get(f"{REPO}:Q6_K", file)
    assert path.name == "big-Q6_K-00001-of-00003.gguf"
    for name in PARTS:
        assert (path.parent.parent / name).read_bytes() == f"GGUF {name}".encode()
    assert [begun[0] for begun in client.watched.begun] == PARTS
    assert "mmproj" not in str([request.path for request in client.hub.requests])


def test_a_set_with_a_part_missing_on_the_hub(client: Client) -> None:
    del client.hub.repos[REPO][PARTS[1]]
    with pytest.raises(ModelError, match="lacks 1 of 3 parts"):
        client.get(f"{REPO}:Q6_K")


def test_no_such_quantisation(client: Client) -> None:
    with pytest.raises(ModelError, match=f"{REPO} has no Q5_0") as caught:
        client.get(f"{REPO}:Q5_0")
    assert caught.value.exit_code == ExitCode.MODEL
    assert caught.value.hint == "It has F16, Q8_0, Q6_K."


def test_no_such_file(client: Client) -> None:
    with pytest.raises(ModelError, match=r"has no b\.gguf") as caught:
        client.get(REPO, "b.gguf")
    assert "a-F16.gguf, a-Q8_0.gguf" in caught.value.hint


def test_no_model_at_all(client: Client) -> None:
    with pytest.raises(ModelError, match="user/words holds no GGUF model") as caught:
        client.get("user/words")
    assert "GGUF in its name" in caught.value.hint


def test_names_that_leave_the_cache_are_left_out(client: Client) -> None:
    client.hub.repos[REPO] = {"../../../up-Q4_K_M.gguf": b"GGUF", "a-F16.gguf": b"GGUF a"}
    assert client.get(REPO).name == "a-F16.gguf"


# Offline


@pytest.mark.parametrize("how", ["flag", "variable"])
def test_offline_asks_nobody(client: Client, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    path = client.get(REPO)
    client.hub.requests.clear()
    if how == "variable":
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert client.get(REPO, offline=how == "flag") == path
    assert client.get(f"{REPO}:q8_0", offline=how == "flag") == path
    assert client.hub.requests == []


def test_offline_without_it(client: Client) -> None:
    with pytest.raises(ModelError, match=f"{REPO}:F16 is not in the cache .*, and without the network") as caught:
        client.get(f"{REPO}:F16", offline=True)
    assert "--offline" in caught.value.hint
    client.get(REPO)
    with pytest.raises(ModelError, match="has no F16") as caught:
        client.get(f"{REPO}:F16", offline=True)
    assert caught.value.hint == "It has Q8_0. Or leave --offline out."
    assert client.hub.requests[-1].method == "GET"


def test_offline_finds_what_an_older_commit_has(client: Client) -> None:
    old = client.get(f"{REPO}:F16")
    client.hub.commit = NEXT_COMMIT
    client.get(REPO)
    assert client.get(f"{REPO}:F16", offline=True) == old


def test_offline_wants_all_parts(client: Client) -> None:
    path = client.get(f"{REPO}:Q6_K")
    (path.parent / Path(PARTS[1]).name).unlink()
    assert cached(HubRef(REPO, "Q6_K")) is None
    with pytest.raises(ModelError):
        client.get(f"{REPO}:Q6_K", offline=True)


def test_a_hub_in_trouble_and_nothing_here(client: Client) -> None:
    client.hub.api_faults = [Fault(status=500)] * 3
    with pytest.raises(NetworkError, match=r"cannot answer now \(500\)"):
        client.get(REPO)
    assert client.slept == [1, 2]


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_a_hub_in_trouble_and_a_copy_here(client: Client, status: int) -> None:
    path = client.get(REPO)
    client.hub.api_faults = [Fault(status=status)]
    assert client.get(REPO) == path
    (note,) = client.watched.notes
    assert str(status) in note
    assert note.endswith("from the cache")


# The cache


def test_a_link_whose_blob_is_gone_is_made_anew(client: Client) -> None:
    path = client.get(REPO)
    path.resolve().unlink()
    assert client.get(REPO).read_bytes() == b"GGUF a-Q8_0.gguf"


def test_where_links_are_not_possible(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(1, "not here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    path = client.get(REPO)
    assert not path.is_symlink()
    assert path.read_bytes() == b"GGUF a-Q8_0.gguf"
    client.hub.requests.clear()
    assert client.get(REPO) == path
    assert client.hub.ranges == []


def test_a_cache_that_may_only_be_read(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    path = client.get(REPO)

    def refuse(*_arguments: object, **_more: object) -> None:
        raise PermissionError(13, "Permission denied")

    for name in ("mkdir", "write_text", "replace", "symlink_to"):
        monkeypatch.setattr(Path, name, refuse)
    (client.cache / "models--user--model-GGUF" / "refs" / "main").unlink()
    assert client.get(REPO) == path


def test_links_are_found_in_the_cache(client: Client) -> None:
    path = client.get(f"{REPO}:Q6_K")
    assert [one.repo for one in repos(client.cache)] == [REPO]
    assert locate(path, client.cache) == (RepoCache(client.cache, REPO), PARTS[0])
    assert path.parent.parent == RepoCache(client.cache, REPO).snapshot(COMMIT)
    assert locate(path.resolve(), client.cache) is None
    assert locate(Path("/elsewhere/a.gguf"), client.cache) is None


# Checkpoints, for what runs on torch

HEAD = "user/head"


def draft(client: Client, repo: str, *, offline: bool = False) -> Path:
    return resolve(HubRef.parse(repo, checkpoint=True), progress=client.watched, offline=offline)


def test_a_checkpoint_is_a_folder_of_what_it_needs(client: Client) -> None:
    files = {
        "config.json": b"{}",
        "model.safetensors.index.json": b'{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}',
        "model-1.safetensors": b"a",
        "model-2.safetensors": b"b",
        "tokenizer.json": b"{}",
    }
    client.hub.repos[HEAD] = {**files, "pytorch_model.bin": b"x", "README.md": b"#", "training_state.pt": b"y"}
    folder = draft(client, HEAD)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files
    client.hub.requests.clear()
    assert draft(client, HEAD, offline=True) == folder
    assert client.hub.requests == []
    (folder / "model-2.safetensors").unlink()
    with pytest.raises(ModelError, match="is not in the cache"):
        draft(client, HEAD, offline=True)


def test_a_checkpoint_in_one_file_of_another_name(client: Client) -> None:
    client.hub.repos[HEAD] = {"config.json": b"{}", "medusa_lm_head.pt": b"x"}
    assert {path.name for path in draft(client, HEAD).iterdir()} == {"config.json", "medusa_lm_head.pt"}


def test_a_gguf_model_is_preferred_and_targets_are_never_checkpoints(client: Client) -> None:
    assert draft(client, REPO).name == "a-Q8_0.gguf"
    client.hub.repos[HEAD] = {"config.json": b"{}", "model.safetensors": b"x"}
    with pytest.raises(ModelError, match="holds no GGUF model"):
        client.get(HEAD)
    with pytest.raises(ModelError, match="user/words holds no GGUF model"):  # no config
        draft(client, "user/words")
    with pytest.raises(ModelError, match="no GGUF model"):
        draft(client, f"{HEAD}:Q8_0")
