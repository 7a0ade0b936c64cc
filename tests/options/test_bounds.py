"""How tokens are drawn: which numbers make sense, wherever they come from."""

from __future__ import annotations

import math
from typing import Any

import pytest

from localspec.errors import ExitCode, UsageError
from localspec.options import Option, sampling_params
from localspec.options.tables.sampling import SAMPLING_OPTIONS
from localspec.params import check
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
    ("dry_multiplier", "-0.5"),
    ("dry_base", "0.9"),
    ("dry_allowed_length", "-1"),
    ("dry_penalty_last_n", "-2"),
    ("top_nsigma", "-2"),
    *((name, text) for name in ("xtc_probability", "xtc_threshold") for text in ("-0.1", "1.1")),
    ("dynatemp_range", "-0.5"),
    ("dynatemp_exponent", "-1"),
    ("mirostat_lr", "-0.1"),
    ("mirostat_ent", "-1"),
    *(("adaptive_target", text) for text in ("-2", "1.1")),
    *(("adaptive_decay", text) for text in ("-0.1", "1", "0.995")),
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
    *(("dry_penalty_last_n", text) for text in ("0", "-1", "100000")),
    *(("top_nsigma", text) for text in ("0", "-1", "1.5")),
    *(("xtc_threshold", text) for text in ("0", "0.5", "1")),
    *(("adaptive_target", text) for text in ("-1", "0", "1")),
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


def test_mirostat_1_is_refused_by_name_in_every_source(sources: Sources) -> None:
    sources.user.write_text("mirostat = 1")
    ways: list[tuple[str, tuple[str, ...], dict[str, str]]] = [
        ("--mirostat 1", ("--mirostat", "1"), {}),
        ("LOCALSPEC_MIROSTAT=1", (), {"LOCALSPEC_MIROSTAT": "1"}),
        ("mirostat = ", (), {}),
    ]
    for named, arguments, env in ways:
        with pytest.raises(UsageError) as caught:
            sources.settle(arguments, env=env)
        assert caught.value.message.startswith(named)
        assert "0, 2" in caught.value.hint
    sources.user.write_text("mirostat = 2")
    assert sampling_params(sources.settle().values).mirostat == 2


def test_breakers_that_cannot_be_are_refused(sources: Sources) -> None:
    for text in ("", "x" * 41):
        with pytest.raises(UsageError, match="DRY sequence breakers"):
            sampling_params(sources.settle(["--dry-sequence-breaker", text]).values)


@pytest.mark.parametrize(
    ("arguments", "notes"),
    [
        ("--mirostat 2", []),
        ("--mirostat 0 --top-k 5", []),
        ("--mirostat 2 --temp 1 --mirostat-ent 3 --seed 1", []),
        (
            "--mirostat 2 --top-k 5 --dry-multiplier 1 --samplers top_k",
            [
                f"{flag} does nothing: --mirostat draws without other samplers"
                for flag in ("--dry-multiplier", "--top-k", "--samplers")
            ],
        ),
        ("--mirostat 2 --top-k 40", []),
        ("--adaptive-target 0.5", ["--adaptive-target does nothing: --samplers does not name adaptive_p"]),
        ("--adaptive-target 0.5 --samplers min-p;adaptive-p --min-p 0.1", []),
        (
            "--samplers top-k;temp --top-p 0.5 --dynatemp-range 0.2 --top-n-sigma 2",
            [
                "--top-nsigma does nothing: --samplers does not name top_n_sigma",
                "--top-p does nothing: --samplers does not name top_p",
            ],
        ),
    ],
)
def test_options_that_do_nothing_are_named(arguments: str, notes: list[str], sources: Sources) -> None:
    assert list(sources.settle(arguments.split()).notes) == notes


def test_options_of_a_file_that_do_nothing_are_named_too(sources: Sources) -> None:
    sources.user.write_text("top-k = 5")
    assert len(sources.settle(["--mirostat", "2"]).notes) == 1
    assert not sources.settle().notes
