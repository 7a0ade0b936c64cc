"""Sampler names and the check of options."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.sampling import check, parse_samplers
from localspec.types import DEFAULT_SAMPLERS, SamplingParams


def test_names_and_other_spellings() -> None:
    assert parse_samplers(";".join(DEFAULT_SAMPLERS)) == DEFAULT_SAMPLERS
    assert parse_samplers("top-k; nucleus ;typical;TEMP;min-p;typ;top-n-sigma;typ-p;typical-p;top-p") == (
        *(
            "top_k",
            "top_p",
            "typ_p",
            "temperature",
            "min_p",
            "typ_p",
            "top_n_sigma",
            "typ_p",
            "typ_p",
            "top_p",
        ),
    )
    assert parse_samplers(["penalties", "temp"]) == ("penalties", "temperature")
    assert parse_samplers("") == ()


def test_unknown_name() -> None:
    with pytest.raises(UsageError, match="'mirostat'") as error:
        parse_samplers("top_k;mirostat")
    assert "top_k" in error.value.hint


def test_defaults_and_edges_pass() -> None:
    check(SamplingParams())
    check(
        SamplingParams(
            temperature=-1,
            top_k=-1,
            top_p=2.0,
            min_p=1.0,
            typical_p=0.0,
            frequency_penalty=-2.0,
            repeat_last_n=-1,
            logit_bias=((0, -math.inf), (9, 100.0)),
            seed=2**64 - 1,
        ),
        n_vocab=10,
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", -0.1),
        ("top_p", math.nan),
        ("min_p", 1.1),
        ("min_p", -0.1),
        ("min_p", math.nan),
        ("typical_p", -1.0),
        ("typical_p", math.nan),
        ("repeat_penalty", 0.0),
        ("repeat_penalty", -1.0),
        ("repeat_penalty", math.nan),
        ("frequency_penalty", math.nan),
        ("presence_penalty", math.inf),
        ("repeat_last_n", -2),
        ("min_tokens", -1),
        ("seed", -1),
        ("seed", 2**64),
        ("logit_bias", ((3, math.nan),)),
        ("logit_bias", ((3, math.inf),)),
        ("logit_bias", ((10, 1.0),)),
        ("logit_bias", ((-1, 1.0),)),
        ("samplers", ("top_k", "beam")),
        ("samplers", ("top-k",)),
    ],
)
def test_nonsense_is_refused_by_name(option: str, value: Any) -> None:
    with pytest.raises(UsageError) as error:
        check(replace(SamplingParams(), **{option: value}), n_vocab=10)
    assert option.removesuffix("s") in error.value.message
    assert error.value.hint
