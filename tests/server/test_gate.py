"""Who may come in: keys, pages of other sites, other names for this machine."""

from __future__ import annotations

import pytest

from localspec.server.gate import bad_origins, is_loopback
from tests.server.support import HELLO, Site, serving

CHAT = "/v1/chat/completions"
HI = {"messages": HELLO, "max_tokens": 1}


def test_one_of_the_keys_is_needed_everywhere_but_at_the_door() -> None:
    with serving(keys=("first", "second")) as site:
        for path in ("/v1/models", "/props", "/slots", "/metrics", "/openapi.json"):
            got = site.client.get(path)
            assert (got.status_code, got.json()["error"]["code"]) == (401, "invalid_api_key")
        for path in ("/health", "/v1/health", "/"):
            assert site.client.get(path).status_code == 200
        for wrong in (b"Bearer third", b"Bearer", b"first", b"Basic first", b"Bearer first2", b"Bearer \xff"):
            assert site.client.post(CHAT, json=HI, headers={b"Authorization": wrong}).status_code == 401
        for right in ({"Authorization": "Bearer first"}, {"authorization": "bearer second"}, {"X-Api-Key": "second"}):
            assert site.client.post(CHAT, json=HI, headers=right).status_code == 200


def test_pages_of_other_sites_may_not_ask(site: Site) -> None:
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        got = site.post(CHAT, HI, Origin=origin)
        assert (got.status_code, got.json()["error"]["code"]) == (403, "origin_refused")
        assert "access-control-allow-origin" not in got.headers
    preflight = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    assert site.client.options(CHAT, headers=preflight).status_code == 403
    assert site.post(CHAT, HI, Origin=site.url).status_code == 200  # its own page


def test_pages_that_are_named_may() -> None:
    with serving(origins=("https://chat.example",), keys=("k",)) as site:
        ask = {"Origin": "https://chat.example", "Access-Control-Request-Method": "POST"}
        got = site.client.options(CHAT, headers={**ask, "Access-Control-Request-Headers": "authorization"})
        assert (got.status_code, got.headers["access-control-allow-origin"]) == (204, "https://chat.example")
        assert got.headers["access-control-allow-headers"] == "authorization"
        got = site.post(CHAT, HI, Origin="https://chat.example", Authorization="Bearer k")
        assert (got.status_code, got.headers["access-control-allow-origin"]) == (200, "https://chat.example")
        assert site.post(CHAT, HI, Origin="https://other.example", Authorization="Bearer k").status_code == 403
        got = site.post(CHAT, HI, Origin="https://chat.example")
        assert (got.status_code, got.headers["access-control-allow-origin"]) == (401, "https://chat.example")


def test_a_local_server_has_local_names(site: Site) -> None:
    port = site.url.rpartition(":")[2]
    for host in (f"localhost:{port}", "127.0.0.1", f"127.8.9.1:{port}", "[::1]:80"):
        assert site.client.get("/health", headers={"Host": host}).status_code == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "[::1"):
        got = site.client.get("/health", headers={"Host": host})
        assert (got.status_code, got.json()["error"]["code"]) == (403, "host_refused")


@pytest.mark.parametrize("name", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback(name: str) -> None:
    assert is_loopback(name)
    assert not is_loopback(f"{name}x")


def test_origins_are_checked() -> None:
    fine = ("*", "https://a.example", "http://127.0.0.1:3000")
    wrong = ("a.example", "https://a.example/path", "https://", "http://[")
    assert bad_origins((*fine, *wrong)) == list(wrong)


def test_no_type_is_guessed(site: Site) -> None:
    assert site.client.get("/health").headers["x-content-type-options"] == "nosniff"
