"""``/openapi.json``: what the endpoints take and give."""

from __future__ import annotations

from typing import Any

from localspec import __version__

Record = dict[str, Any]

_TEXT: Record = {"type": "string"}
_FLAG: Record = {"type": ["boolean", "null"]}
_NUMBER: Record = {"type": ["number", "null"]}
_WHOLE: Record = {"type": ["integer", "null"], "minimum": -(2**31), "maximum": 2**31 - 1}
_COUNT: Record = {**_WHOLE, "minimum": 0}
_TEXTS: Record = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}, {"type": "null"}]}
_OBJECT: Record = {"type": "object"}


def _number(low: float, high: float) -> Record:
    return {**_NUMBER, "minimum": low, "maximum": high}


_IDS: Record = {"type": "array", "items": {"type": "integer", "minimum": 0}}

_DRAWN: Record = {
    "model": {"type": ["string", "null"], "description": "Ignored: there is one model."},
    "max_tokens": {**_WHOLE, "minimum": -1},
    "stop": _TEXTS,
    "seed": {"type": ["integer", "null"]},
    **dict.fromkeys(("temperature", "top_p", "min_p", "typical_p", "repeat_penalty"), _NUMBER),
    **dict.fromkeys(("frequency_penalty", "presence_penalty", "dry_multiplier", "xtc_probability"), _NUMBER),
    **dict.fromkeys(("top_k", "repeat_last_n", "min_tokens"), _WHOLE),
    "ignore_eos": _FLAG,
    "logit_bias": {
        "type": ["object", "null"],
        "description": "Token id, or text, and what is added to its score.",
        "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
    },
    "n": {**_COUNT, "minimum": 1, "maximum": 128},
    "stream": _FLAG,
    "stream_options": {"type": ["object", "null"], "properties": {"include_usage": _FLAG}},
    "timings_per_token": _FLAG,
    "id_slot": {**_WHOLE, "minimum": -1, "description": "The slot that /slots shows the answer in, if it is free."},
    "grammar": {"type": ["string", "null"], "description": "GBNF."},
    "json_schema": {"type": ["object", "null"], "description": "A JSON schema that the answer follows."},
    "response_format": {
        "type": ["object", "null"],
        "properties": {"type": {"enum": ["text", "json_object", "json_schema"]}, "json_schema": _OBJECT},
    },
    "speculative": {
        "description": "How much is guessed ahead: a mode, true or false, or an object.",
        "anyOf": [
            {"enum": ["auto", "fixed", "off"]},
            {"type": ["boolean", "null"]},
            {
                "type": "object",
                "properties": {
                    "mode": {"enum": ["auto", "fixed", "off"]},
                    **dict.fromkeys(("n_max", "n_min", "tree_nodes", "tree_width"), _COUNT),
                    "p_min": _NUMBER,
                    "accept": {"enum": ["draw", "ratio"]},
                    "types": _TEXTS,
                },
            },
        ],
    },
}
_PART: Record = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"enum": ["text"]}, "text": _TEXT},
}
_CALL: Record = {
    "id": {"type": ["string", "null"]},
    "function": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": _TEXT, "arguments": {"anyOf": [_TEXT, _OBJECT, {"type": "null"}]}},
    },
}
_FUNCTION: Record = {
    "type": "object",
    "required": ["type", "function"],
    "properties": {
        "type": {"enum": ["function"]},
        "function": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {**_TEXT, "minLength": 1},
                "description": {"type": ["string", "null"]},
                "parameters": {"type": ["object", "null"]},
            },
        },
    },
}
_MESSAGE: Record = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {"anyOf": [_TEXT, {"type": "array", "items": _PART}]},
        "name": {"type": ["string", "null"]},
        "tool_calls": {"type": ["array", "null"], "items": {**_OBJECT, "required": ["function"], "properties": _CALL}},
        "tool_call_id": {"type": ["string", "null"]},
    },
}
_MESSAGES: Record = {"type": "array", "minItems": 1, "items": _MESSAGE}
_TOOLS: Record = {
    "tools": {"type": ["array", "null"], "items": _FUNCTION},
    "tool_choice": {"anyOf": [{"enum": ["auto", "none", "required"]}, _OBJECT, {"type": "null"}]},
}
_PROMPT: Record = {"anyOf": [_TEXT, _IDS, {"type": "array", "items": {"anyOf": [_TEXT, _IDS]}}]}


def _body(required: list[str], **properties: Record) -> Record:
    return {"type": "object", "required": required, "properties": properties}


_CHAT = _body(
    ["messages"],
    messages=_MESSAGES,
    logprobs=_FLAG,
    top_logprobs=_COUNT,
    chat_template_kwargs={"type": ["object", "null"]},
    prediction={"type": ["object", "null"]},
    **_TOOLS,
    **_DRAWN,
)
_BODIES: dict[str, tuple[str, Record]] = {
    "/v1/chat/completions": ("An answer to messages.", _CHAT),
    "/v1/completions": ("A prompt gone on with.", _body(["prompt"], prompt=_PROMPT, logprobs=_COUNT, **_DRAWN)),
    "/completion": (
        "The same, in llama.cpp's form.",
        _body(["prompt"], prompt=_PROMPT, n_predict=_DRAWN["max_tokens"], n_probs=_COUNT, **_DRAWN),
    ),
    "/v1/responses": (
        "An answer to messages, in OpenAI's newer form; nothing is remembered.",
        _body(
            ["input"],
            input={"anyOf": [_TEXT, {"type": "array", "items": _OBJECT}]},
            instructions={"type": ["string", "null"]},
            max_output_tokens=_DRAWN["max_tokens"],
            text={"type": ["object", "null"]},
            store={**_FLAG, "description": "Nothing is stored: the response says false."},
            **_TOOLS,
            **{name: value for name, value in _DRAWN.items() if name not in ("n", "max_tokens")},
        ),
    ),
    "/tokenize": (
        "A text as tokens.",
        _body(["content"], content=_TEXT, add_special=_FLAG, parse_special=_FLAG, with_pieces=_FLAG),
    ),
    "/detokenize": ("Tokens as a text.", _body(["tokens"], tokens=_IDS)),
    "/apply-template": ("Messages as the text that the model reads.", _body(["messages"], messages=_MESSAGES)),
}
_LOOKS = {
    "/health": "Whether the server takes requests.",
    "/v1/models": "The model.",
    "/props": "The model's settings.",
}
_ERROR: Record = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": _TEXT,
                "type": _TEXT,
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_STATUS = {
    "400": "The request makes no sense, or asks for what is not offered.",
    "401": "The key is missing or wrong.",
    "403": "A page of another site, or another name for this server.",
    "405": "Not with this method.",
    "408": "The body came too slowly.",
    "413": "The body is too large.",
    "500": "The engine failed.",
    "503": "Not now: it loads its model, was started again, or all places are taken. See Retry-After.",
    "504": "The answer took too long.",
}


def description(*, slots: bool, metrics: bool) -> Record:
    """OpenAPI 3.1."""
    paths: Record = {path: {"post": _post(text, body)} for path, (text, body) in _BODIES.items()}
    paths |= {path: {"get": _get(text, _OBJECT)} for path, text in _LOOKS.items()}
    if slots:
        paths["/slots"] = {"get": _get("What each sequence of the engine does.", {"type": "array", "items": _OBJECT})}
    if metrics:
        text = {"200": {"description": "Prometheus' text.", "content": {"text/plain": {"schema": _TEXT}}}}
        paths["/metrics"] = {"get": {"summary": "Metrics for Prometheus.", "responses": {**text, **_errors()}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "localspec", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _post(summary: str, body: Record) -> Record:
    one = {"application/json": {"schema": body}}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": one},
        "responses": {**_answer({}), **_errors()},
    }


def _get(summary: str, schema: Record) -> Record:
    return {"summary": summary, "responses": {**_answer(schema), **_errors()}}


def _answer(schema: Record) -> Record:
    content = {"application/json": {"schema": schema}, "text/event-stream": {"schema": _TEXT}}
    return {"200": {"description": "The answer.", "content": content}}


def _errors() -> Record:
    schema = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {status: {"description": text, "content": schema} for status, text in _STATUS.items()}
