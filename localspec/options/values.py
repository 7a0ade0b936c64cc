"""From the values of options to what the engine takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.errors import UsageError
from localspec.options.option import Option
from localspec.options.table import DRAFT_ONLY, INT_MAX, NGRAM_ONLY
from localspec.types import GenerationRequest, Message, SamplingParams, SpecParams

if TYPE_CHECKING:
    from localspec.loading import EngineOptions, ModelOptions

Values = Mapping[str, Any]


def check_values(options: tuple[Option, ...], values: Values) -> None:
    """Checks every value against its option, and those that depend on each other.

    Raises:
        UsageError: naming the flag.
    """
    for option in options:
        option.check(values[option.name])
    if values["draft_n_min"] > values["draft_n_max"]:
        raise UsageError(
            f"--spec-draft-n-min {values['draft_n_min']} is more than --spec-draft-n-max {values['draft_n_max']}",
            hint="No draft could ever be long enough: lower the one or raise the other.",
        )
    if values["model_draft"] is None and (flag := _first_given(options, values, DRAFT_ONLY)):
        raise UsageError(f"{flag} is given without a draft model", hint="Give one with -md.")
    types = values["spec_type"]
    ngrams = values["model_draft"] is None if types is None else "ngram-simple" in types
    if not ngrams and (flag := _first_given(options, values, NGRAM_ONLY)):
        raise UsageError(f"{flag} is given, but nothing guesses by n-grams", hint="Add ngram-simple to --spec-type.")


def _first_given(options: tuple[Option, ...], values: Values, names: tuple[str, ...]) -> str | None:
    """The flag of the first of these options that has not its default value."""
    given = (option for option in options if option.name in names and values[option.name] != option.default)
    return next((option.flags[0] for option in given), None)


def engine_options(values: Values) -> EngineOptions:
    """What to load.

    Raises:
        UsageError: a value that makes no sense, naming its flag.
        ModelError: no ``-m``, and the demo model is not installed.
    """
    from localspec.drafters.ngram import NgramOptions
    from localspec.loading import EngineOptions, ModelOptions

    draft = values["model_draft"]
    types = values["spec_type"]
    return EngineOptions(
        target=ModelOptions(
            path=_model_path(values["model"]),
            gpu_layers=_layers("-ngl", values["gpu_layers"]),
            threads=_threads(values["threads"]),
            threads_batch=_threads(values["threads_batch"]),
            cache_type_k=values["cache_type_k"],
            cache_type_v=values["cache_type_v"],
        ),
        draft=None if draft is None else _draft_options(values),
        spec_types=None if types is None else tuple(name.strip() for name in types.split(",")),
        n_ctx=values["ctx_size"],
        n_batch=values["batch_size"],
        n_ubatch=values["ubatch_size"],
        flash_attn=values["flash_attn"],
        tree_nodes=values["tree_nodes"],
        ngram=NgramOptions(values["ngram_size_n"], values["ngram_size_m"], values["ngram_min_hits"]),
        log_file=None if values["log_file"] is None else Path(values["log_file"]),
    )


def _draft_options(values: Values) -> ModelOptions:
    from localspec.loading import ModelOptions

    threads = values["threads_draft"] if values["threads_draft"] > 0 else values["threads"]
    return ModelOptions(
        path=Path(values["model_draft"]),
        gpu_layers=_layers("-ngld", values["gpu_layers_draft"]),
        threads=_threads(threads),
        threads_batch=_threads(values["threads_batch_draft"]),
        cache_type_k=values["cache_type_k_draft"],
        cache_type_v=values["cache_type_v_draft"],
    )


def _model_path(given: str | None) -> Path:
    if given is not None:
        return Path(given)
    from localspec.models.demo import demo_model

    return demo_model()


def _layers(flag: str, given: str) -> int | None:
    """``auto`` is ``None``, ``all`` is -1 as llama.cpp takes it."""
    if given in ("auto", "all"):
        return None if given == "auto" else -1
    if not given.isdecimal() or int(given) > INT_MAX:
        raise UsageError(f"{flag} {given} is not a number of layers", hint="Give a number, auto or all.")
    return int(given)


def _threads(given: int) -> int | None:
    return given if given > 0 else None


def sampling_params(values: Values) -> SamplingParams:
    """How tokens are drawn.

    Raises:
        UsageError: an unknown sampler or a bias that cannot be read.
    """
    from localspec.sampling import parse_samplers

    return SamplingParams(
        temperature=values["temp"],
        top_k=values["top_k"],
        top_p=values["top_p"],
        min_p=values["min_p"],
        typical_p=values["typical"],
        repeat_penalty=values["repeat_penalty"],
        frequency_penalty=values["frequency_penalty"],
        presence_penalty=values["presence_penalty"],
        repeat_last_n=values["repeat_last_n"],
        logit_bias=tuple(_bias(text) for text in values["logit_bias"]),
        ignore_eos=values["ignore_eos"],
        min_tokens=values["min_tokens"],
        samplers=parse_samplers(values["samplers"]),
        seed=None if values["seed"] == -1 else values["seed"],
    )


def _bias(text: str) -> tuple[int, float]:
    """``15043+1`` or ``15043-1``, as llama.cpp spells a bias; ``15043-inf`` bans the token."""
    at = next((i for i, char in enumerate(text) if char in "+-"), len(text))
    try:
        return int(text[:at]), float(text[at:])
    except ValueError:
        raise UsageError(
            f"--logit-bias {text} cannot be read", hint="Write ID+BIAS or ID-BIAS, e.g. 15043-1."
        ) from None


def spec_params(values: Values) -> SpecParams:
    """How much is guessed ahead."""
    return SpecParams(
        depth=values["draft_n_max"],
        min_depth=values["draft_n_min"],
        p_min=values["draft_p_min"],
        nodes=values["tree_nodes"],
        width=values["tree_width"],
        accept=values["spec_accept"],
    )


def request(
    values: Values,
    *,
    prompt: str | None = None,
    messages: tuple[Message, ...] | None = None,
    logprobs: int | None = None,
) -> GenerationRequest:
    """One request with these options."""
    return GenerationRequest(
        prompt=prompt,
        messages=messages,
        max_tokens=values["n_predict"],
        stop=tuple(values["stop"]),
        sampling=sampling_params(values),
        spec=spec_params(values),
        special=True,
        logprobs=logprobs,
    )
