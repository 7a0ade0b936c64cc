"""Sampler names and the check of options."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.params import check, parse_breakers, parse_samplers
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
    assert parse_samplers("topk;minp;typp;topnsigma;adaptivep;adaptive-p") == (
        *("top_k", "min_p", "typ_p", "top_n_sigma", "adaptive_p", "adaptive_p"),
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
            dry_penalty_last_n=-1,
            dry_sequence_breakers=("é" * 20,),
            top_n_sigma=-5.0,
            xtc_threshold=1.0,
            mirostat=2,
            adaptive_target=-9.0,
            adaptive_decay=0.99,
            samplers=(*DEFAULT_SAMPLERS, "adaptive_p"),
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
        ("dry_multiplier", -0.1),
        ("dry_base", 0.9),
        ("dry_allowed_length", -1),
        ("dry_penalty_last_n", -2),
        ("top_n_sigma", math.nan),
        ("xtc_probability", 1.1),
        ("xtc_threshold", -0.1),
        ("dynatemp_range", -0.5),
        ("dynatemp_exponent", -1.0),
        ("mirostat", 1),
        ("mirostat", 3),
        ("mirostat_tau", math.inf),
        ("mirostat_eta", -0.1),
        ("adaptive_target", 1.1),
        ("adaptive_decay", 1.0),
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


@pytest.mark.parametrize("text", ["", "x" * 41, "é" * 21])
def test_breakers_that_cannot_be(text: str) -> None:
    for refuse in (lambda: check(SamplingParams(dry_sequence_breakers=(text,))), lambda: parse_breakers([text])):
        with pytest.raises(UsageError, match=f"DRY sequence breakers has {len(text.encode())} bytes"):
            refuse()


def test_breakers_as_they_are_given() -> None:
    assert parse_breakers([r"\n", ":", r"\"", "*"]) == SamplingParams().dry_sequence_breakers
    assert parse_breakers([r"a\tb\r", r"\\n", r"\q", "'"]) == ("a\tb\r", r"\n", r"\q", "'")
    assert parse_breakers(["a", "none"]) == ()
    assert parse_breakers(["none", "a"]) == ("a",)
    assert parse_breakers([]) == ()
