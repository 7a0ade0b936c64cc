"""The endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from localspec.server import told, wishes
from localspec.server.answering import Json, Limits, respond
from localspec.server.desk import Desk
from localspec.server.errors import ApiError, invalid
from localspec.server.fields import Fields, is_whole, parse
from localspec.server.forms import ChatForm, Form, NativeForm, TextForm
from localspec.server.ledger import Ledger
from localspec.server.metrics import Standing, page
from localspec.server.openapi import description
from localspec.server.page import chat_page
from localspec.server.responses import ResponsesForm
from localspec.server.setting import Setting
from localspec.server.wishes import Wish

Read = Callable[[Fields, Setting], Wish]
Endpoint = Callable[[Request], Awaitable[Response]]


class Api:
    """What the endpoints share.

    Args:
        sequences: of the engine.
        slots: whether ``/slots`` is there. metrics: whether ``/metrics`` is.
    """

    def __init__(
        self, desk: Desk, ledger: Ledger, limits: Limits, *, sequences: int, slots: bool = True, metrics: bool = True
    ) -> None:
        self._desk = desk
        self._ledger = ledger
        self._limits = limits
        self._sequences = sequences
        self._slots_are_shown = slots
        self._metrics_are_shown = metrics

    def routes(self) -> list[BaseRoute]:
        chat = self._answers(wishes.chat, ChatForm)
        completions = self._answers(wishes.completions, TextForm)
        native = self._answers(wishes.native, NativeForm)
        found: dict[str, Endpoint] = {
            "/v1/chat/completions": chat,
            "/chat/completions": chat,
            "/v1/completions": completions,
            "/completion": native,
            "/completions": native,
            "/v1/responses": self._answers(wishes.responses, ResponsesForm),
            "/tokenize": self._tokenize,
            "/detokenize": self._detokenize,
            "/apply-template": self._apply_template,
        }
        looks: dict[str, Endpoint] = {
            "/": self._page,
            "/health": self._health,
            "/v1/health": self._health,
            "/v1/models": self._models,
            "/v1/models/{model:path}": self._model,
            "/models": self._models,
            "/props": self._props,
            "/openapi.json": self._openapi,
        }
        if self._slots_are_shown:
            looks["/slots"] = self._slots
        if self._metrics_are_shown:
            looks["/metrics"] = self._metrics
        return [
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in found.items()),
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in looks.items()),
        ]

    # -- answers

    def _answers(self, read: Read, form: Callable[[Wish], Form]) -> Endpoint:
        return partial(self._answer, read, form)

    async def _answer(self, read: Read, form: Callable[[Wish], Form], request: Request) -> Response:
        setting = self._desk.setting
        fields = parse(await self._body(request))
        # Schemas, templates and long prompts take their time: others need not wait for them.
        wish = await asyncio.to_thread(read, fields, setting)
        return await respond(self._desk, wish, form(wish), self._limits, request.receive)

    async def _body(self, request: Request) -> bytes:
        """Raises `ApiError` if it is too large or too slow, and what `Request.stream` does if the client leaves."""
        most = self._limits.body_bytes
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and (len(declared) > 15 or int(declared) > most):
            raise _too_large(most)
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_s):
                async for piece in request.stream():
                    body += piece
                    if len(body) > most:
                        raise _too_large(most)
        except TimeoutError:
            raise ApiError(408, f"the body took more than {self._limits.body_s:g} seconds") from None
        return bytes(body)

    # -- words

    async def _tokenize(self, request: Request) -> Response:
        setting, fields = self._desk.setting, parse(await self._body(request))
        text, special = fields.needed_text("content"), fields.flag("parse_special", True)
        opening, pieces = fields.flag("add_special"), fields.flag("with_pieces")
        vocab = setting.vocab
        tokens = await asyncio.to_thread(vocab.tokenize, text, special=special)
        if opening and vocab.bos is not None and tokens[:1] != [vocab.bos]:
            tokens.insert(0, vocab.bos)
        if not pieces:
            return Json({"tokens": tokens})
        return Json({"tokens": [{"id": one, "piece": _piece(vocab.piece(one, special=True))} for one in tokens]})

    async def _detokenize(self, request: Request) -> Response:
        setting, fields = self._desk.setting, parse(await self._body(request))
        tokens = fields.items("tokens")
        if tokens is None:
            raise invalid("tokens is missing", "tokens")
        if not all(is_whole(one) and 0 <= one < setting.info.n_vocab for one in tokens):
            raise fields.wrong("tokens", f"a list of tokens below {setting.info.n_vocab}")
        text = b"".join(setting.vocab.piece(one, special=True) for one in tokens)
        return Json({"content": text.decode("utf-8", "replace")})

    async def _apply_template(self, request: Request) -> Response:
        setting, fields = self._desk.setting, parse(await self._body(request))
        return Json({"prompt": await asyncio.to_thread(wishes.rendered, fields, setting)})

    # -- looks

    async def _page(self, request: Request) -> Response:
        return chat_page()

    async def _health(self, request: Request) -> Response:
        self._desk.engine  # noqa: B018  (raises while there is none)
        return Json({"status": "ok"})

    async def _models(self, request: Request) -> Response:
        return Json(told.models(self._desk.setting))

    async def _model(self, request: Request) -> Response:
        """There is one model, which answers to its own name here and to any in a request."""
        (known,), wanted = told.models(self._desk.setting)["data"], request.path_params["model"]
        if wanted != known["id"]:
            raise ApiError(404, f"there is no model {wanted!r}, only {known['id']!r}", code="model_not_found")
        return Json(known)

    async def _props(self, request: Request) -> Response:
        return Json(told.props(self._desk.setting, self._sequences))

    async def _slots(self, request: Request) -> Response:
        setting, reading = self._desk.setting, self._ledger.read()
        if request.query_params.get("fail_on_no_slot") and reading.running >= self._sequences:
            raise ApiError(503, "no slot is free", code="no_slot", retry_after=1)
        return Json(told.slots(reading, setting))

    async def _metrics(self, request: Request) -> Response:
        try:
            engine, status = self._desk.engine, await self._desk.status()
        except ApiError:  # what was counted stays true
            text = page(self._ledger.read(), None)
        else:
            text = page(self._ledger.read(), Standing(engine.info, engine.memory, status))
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def _openapi(self, request: Request) -> Response:
        return Json(description(slots=self._slots_are_shown, metrics=self._metrics_are_shown))


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"the body has more than {most} bytes", code="body_too_large")


def _piece(piece: bytes) -> str | list[int]:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
