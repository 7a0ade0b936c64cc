"""Addresses of servers, and what is said where one does not answer."""

from __future__ import annotations

import httpx2

from localspec.errors import NetworkError, UsageError


def checked(url: str) -> str:
    """The URL of a server.

    Raises:
        UsageError: it is none.
    """
    if not _is_web_address(url):
        raise UsageError(f"{url!r} is not the URL of a server", hint="Give one such as http://127.0.0.1:8080.")
    return url


def root(url: str) -> str:
    """Without ``/v1``."""
    return url.rstrip("/").removesuffix("/v1")


def unreachable(url: str, error: Exception) -> NetworkError:
    reason = str(error).rstrip(".")
    return NetworkError(f"{url} cannot be reached: {reason}", hint="Check that the server runs and the URL is right.")


def _is_web_address(text: str) -> bool:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        return False
    return url.scheme in ("http", "https") and bool(url.host) and not any(map(str.isspace, text))
