"""The application: endpoints, the gate before them, and what becomes of errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from localspec.server.answering import Gone, Json
from localspec.server.desk import Desk
from localspec.server.errors import ApiError
from localspec.server.gate import Gate, Rules
from localspec.server.routes import Api

#: What is logged of a client that left; nobody receives it.
_CLIENT_LEFT = 499


def application(api: Api, desk: Desk, rules: Rules, on_failure: Callable[[], None]) -> Starlette:
    """Loads the engine when it starts; ``on_failure`` is called if that fails."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async def watch() -> None:
            await desk.start()
            if desk.failure is not None:
                on_failure()

        watching = asyncio.create_task(watch())
        yield
        desk.drain()
        await watching

    return Starlette(
        routes=api.routes(),
        middleware=[Middleware(Gate, rules=rules)],
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _http_error,
            Gone: _gone,
            ClientDisconnect: _gone,
            Exception: _fault,
        },
        lifespan=lifespan,
    )


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return Json(error.record, error.status, error.headers)


async def _http_error(request: Request, error: Exception) -> Response:
    """No such path, or no such method on it."""
    assert isinstance(error, HTTPException)
    words = {404: f"there is no {request.url.path} here", 405: f"{request.url.path} does not take {request.method}"}
    told = ApiError(error.status_code, words.get(error.status_code, error.detail))
    return Json(told.record, error.status_code, dict(error.headers or {}))


async def _gone(request: Request, error: Exception) -> Response:
    return Response(status_code=_CLIENT_LEFT)


async def _fault(request: Request, error: Exception) -> Response:
    """Ours: the traceback is in the log."""
    return Json(ApiError(500, "the server has a fault: its log tells more").record, 500)
