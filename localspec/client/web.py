"""Addresses of servers, and what is said where one does not answer."""

from __future__ import annotations

import httpx2

from localspec.errors import NetworkError, UsageError

#: Seconds after which an idle connection is not used again. Servers close theirs after five, often in the very moment
#: in which the next request is on its way.
_KEPT_S = 1.0
_LAST_PORT = 2**16 - 1
#: What OpenSSL says, in its versions, of an answer that is none of TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


class Broken(NetworkError):
    """A server is there, and this answer failed or cannot be read."""


def client(timeout: httpx2.Timeout | float, api_key: str | None = None, *, kept_s: float = _KEPT_S) -> httpx2.Client:
    """For a server that speaks HTTP.

    Args:
        kept_s: seconds after which an idle connection is not used again.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    return httpx2.Client(timeout=timeout, headers=headers, limits=httpx2.Limits(keepalive_expiry=kept_s))


def checked(url: str) -> str:
    """The URL of a server.

    Raises:
        UsageError: it is none.
    """
    if not _is_web_address(url):
        raise UsageError(f"{url!r} is not the URL of a server", hint="Give one such as http://127.0.0.1:8080.")
    return url


def shown(url: str) -> str:
    """Without user and password, for messages."""
    return str(httpx2.URL(url).copy_with(userinfo=b""))


def root(url: str) -> str:
    """Without ``/v1``."""
    return url.rstrip("/").removesuffix("/v1")


def unreachable(url: str, error: Exception) -> NetworkError:
    reason = str(error).rstrip(".")
    plain = any(sign in reason for sign in _NO_TLS)
    hint = "It may speak plain HTTP: try http://." if plain else "Check that the server runs and the URL is right."
    return NetworkError(f"{url} cannot be reached: {reason}", hint=hint)


def _is_web_address(text: str) -> bool:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        return False
    names_a_place = bool(url.host) and (url.port or 0) <= _LAST_PORT and not (url.query or url.fragment)
    return url.scheme in ("http", "https") and names_a_place and not any(map(str.isspace, text))
