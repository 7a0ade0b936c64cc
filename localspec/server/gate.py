"""Who may come in. Programs need a key if there are keys; pages of other sites need to be named; and a server that is
meant for this machine does not answer to another name, since a page could make such a name point here."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localspec.server.answering import Json
from localspec.server.errors import ApiError

#: What needs no key: whether the server lives, and the page, which asks for one.
OPEN = frozenset({"/", "/health", "/v1/health"})
_REMEMBERED_S = "600"


@dataclass(frozen=True, slots=True)
class Rules:
    """``keys``: any of them opens; none: everything is open. ``origins``: of pages that may ask, ``*`` for all.
    ``local``: the server is reached on this machine only; then it is asked for by one of the machine's names or by
    ``names``."""

    keys: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    local: bool = True
    names: tuple[str, ...] = ()


class Gate:
    """Middleware that lets through what the rules allow."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app = app
        self._rules = rules
        self._keys = [key.encode() for key in rules.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        allowed = origin is not None and self._may_ask(origin, headers)
        try:
            self._check(scope, headers, origin, allowed=allowed)
        except ApiError as error:
            response: Response = Json(error.record, error.status, error.headers)
            app: ASGIApp = response
        else:
            preflight = scope["method"] == "OPTIONS" and "access-control-request-method" in headers
            app = _preflight(headers) if preflight and allowed else self._app
        await app(scope, receive, self._with_headers(send, origin if allowed else None))

    def _check(self, scope: Scope, headers: Headers, origin: str | None, *, allowed: bool) -> None:
        host = headers.get("host", "")
        if self._rules.local and not self._keys and not self._is_known(host):
            raise ApiError(
                403, f"this server is not called {host!r}: add --cors-origins, or a key", code="host_refused"
            )
        if origin is not None and not allowed:
            raise ApiError(403, f"pages of {origin} may not ask this server: see --cors-origins", code="origin_refused")
        preflight = scope["method"] == "OPTIONS" and allowed
        if self._keys and scope["path"] not in OPEN and not preflight and not self._has_key(headers):
            raise ApiError(401, "the API key is missing or wrong", code="invalid_api_key")

    def _is_known(self, host: str) -> bool:
        name = (urlsplit(f"//{host}").hostname or "") if _can_be_split(host) else "?"
        known = {"", "localhost", *self._rules.names, *(urlsplit(one).hostname or "" for one in self._rules.origins)}
        return "*" in self._rules.origins or name in known or is_loopback(name)

    def _may_ask(self, origin: str, headers: Headers) -> bool:
        if "*" in self._rules.origins or origin in self._rules.origins:
            return True
        return origin.partition("://")[2] == headers.get("host") and origin.startswith(("http://", "https://"))

    def _has_key(self, headers: Headers) -> bool:
        """Looks at every key, and at each in constant time."""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        raw = given.encode("latin-1")
        return sum(hmac.compare_digest(raw, key) for key in self._keys) > 0

    def _with_headers(self, send: Send, origin: str | None) -> Send:
        async def sender(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                if origin is not None:
                    headers["Access-Control-Allow-Origin"] = origin
                    headers.append("Vary", "Origin")
            await send(message)

        return sender


def _preflight(headers: Headers) -> Response:
    return Response(
        status_code=204,
        headers={
            "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
            "Access-Control-Allow-Headers": headers.get("access-control-request-headers", "*"),
            "Access-Control-Max-Age": _REMEMBERED_S,
        },
    )


def _can_be_split(host: str) -> bool:
    try:
        urlsplit(f"//{host}").port  # noqa: B018
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Whether an address or a name is this machine's own."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def bad_origins(origins: Collection[str]) -> list[str]:
    """Those that are none: an origin is a scheme, a name and perhaps a port."""
    return [one for one in origins if one != "*" and one != _origin(one)]


def _origin(text: str) -> str:
    try:
        parts = urlsplit(text)
        return f"{parts.scheme}://{parts.netloc}" if parts.scheme and parts.hostname else ""
    except ValueError:
        return ""
