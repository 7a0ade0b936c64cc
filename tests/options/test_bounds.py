"""How tokens are drawn: which numbers make sense, wherever they come from."""

from __future__ import annotations

import math
from typing import Any

import pytest

from localspec.errors import ExitCode, UsageError
from localspec.options import Option, sampling_params
from localspec.options.tables.sampling import SAMPLING_OPTIONS
from localspec.sampling import check
from tests.options.sources import Sources

OPTIONS = {option.name: option for option in SAMPLING_OPTIONS}
NUMBERS = [option for option in SAMPLING_OPTIONS if option.kind in (int, float)]
REFUSED = [
    *(("top_p", text) for text in ("1.5", "-0.1", "1.0000001")),
    *(("min_p", text) for text in ("1.5", "-0.1")),
    *(("typical", text) for text in ("1.5", "-0.1")),
    *(("top_k", text) for text in ("-2", "-40")),
    *(("repeat_penalty", text) for text in ("0", "-1", "0.0", "1e9")),
    ("repeat_last_n", "-2"),
    ("min_tokens", "-1"),
    ("seed", "-2"),
    *((option.name, text) for option in NUMBERS if option.kind is float for text in ("nan", "inf", "-inf")),
]
#: What llama.cpp has a meaning for: off, greedy, the whole context.
ACCEPTED = [
    *(("temp", text) for text in ("0", "-1", "-0.5", "2.5", "100")),
    *(("top_k", text) for text in ("0", "-1", "1", "1000000")),
    *((name, text) for name in ("top_p", "min_p", "typical") for text in ("0", "0.0", "1", "1.0", "0.5", "1e-9")),
    *(("repeat_penalty", text) for text in ("1", "0.5", "1e-6", "2")),
    *(("repeat_last_n", text) for text in ("0", "-1", "100000")),
    *((f"{kind}_penalty", text) for kind in ("presence", "frequency") for text in ("0", "-2", "2")),
]


def toml(option: Option, text: str) -> str:
    number = option.kind(text)
    return f"{option.word} = {number!r}"


def variable(option: Option, text: str) -> dict[str, str]:
    return {option.variables[0]: text}


@pytest.mark.parametrize(("name", "text"), REFUSED)
def test_what_makes_no_sense_is_refused_by_name_in_every_source(name: str, text: str, sources: Sources) -> None:
    option = OPTIONS[name]
    ways: list[tuple[str, Any]] = [
        (option.flag, lambda: sources.settle([option.flag, text])),
        (option.variables[0], lambda: sources.settle(env=variable(option, text))),
    ]
    for named, settle in ways:
        with pytest.raises(UsageError, match="is out of range") as caught:
            settle()
        assert caught.value.message.startswith(named)
        assert caught.value.hint.startswith("It takes ")
        assert caught.value.exit_code == ExitCode.USAGE
    sources.user.write_text(toml(option, text))
    with pytest.raises(UsageError, match=rf"^{option.word} = .* in .*user\.toml is out of range"):
        sources.settle()


@pytest.mark.parametrize(("name", "text"), ACCEPTED)
def test_what_has_a_meaning_works_in_every_source_and_in_the_engine(name: str, text: str, sources: Sources) -> None:
    option = OPTIONS[name]
    found = [sources.settle([option.flag, text]), sources.settle(env=variable(option, text))]
    sources.user.write_text(toml(option, text))
    found.append(sources.settle())
    for settings in found:
        assert settings.values[name] == option.kind(text)
        check(sampling_params(settings.values))


@pytest.mark.parametrize("option", NUMBERS, ids=lambda option: option.name)
def test_the_engine_takes_all_that_is_in_bounds(option: Option, sources: Sources) -> None:
    """Else the refusal would come late, after a model was loaded."""
    defaults = sources.settle().values
    for bound in (option.least, option.most):
        if bound is not None:
            value = option.kind(bound)
            option.check(value)
            check(sampling_params({**defaults, option.name: value}))
    assert all(math.isfinite(bound) for bound in (option.least, option.most) if bound is not None)
