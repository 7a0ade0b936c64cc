"""What a hub refuses, and connections that fail: each with what to do next."""

from __future__ import annotations

import socket
import threading

import pytest

from localspec.errors import ExitCode, ModelError, NetworkError, UsageError
from tests.hub.conftest import NAME, REPO, Client, whole
from tests.hub.server import NEXT_COMMIT, Fault

pytestmark = pytest.mark.usefixtures("one_repo")


def test_gated_without_a_token(client: Client) -> None:
    client.hub.gated = True
    with pytest.raises(NetworkError, match=r"user/model-GGUF is gated \(401\)") as caught:
        client.get(REPO)
    assert f"{client.hub.url}/{REPO}" in caught.value.hint
    assert "HF_TOKEN" in caught.value.hint


def test_gated_with_a_token_that_has_no_access(client: Client) -> None:
    client.hub.gated = True
    with pytest.raises(NetworkError, match=r"is gated \(403\)") as caught:
        client.get(REPO, token="hf_secret")
    assert "wait until access is granted" in caught.value.hint
    assert "hf_secret" not in caught.value.message + caught.value.hint


def test_a_token_that_is_not_accepted(client: Client) -> None:
    client.hub.api_faults = [Fault(status=401, body=b'{"error":"Invalid credentials in Authorization header"}')]
    with pytest.raises(NetworkError, match=r"does not accept the access token \(401\)") as caught:
        client.get(REPO, token="hf_secret")
    assert "settings/tokens" in caught.value.hint
    assert "hf_secret" not in caught.value.message + caught.value.hint


def test_a_token_that_cannot_be_one(client: Client) -> None:
    with pytest.raises(UsageError) as caught:
        client.get(REPO, token="hf secret\n")
    assert "secret" not in caught.value.message + caught.value.hint


def test_the_environment_gives_the_token(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_fromenv")
    client.hub.private_token = "hf_fromenv"
    whole(client.get(REPO))


def test_403(client: Client) -> None:
    client.hub.file_faults = [Fault(status=403)]
    with pytest.raises(NetworkError, match=r"refuses access to user/model-GGUF \(403\)") as caught:
        client.get(REPO)
    assert "HF_TOKEN" in caught.value.hint


@pytest.mark.parametrize(("token", "status"), [(None, 401), ("hf_some", 404)])
def test_no_such_repository(client: Client, token: str | None, status: int) -> None:
    with pytest.raises(ModelError, match=rf"user/nope is not at http://.*, or it is private \({status}\)") as caught:
        client.get("user/nope", token=token)
    assert caught.value.exit_code == ExitCode.MODEL
    assert ("HF_TOKEN" in caught.value.hint) == (token is None)


def test_a_file_that_vanishes(client: Client) -> None:
    client.hub.file_faults = [Fault(status=404, headers={"X-Error-Code": "EntryNotFound"})]
    with pytest.raises(ModelError, match="no longer has this file"):
        client.get(REPO)


def test_429_waits_as_long_as_it_is_told(client: Client) -> None:
    client.hub.api_faults = [Fault(status=429, headers={"Retry-After": "7"})]
    client.hub.file_faults = [Fault(status=429, headers={"Retry-After": "9"})]
    whole(client.get(REPO))
    assert client.slept == [7, 9]
    assert all("asked too often" in note and "trying again in" in note for note in client.watched.notes)


@pytest.mark.parametrize("where", ["api_faults", "file_faults"])
def test_429_for_too_long(client: Client, where: str) -> None:
    setattr(client.hub, where, [Fault(status=429, headers={"Retry-After": "3600"})])
    with pytest.raises(NetworkError, match=r"\(429\); it asks to wait 3600 s") as caught:
        client.get(REPO)
    assert client.slept == []
    assert "HF_TOKEN" in caught.value.hint


def test_429_with_a_date_and_for_ever(client: Client) -> None:
    client.hub.always = Fault(status=429, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"})
    with pytest.raises(NetworkError, match=r"asked too often \(429\)"):
        client.get(REPO)
    assert client.slept == [0, 0]


def test_an_answer_that_is_no_hubs(client: Client) -> None:
    client.hub.api_faults = [Fault(status=200, body=b"<html>hello</html>")]
    with pytest.raises(NetworkError, match="does not answer as a hub does"):
        client.get(REPO)


# Connections


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.parametrize("place", ["closed port", "no such host"])
def test_nobody_there(client: Client, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    host = f"http://127.0.0.1:{free_port()}" if place == "closed port" else "http://no-such-host.invalid"
    monkeypatch.setenv("HF_ENDPOINT", host)
    with pytest.raises(NetworkError, match=f"{host} cannot be reached") as caught:
        client.get(REPO)
    assert "Check the connection" in caught.value.hint
    assert client.slept == [1, 2]


def test_an_address_that_is_none(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_ENDPOINT", "hub.example.org")
    with pytest.raises(UsageError, match="is not an address"):
        client.get(REPO)


def test_model_endpoint_goes_before_hf_endpoint(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://no-such-host.invalid")
    monkeypatch.setenv("MODEL_ENDPOINT", client.hub.url + "/")
    whole(client.get(REPO))


@pytest.mark.parametrize("where", ["api_faults", "file_faults"])
def test_no_answer_in_time(client: Client, where: str) -> None:
    over = threading.Event()
    setattr(client.hub, where, [Fault(hang=over)] * 3)
    try:
        with pytest.raises(NetworkError, match="does not answer in time"):
            client.get(REPO, timeout=0.05)
    finally:
        over.set()


def test_network_down_and_in_the_cache(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.get(REPO)
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    whole(client.get(REPO))
    (note,) = client.watched.notes
    assert "cannot be reached" in note
    assert note.endswith(f"using {REPO} from the cache")
    assert client.slept == []


def test_an_older_copy_is_offered(client: Client) -> None:
    client.get(REPO)
    client.hub.repos[REPO][NAME] = b"GGUF newer"
    client.hub.commit = NEXT_COMMIT
    client.hub.gated = True
    with pytest.raises(NetworkError) as caught:
        client.get(REPO)
    assert f"An older {REPO} is in the cache: --offline uses it." in caught.value.hint
    whole(client.get(REPO, offline=True))
