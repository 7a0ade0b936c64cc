"""Every option of the table, from its spellings to the field of the engine it is for."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from localspec.cli.main import main
from localspec.options import GENERATION_OPTIONS, Option, Values, engine_options, request
from localspec.types import SamplingParams

#: For options whose kind does not say what a sensible value is.
SAMPLES: dict[str, Any] = {
    "gpu_layers": "7",
    "gpu_layers_draft": "all",
    "spec_type": "ngram-simple,draft-simple",
    "samplers": "top_k;temperature",
    "logit_bias": ("15-1.5", "16-inf"),
    "stop": ("one", "two words"),
}
#: Where each option arrives. ``system`` is no field: it becomes a message.
ARRIVES = {
    "model": {"target.path"},
    "model_draft": {"draft.path"},
    "gpu_layers": {"target.gpu_layers"},
    "gpu_layers_draft": {"draft.gpu_layers"},
    "ctx_size": {"n_ctx"},
    "batch_size": {"n_batch"},
    "ubatch_size": {"n_ubatch"},
    "threads": {"target.threads", "draft.threads"},  # the draft's follow unless -td is given
    "threads_batch": {"target.threads_batch"},
    "threads_draft": {"draft.threads"},
    "threads_batch_draft": {"draft.threads_batch"},
    "flash_attn": {"flash_attn"},
    "cache_type_k": {"target.cache_type_k"},
    "cache_type_v": {"target.cache_type_v"},
    "cache_type_k_draft": {"draft.cache_type_k"},
    "cache_type_v_draft": {"draft.cache_type_v"},
    "log_file": {"log_file"},
    "spec_type": {"spec_types"},
    "draft_n_max": {"spec.depth"},
    "draft_n_min": {"spec.min_depth"},
    "draft_p_min": {"spec.p_min"},
    "tree_nodes": {"tree_nodes", "spec.nodes"},
    "tree_width": {"spec.width"},
    "spec_accept": {"spec.accept"},
    "ngram_size_n": {"ngram.size_n"},
    "ngram_size_m": {"ngram.size_m"},
    "ngram_min_hits": {"ngram.min_hits"},
    "seed": {"sampling.seed"},
    "temp": {"sampling.temperature"},
    "top_k": {"sampling.top_k"},
    "top_p": {"sampling.top_p"},
    "min_p": {"sampling.min_p"},
    "typical": {"sampling.typical_p"},
    "repeat_last_n": {"sampling.repeat_last_n"},
    "repeat_penalty": {"sampling.repeat_penalty"},
    "presence_penalty": {"sampling.presence_penalty"},
    "frequency_penalty": {"sampling.frequency_penalty"},
    "logit_bias": {"sampling.logit_bias"},
    "samplers": {"sampling.samplers"},
    "ignore_eos": {"sampling.ignore_eos"},
    "min_tokens": {"sampling.min_tokens"},
    "n_predict": {"max_tokens"},
    "stop": {"stop"},
}
BASE = {option.name: option.default for option in GENERATION_OPTIONS} | {
    "model": "target.gguf",
    "model_draft": "draft.gguf",
    "spec_type": "draft-simple,ngram-simple",
}
SPELLINGS = [(option, flag) for option in GENERATION_OPTIONS for flag in (*option.flags, *option.aliases)]


def sample(option: Option) -> Any:
    """A value that is not the default."""
    if option.name in SAMPLES:
        return SAMPLES[option.name]
    if option.kind is bool:
        return not option.default
    if option.choices:
        return next(choice for choice in option.choices if choice != option.default)
    return {int: 2, float: 0.5, str: "some text"}[option.kind]


@pytest.fixture(autouse=True)
def same_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def parsed(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Values:
    """The values that ``localspec complete`` works with."""
    seen: list[Values] = []

    def complete(values: Values) -> int:
        seen.append(values)
        return 0

    monkeypatch.setattr("localspec.cli.complete.complete", complete)
    monkeypatch.setattr(sys, "argv", ["localspec", "complete", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    return seen[0]


@pytest.mark.parametrize(("option", "flag"), SPELLINGS, ids=[flag for _, flag in SPELLINGS])
def test_every_spelling_sets_its_value_and_no_other(option: Option, flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = sample(option)
    texts = value if option.many else (str(value),)
    needs = [] if option.name == "model_draft" else ["-md", "draft.gguf"]
    needs += ["--spec-type", "ngram-simple"] if option.name.startswith("ngram") else []
    before = parsed(monkeypatch, *needs)
    forms = [[flag] if option.kind is bool else [word for text in texts for word in (flag, text)]]
    if option.kind is not bool and flag.startswith("--"):
        forms.append([f"{flag}={text}" for text in texts])
    for form in forms:
        assert parsed(monkeypatch, *needs, *form) == {**before, option.name: value}
        assert before[option.name] == option.default


def arrived(values: Values) -> dict[str, Any]:
    """Every field of what the engine is given, by its path."""
    engine = asdict(engine_options(values))
    asked = asdict(request(values, prompt="a"))
    assert not engine.keys() & asked.keys()
    return dict(_flat("", {**engine, **asked}))


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{path}.{key}" if path else key, item)
    else:
        yield path, value


@pytest.mark.parametrize("option", [one for one in GENERATION_OPTIONS if one.name != "system"], ids=attrgetter("name"))
def test_every_option_arrives_where_it_belongs_and_nowhere_else(option: Option) -> None:
    before, after = arrived(BASE), arrived({**BASE, option.name: sample(option)})
    assert {field for field in after if after[field] != before[field]} == ARRIVES[option.name]


def test_every_sampling_field_has_an_option() -> None:
    reached = {field for arrives in ARRIVES.values() for field in arrives}
    assert {f"sampling.{field.name}" for field in fields(SamplingParams)} <= reached


def test_values_arrive_as_meant() -> None:
    values = {**BASE, "logit_bias": ("15-1.5", "16-inf", "17+2"), "gpu_layers": "all", "gpu_layers_draft": "0"}
    fields = arrived({**values, "threads": 3, "threads_draft": 2, "log_file": "a b.log"})
    assert fields["sampling.logit_bias"] == ((15, -1.5), (16, float("-inf")), (17, 2.0))
    assert (fields["target.gpu_layers"], fields["draft.gpu_layers"]) == (-1, 0)
    assert (fields["target.threads"], fields["draft.threads"]) == (3, 2)
    assert fields["log_file"] == Path("a b.log")
    assert fields["sampling.seed"] is None
