"""How tokens are drawn and how much is guessed, as a request says it: OpenAI's names and llama.cpp's."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from localspec.errors import UsageError
from localspec.grammar import parse as parse_grammar
from localspec.grammar import schema_grammar
from localspec.params import check, parse_breakers, parse_samplers
from localspec.server.errors import invalid
from localspec.server.fields import Fields, blamed, is_whole
from localspec.types import SamplingParams, SpecParams

Tokenize = Callable[[str], list[int]]

_NUMBERS = (
    *("temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "frequency_penalty", "presence_penalty"),
    *("dry_multiplier", "dry_base", "top_n_sigma", "xtc_probability", "xtc_threshold", "dynatemp_range"),
    *("dynatemp_exponent", "mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay"),
)
_WHOLES = ("top_k", "repeat_last_n", "dry_allowed_length", "dry_penalty_last_n", "mirostat", "min_tokens")
_SEEDS = 2**64 - 1
_BIASES = "an object of token ids and numbers, or a list of pairs"
_DEEPEST, _WIDEST = 1024, 1024
_MODES = ("auto", "fixed", "off")


def sampling(fields: Fields, base: SamplingParams, tokenize: Tokenize, n_vocab: int) -> SamplingParams:
    """What the request says, over what the server was started with.

    Raises:
        ApiError: a value that makes no sense, or a schema or grammar that cannot be honoured.
    """
    changes: dict[str, Any] = {}
    for name in _NUMBERS:
        changes[name] = fields.number(name)
    for name in _WHOLES:
        changes[name] = fields.whole(name)
    if changes["repeat_penalty"] is None:
        changes["repeat_penalty"] = fields.number("repetition_penalty")
    changes["ignore_eos"] = fields.flag("ignore_eos") if fields.has("ignore_eos") else None
    changes["logit_bias"] = _bias(fields, tokenize)
    changes["grammar"] = grammar(fields)
    names = fields.texts("samplers")
    breakers = fields.texts("dry_sequence_breakers")
    try:
        changes["samplers"] = None if names is None else _samplers(names)
        changes["dry_sequence_breakers"] = None if breakers is None else parse_breakers(breakers)
        params = replace(base, **{name: value for name, value in changes.items() if value is not None})
        params = replace(params, seed=_seed(fields, params.seed))
        check(params, n_vocab=n_vocab)
    except UsageError as error:
        raise blamed(error, _guilty(error, fields)) from None
    return params


def _samplers(names: tuple[str, ...]) -> tuple[str, ...]:
    return parse_samplers(names[0]) if len(names) == 1 and ";" in names[0] else parse_samplers(names)


def _guilty(error: UsageError, fields: Fields) -> str:
    """The field that the library's message begins with."""
    word = error.message.split()[0]
    return word if word in fields.found else "samplers" if "sampler" in error.message else "logit_bias"


def _seed(fields: Fields, base: int | None) -> int | None:
    """-1, as in llama.cpp, asks for any."""
    if is_whole(value := fields.get("seed")) and abs(value) > _SEEDS:
        raise fields.wrong("seed", "in -1 … 2^64 - 1, where -1 asks for any")
    seed = fields.whole("seed", least=-_SEEDS, most=_SEEDS)
    return base if seed is None else seed if seed >= 0 else None


def _bias(fields: Fields, tokenize: Tokenize) -> tuple[tuple[int, float], ...] | None:
    """OpenAI's object (id or text → bias), or llama.cpp's list of pairs; ``false`` bans a token."""
    found = fields.get("logit_bias")
    if found is None:
        return None
    pairs = list(found.items()) if isinstance(found, dict) else found
    if not isinstance(pairs, list) or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise fields.wrong("logit_bias", _BIASES)
    biases: list[tuple[int, float]] = []
    for token, bias in pairs:
        amount = -math.inf if bias is False else bias
        if not isinstance(amount, int | float) or isinstance(amount, bool):
            raise fields.wrong("logit_bias", _BIASES)
        biases += [(one, float(amount)) for one in _ids(token, fields, tokenize)]
    return tuple(biases)


def _ids(token: object, fields: Fields, tokenize: Tokenize) -> list[int]:
    if isinstance(token, str):
        number = token.strip()
        return [int(number)] if number.isascii() and number.isdecimal() and len(number) < 10 else tokenize(token)
    if not is_whole(token):
        raise fields.wrong("logit_bias", _BIASES)
    assert isinstance(token, int)
    return [token]


def grammar(fields: Fields) -> str | None:
    """The grammar that an answer must follow: of ``response_format``, ``json_schema`` or ``grammar``; ``None``: none.

    Raises:
        ApiError: it cannot be honoured, or there are several.
    """
    told = [
        (name, make(fields))
        for name, make in (("response_format", _response_format), ("json_schema", _schema), ("grammar", _gbnf))
        if fields.has(name)
    ]
    asked = [(name, text) for name, text in told if text is not None]
    if len(asked) > 1:
        raise invalid(f"{asked[0][0]} and {asked[1][0]} are given together: choose one", asked[1][0])
    return asked[0][1] if asked else None


def _response_format(fields: Fields) -> str | None:
    wish = fields.part("response_format")
    assert wish is not None
    return format_grammar(wish)


def format_grammar(wish: Fields) -> str | None:
    """The grammar of OpenAI's object that asks for JSON."""
    kind = wish.choice("type", ("text", "json_object", "json_schema")) or "text"
    if kind == "text":
        return None
    inner = wish.part("json_schema") or wish
    if kind == "json_schema" and not inner.has("schema"):
        missing = (
            inner.name("schema") if wish.place != "response_format" or inner is not wish else wish.name("json_schema")
        )
        raise invalid(f"{missing} is missing", missing)
    return schema_to_grammar(inner.get("schema") or {}, inner.name("schema"))


def _schema(fields: Fields) -> str | None:
    return schema_to_grammar(fields.get("json_schema"), "json_schema")


def schema_to_grammar(schema: object, field: str) -> str:
    """As `localspec.grammar.schema_grammar`.

    Raises:
        ApiError: it is no schema, or asks for what no grammar can say.
    """
    if not isinstance(schema, dict | bool | str):
        raise invalid(f"{field} is not an object", field)
    try:
        return schema_grammar(schema if isinstance(schema, str) else json.dumps(schema))
    except UsageError as error:
        raise blamed(error, field) from None


def _gbnf(fields: Fields) -> str | None:
    text = fields.text("grammar")
    if not text:
        return None
    try:
        parse_grammar(text)
    except UsageError as error:
        raise blamed(error, "grammar") from None
    return text


def speculation(fields: Fields, base: SpecParams) -> SpecParams:
    """``speculative``: a mode, true or false, or an object; or llama.cpp's fields with dots. No request may draft more
    nodes than the server was started for.

    Raises:
        ApiError: a value that makes no sense.
    """
    value = fields.get("speculative")
    if value is None or isinstance(value, bool | str):
        dotted = ((name.partition("."), item) for name, item in fields.found.items())
        inner = {name: item for (first, _, name), item in dotted if first == "speculative" and name}
        if value is not None:
            inner["mode"] = value if isinstance(value, str) else "auto" if value else "off"
        wish = Fields(inner, "speculative")
    else:
        part = fields.part("speculative")
        assert part is not None
        wish = part
    changes: dict[str, Any] = {
        "mode": wish.choice("mode", _MODES),
        "depth": wish.whole("n_max", least=0, most=_DEEPEST),
        "min_depth": wish.whole("n_min", least=0, most=_DEEPEST),
        "p_min": wish.number("p_min"),
        "nodes": wish.whole("tree_nodes", least=0, most=base.nodes),
        "width": wish.whole("tree_width", least=1, most=_WIDEST),
        "accept": wish.choice("accept", ("draw", "ratio")),
        "types": _types(wish),
    }
    params = replace(base, **{name: item for name, item in changes.items() if item is not None})
    if changes["depth"] == 0:
        params = replace(params, mode="off", min_depth=0)
    if params.min_depth > params.depth:
        raise invalid("speculative.n_min is more than speculative.n_max", "speculative.n_min")
    return params


def _types(wish: Fields) -> tuple[str, ...] | None:
    names = wish.texts("types")
    return None if names is None else tuple(name.strip() for text in names for name in text.split(","))
