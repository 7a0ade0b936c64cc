"""Downloads that go wrong: the file is complete and has its checksum, or it is absent, and a line says what to do."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import ExitCode, LocalspecError, ModelError, NetworkError
from tests.hub.conftest import CONTENT, NAME, REPO, SHA, Client, whole
from tests.hub.server import COMMIT, NEXT_COMMIT, FakeHub, Fault

PARTIAL = f"{SHA}.incomplete"
HALF = len(CONTENT) // 2


pytestmark = pytest.mark.usefixtures("one_repo")


def leave_part(client: Client, content: bytes) -> None:
    blobs = client.cache / "models--user--model-GGUF" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / PARTIAL).write_bytes(content)


def test_a_download_lies_in_the_cache_as_hugging_face_lays_it(client: Client) -> None:
    path = client.get(REPO)
    whole(path)
    folder = client.cache / "models--user--model-GGUF"
    assert path == folder / "snapshots" / COMMIT / NAME
    assert path.resolve() == folder / "blobs" / SHA
    assert not Path(os.readlink(path)).is_absolute()
    assert (folder / "refs" / "main").read_text() == COMMIT
    assert client.stored() == [SHA]
    assert client.watched.begun == [(NAME, len(CONTENT), 0)]
    assert client.watched.done == len(CONTENT)
    assert client.watched.ended == [True]
    from huggingface_hub import scan_cache_dir, try_to_load_from_cache

    assert try_to_load_from_cache(REPO, NAME, cache_dir=client.cache) == str(path)
    assert scan_cache_dir(client.cache).warnings == []


def test_what_is_there_is_not_fetched_again(client: Client) -> None:
    client.get(REPO)
    client.hub.requests.clear()
    whole(client.get(REPO))
    assert client.hub.ranges == []


def test_what_huggingface_hub_fetched_is_used(client: Client) -> None:
    from huggingface_hub import hf_hub_download

    path = hf_hub_download(REPO, NAME, cache_dir=client.cache, endpoint=client.hub.url)
    client.hub.requests.clear()
    assert client.get(REPO) == Path(path)
    assert client.hub.ranges == []


def test_a_newer_commit_with_the_same_content_costs_a_link(client: Client) -> None:
    client.get(REPO)
    client.hub.commit = NEXT_COMMIT
    client.hub.requests.clear()
    path = client.get(REPO)
    whole(path)
    assert path.parent.name == NEXT_COMMIT
    assert client.hub.ranges == []
    assert client.get(REPO, offline=True) == path


def test_cut_at_40_percent_and_resumed_at_once(client: Client) -> None:
    client.hub.file_faults = [Fault(cut=0.4)]
    whole(client.get(REPO))
    first, second = client.hub.ranges
    assert first is None
    assert second == f"bytes={int(len(CONTENT) * 0.4)}-"
    assert client.watched.done == len(CONTENT)


def test_cut_for_good_and_resumed_by_the_next_command(client: Client) -> None:
    client.hub.file_faults = [Fault(cut=0.4), *[Fault(status=503)] * 2]
    with pytest.raises(NetworkError, match=r"cannot answer now \(503\)") as caught:
        client.get(REPO)
    assert "Try again later" in caught.value.hint
    assert client.stored() == [PARTIAL]
    with pytest.raises(ModelError):
        client.get(REPO, offline=True)
    client.hub.requests.clear()
    whole(client.get(REPO))
    assert client.hub.ranges == [f"bytes={int(len(CONTENT) * 0.4)}-"]
    assert client.stored() == [SHA]
    assert client.watched.begun[-1] == (NAME, len(CONTENT), int(len(CONTENT) * 0.4))


def test_waits_grow_and_progress_starts_them_anew(client: Client) -> None:
    client.hub.file_faults = [Fault(status=500), Fault(status=502), Fault(cut=0.4), Fault(status=504), Fault(cut=0.9)]
    whole(client.get(REPO))
    assert client.slept == [1, 2, 1, 2, 1]


def test_a_server_that_ignores_the_range(client: Client) -> None:
    leave_part(client, CONTENT[:HALF])
    client.hub.always = Fault(ignores_range=True)
    whole(client.get(REPO))
    assert client.hub.ranges == [f"bytes={HALF}-"]
    assert client.watched.done == len(CONTENT)


def test_another_range_than_was_asked_for(client: Client) -> None:
    leave_part(client, CONTENT[:HALF])
    client.hub.file_faults = [Fault(wrong_range=True)]
    whole(client.get(REPO))
    assert client.hub.ranges == [f"bytes={HALF}-", None]
    assert client.watched.notes == []  # no second download because of a wrong checksum


def test_416_starts_from_zero(client: Client) -> None:
    leave_part(client, CONTENT[:HALF])
    client.hub.file_faults = [Fault(status=416)]
    whole(client.get(REPO))
    assert client.hub.ranges == [f"bytes={HALF}-", None]


def test_416_for_ever(client: Client) -> None:
    client.hub.always = Fault(status=416)
    with pytest.raises(NetworkError, match="cannot send"):
        client.get(REPO)


def test_a_part_that_is_longer_than_the_file(client: Client) -> None:
    leave_part(client, CONTENT + b"more")
    whole(client.get(REPO))
    assert client.hub.ranges == [None]


def test_a_part_that_is_the_whole_file(client: Client) -> None:
    leave_part(client, CONTENT)
    whole(client.get(REPO))
    assert client.hub.ranges == []


def test_a_part_of_another_content_is_found_out(client: Client) -> None:
    leave_part(client, b"x" * HALF)
    whole(client.get(REPO))
    assert client.hub.ranges == [f"bytes={HALF}-", None]
    assert "arrived damaged; fetching it once more" in client.watched.notes[0]


@pytest.mark.parametrize(
    ("body", "chunked", "sent", "requests"),
    [
        (CONTENT + b"and more", False, "sends 768012", 1),
        (CONTENT + b"and more", True, "sends more", 1),
        (b"<html>please sign in</html>", False, "sends 27", 1),
        (b"<html>please sign in</html>", True, "sends only 27 B", 3),
    ],
)
def test_wrong_size(client: Client, body: bytes, chunked: bool, sent: str, requests: int) -> None:
    """What says its length is refused before a byte is kept; what does not is asked for the rest first."""
    client.hub.always = Fault(body=body, chunked=chunked, ignores_range=True)
    with pytest.raises(NetworkError, match=sent) as caught:
        client.get(REPO)
    assert caught.value.exit_code == ExitCode.NETWORK
    assert caught.value.hint
    assert SHA not in client.stored()
    assert len(client.hub.ranges) == requests
    client.hub.always = None
    whole(client.get(REPO))


def test_wrong_content(client: Client) -> None:
    client.hub.always = Fault(body=b"x" * len(CONTENT))
    with pytest.raises(NetworkError, match="arrived damaged twice: its checksum") as caught:
        client.get(REPO)
    assert "Try again" in caught.value.hint
    assert client.stored() == []
    assert client.watched.ended == [False]


def test_files_without_lfs_are_checked_by_gits_sum(client: Client) -> None:
    client.hub.lfs = False
    path = client.get(REPO)
    whole(path)
    assert path.resolve().name == client.hub.etag(CONTENT)
    assert len(path.resolve().name) == 40
    path.unlink()
    path.parent.parent.parent.joinpath("blobs", client.hub.etag(CONTENT)).unlink()
    client.hub.always = Fault(body=b"x" * len(CONTENT))
    with pytest.raises(NetworkError, match="damaged twice"):
        client.get(REPO)


def test_a_mirror_that_lists_names_alone(client: Client) -> None:
    client.hub.lists_blobs = False
    path = client.get(REPO)
    whole(path)
    assert path.resolve().name == SHA


def test_the_token_does_not_go_to_other_hosts(client: Client) -> None:
    client.hub.cdn = True
    whole(client.get(REPO, token="hf_secret"))
    tokens = {request.path.split("/")[1]: request.token for request in client.hub.requests}
    assert tokens == {"api": "Bearer hf_secret", "user": "Bearer hf_secret", "cdn": None}


def test_a_cut_behind_a_redirect(client: Client) -> None:
    client.hub.cdn = True
    client.hub.file_faults = [Fault(cut=0.4)]
    whole(client.get(REPO))


# The disk


def test_too_little_space_is_seen_before(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("localspec.hub.download.shutil.disk_usage", lambda path: usage)
    with pytest.raises(LocalspecError, match=r"needs 768 kB of space, and .* has 1\.0 kB free") as caught:
        client.get(REPO)
    assert caught.value.exit_code == ExitCode.RUNTIME
    assert "HF_HUB_CACHE" in caught.value.hint
    assert client.hub.ranges == []


def test_the_disk_fills_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    advance = client.watched.advance

    def full(count: int) -> None:
        advance(count)
        if client.watched.done > HALF:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(client.watched, "advance", full)
    with pytest.raises(LocalspecError, match="is full") as caught:
        client.get(REPO)
    assert caught.value.exit_code == ExitCode.RUNTIME
    assert "Free some space" in caught.value.hint
    assert "that arrived are kept" in caught.value.hint
    assert client.stored() == [PARTIAL]
    monkeypatch.undo()
    client.watched.advance = advance  # type: ignore[method-assign]


def test_a_cache_that_cannot_be_written(client: Client) -> None:
    client.cache.write_text("a file in its place")
    with pytest.raises(LocalspecError, match="cannot be written") as caught:
        client.get(REPO)
    assert caught.value.exit_code == ExitCode.RUNTIME


# Interruptions and neighbours


def test_ctrl_c_keeps_the_part(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    advance = client.watched.advance

    def interrupt(count: int) -> None:
        advance(count)
        if client.watched.done > HALF:
            raise KeyboardInterrupt

    monkeypatch.setattr(client.watched, "advance", interrupt)
    with pytest.raises(KeyboardInterrupt):
        client.get(REPO)
    monkeypatch.setattr(client.watched, "advance", advance)
    assert client.stored() == [PARTIAL]
    assert client.watched.ended == [False]
    whole(client.get(REPO))
    (last,) = client.hub.ranges[1:]
    assert last is not None
    assert int(last.removeprefix("bytes=").rstrip("-")) > HALF


def test_two_at_the_same_time_fetch_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits for the first, says so, and finds the file."""
    over = threading.Event()
    client.hub.file_faults = [Fault(hang=over)]
    first = threading.Thread(target=client.get, args=(REPO,))
    first.start()
    while not client.hub.ranges:
        time.sleep(0.005)
    second = Client(client.hub, client.cache)
    path: list[Path] = []
    other = threading.Thread(target=lambda: path.append(second.get(REPO)))
    other.start()
    while not second.watched.notes and other.is_alive():
        time.sleep(0.005)
    over.set()
    first.join()
    other.join()
    whole(path[0])
    assert client.hub.ranges == [None]
    assert second.watched.notes == [f"another process is downloading {NAME}; waiting for it"]


def test_the_lock_is_huggingface_hubs(client: Client) -> None:
    client.get(REPO)
    assert (client.cache / ".locks" / "models--user--model-GGUF" / f"{SHA}.lock").exists()


def test_a_killed_process_leaves_a_part(client: Client, hub: FakeHub) -> None:
    over = threading.Event()
    hub.file_faults = [Fault(cut=0.4, stall=over)]
    code = "import sys; from localspec.hub import *; resolve(HubRef.parse(sys.argv[1]))"
    process: subprocess.Popen[Any] = subprocess.Popen([sys.executable, "-c", code, REPO])
    while not any(path.stat().st_size for path in client.cache.glob("*/blobs/*.incomplete")):
        time.sleep(0.01)
    process.kill()
    process.wait()
    over.set()
    assert client.stored() == [PARTIAL]
    whole(client.get(REPO))
