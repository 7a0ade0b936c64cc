"""From a request to what goes to a server."""

from __future__ import annotations

from typing import Any

from localspec.client.dialect import Body
from localspec.client.facts import Facts
from localspec.errors import UsageError
from localspec.types import GenerationRequest, Message

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def asked(request: GenerationRequest, server: Facts, seed: int) -> tuple[str, Body]:
    """The path and the body.

    Raises:
        UsageError: the server cannot do what is asked for.
    """
    if request.steps is not None:
        raise UsageError("a server makes its steps by itself", hint="Turn step mode off.")
    dialect = server.dialect
    body: Body = {"model": server.model, "stream": True, "stream_options": {"include_usage": True}}
    body |= dict(dialect.extra)
    body |= dialect.drawn(request.sampling, seed)
    body |= dialect.guessed(request.spec)
    if request.max_tokens >= 0:
        body["max_tokens"] = request.max_tokens
    if request.stop:
        body["stop"] = list(request.stop)
    if request.messages is not None:
        return CHAT, {**body, **_of_messages(request.messages, request, server)}
    if request.max_tokens < 0 and not dialect.ends:
        raise UsageError(f"{dialect.name} ends answers to prompts after a few tokens", hint="Say how many: -n N.")
    likeliest = {} if request.logprobs is None else {"logprobs": request.logprobs}
    return COMPLETIONS, {**body, **likeliest, "prompt": _prompt(request)}


def _of_messages(messages: tuple[Message, ...], request: GenerationRequest, server: Facts) -> Body:
    body: Body = {"messages": [message_record(one) for one in messages]}
    if messages[-1].role == "assistant":
        body |= dict(server.dialect.continued)
    if request.template_kwargs:
        body["chat_template_kwargs"] = dict(request.template_kwargs)
    if request.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": request.logprobs}
    return body


def message_record(message: Message) -> dict[str, Any]:
    return {"role": message.role, "content": message.content, **dict(message.more)}


def _prompt(request: GenerationRequest) -> str | list[int]:
    return list(request.tokens) if request.tokens is not None else request.prompt or ""
