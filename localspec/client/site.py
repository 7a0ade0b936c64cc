"""A server as it is asked: requests, and its refusals as errors of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2

from localspec.client.sse import reason
from localspec.client.web import Broken, checked, client, root, shown, unreachable
from localspec.errors import LocalspecError, NetworkError, UsageError

#: A server may think for minutes before it answers; whether it is there at all is known soon.
_ANSWERS = httpx2.Timeout(10, read=3600)
#: What it says of itself it says at once.
_FACTS = 10.0
#: Characters of what a server says that are shown.
_SHOWN = 300
_KEYS = (401, 403)
_LATER = (429, 503)
#: Statuses that mean: this request, and any like it, makes no sense to the server.
_BLAMED = (400, 404, 405, 413, 415, 422)
_LONGEST_WAIT_S = 600.0


class Busy(NetworkError):
    """The server does not take the request now. ``after``: seconds after which it may, if it says so."""

    def __init__(self, message: str, *, hint: str = "", after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.after = after


class Lost(NetworkError):
    """The connection broke after the request was sent."""


class Site:
    """One server.

    Args:
        url: with or without ``/v1``, and with user and password where the server wants these.

    Attributes:
        url: as it is shown.

    Raises:
        UsageError: the URL is none.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self._root = root(checked(url))
        self.url = shown(self._root)
        # Answers have a connection each: one that is cut off belongs to nobody else.
        self._answers = client(_ANSWERS, api_key, kept_s=0.0)
        self._facts = client(_FACTS, api_key)

    def close(self) -> None:
        self._answers.close()
        self._facts.close()

    def page(self, path: str) -> str:
        """The text that a path gives; raises as `told`."""
        with self._reached():
            got = self._facts.get(f"{self._root}{path}")
        return self._good(got).text

    def told(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON that a path gives, asked with ``body`` if there is one.

        Raises:
            UsageError: the server takes the request to make no sense.
            NetworkError: it does not answer, or with something else.
        """
        with self._reached():
            url = f"{self._root}{path}"
            got = self._facts.get(url) if body is None else self._facts.post(url, json=body)
        try:
            return self._good(got).json()
        except ValueError:
            raise Broken(f"{self.url}{path} answers with something that is no JSON", hint="Check the URL.") from None

    @contextmanager
    def stream(self, path: str, body: Mapping[str, Any], trace: Any) -> Iterator[Iterator[bytes]]:
        """The answer to a request as it comes in; ``trace`` is told of the connection as httpx tells it.

        Raises:
            UsageError, NetworkError: as `told`, from the iterator, too.
        """
        asked = self._answers.stream("POST", f"{self._root}{path}", json=body, extensions={"trace": trace})
        with self._reached(), asked as got:
            if got.is_error:
                got.read()
            yield self._good(got).iter_bytes()

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (httpx2.ReadError, httpx2.ReadTimeout, httpx2.RemoteProtocolError, httpx2.WriteError) as error:
            raise Lost(f"{self.url} broke off: {str(error).rstrip('.')}", hint="See the server's log.") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise unreachable(self.url, error) from error

    def _good(self, got: httpx2.Response) -> httpx2.Response:
        if got.is_error:
            raise self._refusal(got)
        return got

    def _refusal(self, got: httpx2.Response) -> LocalspecError:
        status, why = got.status_code, _why(got)
        what = f"{self.url} answers {status}" + (f": {why}" if why else "")
        if status in _KEYS:
            return NetworkError(f"{self.url} wants another key", hint="Give it with --api-key.")
        if status in _LATER:
            after = _seconds(got.headers.get("Retry-After"))
            when = "in a while" if after is None else f"in {after:.0f} s"
            return Busy(what, hint=f"Try again {when}.", after=after)
        if status in _BLAMED:
            return UsageError(what, hint="See what was asked for, and the server's settings.")
        return Broken(what, hint="See the server's log.")


def _why(got: httpx2.Response) -> str:
    """What a server says of an error, on one line: the message of its object, or the beginning of its text."""
    try:
        found = json.loads(got.text)
    except (ValueError, RecursionError):
        return " ".join(got.text.split())[:_SHOWN]
    return reason(found)[:_SHOWN].rstrip(".")


def _seconds(text: str | None) -> float | None:
    """What ``Retry-After`` says, if it is a number of seconds: no more than ten minutes."""
    try:
        after = float(text or "")
    except ValueError:
        return None
    return min(after, _LONGEST_WAIT_S) if after >= 0 else None
