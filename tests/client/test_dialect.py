"""Sampling options under the names that each kind of server knows; what it does not know is refused by name."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from localspec.client.asking import asked
from localspec.client.dialect import LLAMACPP, LOCALSPEC, OPENAI, SGLANG, VLLM, Dialect, dialect_of
from localspec.client.facts import Facts
from localspec.errors import UsageError
from localspec.types import SpecParams
from tests.client.support import USUAL, drawn

EVERY = (OPENAI, LLAMACPP, LOCALSPEC, VLLM, SGLANG)


def body(dialect: Dialect, request: Any) -> dict[str, Any]:
    return asked(request, Facts("m", dialect), 5)[1]


@pytest.mark.parametrize("dialect", EVERY)
def test_what_the_settings_show_is_asked_for(dialect: Dialect) -> None:
    usual = body(dialect, USUAL)
    assert (usual["temperature"], usual["top_p"], usual["seed"]) == (0.8, 0.95, 5)
    known = {"top_k": 40, "min_p": 0.05} if dialect is not OPENAI else {}
    assert {name: usual[name] for name in ("top_k", "min_p") if name in usual} == known
    assert "presence_penalty" not in usual, "what nobody changed is the server's"
    assert body(dialect, drawn(presence_penalty=0.5))["presence_penalty"] == 0.5


@pytest.mark.parametrize(
    ("dialect", "changes", "fields"),
    [
        (LLAMACPP, {"typical_p": 0.5, "samplers": ("top_k",)}, {"typical_p": 0.5, "samplers": ["top_k"]}),
        (LLAMACPP, {"logit_bias": ((3, 1.5), (4, -math.inf))}, {"logit_bias": [[3, 1.5], [4, False]]}),
        (LLAMACPP, {"grammar": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}),
        (LOCALSPEC, {"min_tokens": 4}, {"min_tokens": 4}),
        (VLLM, {"repeat_penalty": 1.1, "min_tokens": 4}, {"repetition_penalty": 1.1, "min_tokens": 4}),
        (VLLM, {"grammar": 'root ::= "a"'}, {"structured_outputs": {"grammar": 'root ::= "a"'}}),
        (SGLANG, {"grammar": 'root ::= "a"', "ignore_eos": True}, {"ebnf": 'root ::= "a"', "ignore_eos": True}),
        (OPENAI, {"logit_bias": ((3, 1.5), (4, -math.inf))}, {"logit_bias": {"3": 1.5, "4": -100.0}}),
    ],
)
def test_names(dialect: Dialect, changes: dict[str, Any], fields: dict[str, Any]) -> None:
    assert fields.items() <= body(dialect, drawn(**changes)).items()


@pytest.mark.parametrize(
    ("dialect", "changes", "named"),
    [
        (LLAMACPP, {"min_tokens": 4}, "min_tokens"),
        (VLLM, {"mirostat": 2}, "mirostat"),
        (OPENAI, {"top_k": 3}, "top_k"),
        (OPENAI, {"grammar": 'root ::= "a"'}, "grammar"),
    ],
)
def test_unknown_ones_are_refused_by_name(dialect: Dialect, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=f"{named}.*{dialect.name} does not know"):
        body(dialect, drawn(**changes))


def test_guesses_are_for_localspec() -> None:
    spec = SpecParams(mode="fixed", depth=5, width=2, types=("suffix",))
    request = replace(USUAL, spec=spec)
    wish = {"mode": "fixed", "n_max": 5, "tree_width": 2, "types": ("suffix",)}
    assert body(LOCALSPEC, request)["speculative"] == wish
    assert "speculative" not in body(LOCALSPEC, USUAL), "what nobody changed is the server's"
    with pytest.raises(UsageError, match="--spec"):
        body(LLAMACPP, request)


def test_prompts_without_a_limit() -> None:
    """Where it is not ours or llama.cpp's, such an answer would end after sixteen tokens."""
    request = replace(USUAL, messages=None, prompt="x", max_tokens=-1)
    assert "max_tokens" not in body(LLAMACPP, request)
    with pytest.raises(UsageError, match="after a few tokens"):
        body(VLLM, request)


@pytest.mark.parametrize(
    ("owner", "dialect"),
    [("llamacpp", LLAMACPP), ("vllm", VLLM), ("sglang", SGLANG), ("localspec", LOCALSPEC), ("x", OPENAI), (3, OPENAI)],
)
def test_which_server_it_is(owner: object, dialect: Dialect) -> None:
    assert dialect_of(owner) is dialect
