"""From the values of options to what the engine takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.errors import UsageError
from localspec.options.lists import devices, layers, lora, margins, overrides, servers, shares
from localspec.options.rules import depth
from localspec.types import GenerationRequest, Message, SamplingParams, SpecParams

if TYPE_CHECKING:
    from localspec.backends.options import ModelOptions, RopeOptions
    from localspec.drafters.options import TextOptions
    from localspec.engine_options import EngineOptions

Values = Mapping[str, Any]
#: Conversations kept in the cache beside those that run, where there are many. Attention goes through their cells, too.
_KEPT = 4


def engine_options(values: Values, target: Path | None = None, draft: Path | None = None) -> EngineOptions:
    """What to load. ``target`` and ``draft`` are files that were found for ``-hf`` and ``-hfd``, or for a path that
    stands for several; without them ``-m`` and ``-md`` are taken as they are.

    Raises:
        UsageError: a value that makes no sense, naming its flag.
        ModelError: no ``-m``, and the demo model is not installed.
    """
    from localspec.drafters.options import Scored
    from localspec.engine_options import EngineOptions, FitOptions

    if draft is None and values["model_draft"] is not None:
        draft = Path(values["model_draft"])
    types, parallel = values["spec_type"], values.get("parallel", 1)
    return EngineOptions(
        target=_target_options(values, target or _model_path(values["model"])),
        draft=None if draft is None else _draft_options(values, draft),
        spec_types=None if types is None else tuple(name.strip() for name in types.split(",")),
        n_ctx=values["ctx_size"],
        n_batch=values["batch_size"],
        n_ubatch=values["ubatch_size"],
        flash_attn=values["flash_attn"],
        swa_full=values["swa_full"],
        sequences=parallel,
        kept=min(parallel, _KEPT) if parallel > 1 else 0,
        most_running=values.get("max_concurrency", 0),
        most_waiting=values.get("max_queue", 0),
        tree_nodes=values["tree_nodes"],
        by_text=_text_options(values),
        chat_template=chat_template(values),
        log_file=_path(values["log_file"]),
        rpc=servers(values["rpc"]),
        exact=values["exact"],
        scored=Scored(values["head_vocab"], _path(values["token_map"])),
        medusa_tree=values["medusa_tree"],
        backend=values["backend"],
        fit=FitOptions(values["fit"] == "on", margins(values["fit_target"]), values["fit_ctx"]),
    )


def _text_options(values: Values) -> TextOptions:
    from localspec.drafters.options import ModOptions, NgramOptions, TextOptions

    def lookup(name: str) -> NgramOptions:
        return NgramOptions(values[f"{name}_size_n"], values[f"{name}_size_m"], values[f"{name}_min_hits"])

    return TextOptions(
        lookup("ngram"),
        lookup("ngram_map_k"),
        lookup("ngram_map_k4v"),
        ModOptions(values["ngram_mod_n_match"], values["ngram_mod_n_min"], values["ngram_mod_n_max"]),
        lookup_static=_path(values["lookup_static"]),
        lookup_dynamic=_path(values["lookup_dynamic"]),
        corpus=_path(values["spec_corpus"]),
    )


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def check_loading(values: Values) -> None:
    """Reads everything that `engine_options` and `sampling_params` read, before a model is looked for or downloaded.

    Raises:
        UsageError: a value that makes no sense, naming its flag.
    """
    from localspec.spec_types import check_texts, check_types

    some = Path("some.gguf")
    has_draft = values["model_draft"] is not None or values["hf_repo_draft"] is not None
    options = engine_options(values, some, some if has_draft else None)
    check_types(options.spec_types, has_draft=has_draft)
    check_texts(options)
    if "temp" in values:  # `verify` draws by sets of its own
        sampling_params(values)


def _target_options(values: Values, path: Path) -> ModelOptions:
    return replace(
        _in_memory(values, path),
        gpu_layers=layers("-ngl", values["gpu_layers"]),
        threads=_threads(values["threads"]),
        threads_batch=_threads(values["threads_batch"]),
        cache_type_k=values["cache_type_k"],
        cache_type_v=values["cache_type_v"],
        devices=devices("-dev", values["device"]),
        tensor_overrides=overrides("-ot", values["override_tensor"]),
        cpu_moe=-1 if values["cpu_moe"] else values["n_cpu_moe"],
        main_gpu=values["main_gpu"],
        split_mode=values["split_mode"],
        tensor_split=shares(values["tensor_split"]),
        rope=_rope(values),
        lora=lora(values["lora"], values["lora_scaled"]),
    )


def _draft_options(values: Values, path: Path) -> ModelOptions:
    """Devices, and how the model is split over them, are the target's unless ``-devd`` names others."""
    threads = values["threads_draft"] if values["threads_draft"] > 0 else values["threads"]
    follows = values["device_draft"] is None
    flag, names = ("-dev", values["device"]) if follows else ("-devd", values["device_draft"])
    return replace(
        _in_memory(values, path),
        gpu_layers=layers("-ngld", values["gpu_layers_draft"]),
        threads=_threads(threads),
        threads_batch=_threads(values["threads_batch_draft"]),
        cache_type_k=values["cache_type_k_draft"],
        cache_type_v=values["cache_type_v_draft"],
        devices=devices(flag, names),
        tensor_overrides=overrides("-otd", values["override_tensor_draft"]),
        cpu_moe=-1 if values["cpu_moe_draft"] else values["n_cpu_moe_draft"],
        main_gpu=values["main_gpu"] if follows else None,
        split_mode=values["split_mode"] if follows else None,
        tensor_split=shares(values["tensor_split"]) if follows else (),
    )


def _in_memory(values: Values, path: Path) -> ModelOptions:
    """What holds for both models."""
    from localspec.backends.options import ModelOptions

    mode = values["load_mode"]
    return ModelOptions(
        path,
        mmap=values["mmap"] if mode == "auto" else "mmap" in mode,
        mlock=values["mlock"] if mode == "auto" else "mlock" in mode,
        repack=values["repack"],
        check_tensors=values["check_tensors"],
        kv_offload=values["kv_offload"],
    )


def _rope(values: Values) -> RopeOptions:
    from localspec.backends.options import RopeOptions

    scale = values["rope_scale"]
    return RopeOptions(
        scaling=values["rope_scaling"],
        freq_base=values["rope_freq_base"],
        freq_scale=values["rope_freq_scale"] if scale is None else 1 / scale,
        yarn_orig_ctx=values["yarn_orig_ctx"],
        yarn_ext_factor=values["yarn_ext_factor"],
        yarn_attn_factor=values["yarn_attn_factor"],
        yarn_beta_slow=values["yarn_beta_slow"],
        yarn_beta_fast=values["yarn_beta_fast"],
    )


def _model_path(given: str | None) -> Path:
    if given is not None:
        return Path(given)
    from localspec.models.demo import demo_model

    return demo_model()


def _threads(given: int) -> int | None:
    return given if given > 0 else None


def chat_template(values: Values) -> str | None:
    """The Jinja text to use in place of the model's own template.

    Raises:
        UsageError: an unknown name, a file that cannot be read, or a template that is broken.
    """
    if values["chat_template"] is None and values["chat_template_file"] is None:
        return None
    from localspec.chat.sources import template_from

    template = template_from(values["chat_template"], values["chat_template_file"])
    return None if template is None else template.source


def system_message(values: Values) -> str | None:
    """The system message of ``-sys`` or ``-sysf``; the last line end of a file is not part of it.

    Raises:
        UsageError: its file cannot be read.
    """
    if values["system_file"] is not None:
        return file_text("-sysf", values["system_file"]).removesuffix("\n").removesuffix("\r")
    system: str | None = values["system"]
    return system


def file_text(flag: str, name: str) -> str:
    try:
        return Path(name).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}", hint=f"Check the path given to {flag}.") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text (byte {error.start})", hint="Convert it first.") from None
    except ValueError as error:  # a zero byte in the name
        raise UsageError(f"{name} cannot be read: {error}", hint=f"Check the path given to {flag}.") from None


def sampling_params(values: Values) -> SamplingParams:
    """How tokens are drawn.

    Raises:
        UsageError: an unknown sampler, a bias or a breaker that cannot be read, or a grammar that makes no sense.
    """
    from localspec.params import parse_breakers, parse_samplers

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
        dry_multiplier=values["dry_multiplier"],
        dry_base=values["dry_base"],
        dry_allowed_length=values["dry_allowed_length"],
        dry_penalty_last_n=values["dry_penalty_last_n"],
        dry_sequence_breakers=parse_breakers(values["dry_sequence_breaker"]),
        top_n_sigma=values["top_nsigma"],
        xtc_probability=values["xtc_probability"],
        xtc_threshold=values["xtc_threshold"],
        dynatemp_range=values["dynatemp_range"],
        dynatemp_exponent=values["dynatemp_exponent"],
        mirostat=int(values["mirostat"]),
        mirostat_tau=values["mirostat_ent"],
        mirostat_eta=values["mirostat_lr"],
        adaptive_target=values["adaptive_target"],
        adaptive_decay=values["adaptive_decay"],
        logit_bias=tuple(_bias(text) for text in values["logit_bias"]),
        ignore_eos=values["ignore_eos"],
        min_tokens=values["min_tokens"],
        samplers=parse_samplers(values["samplers"]),
        seed=None if values["seed"] == -1 else values["seed"],
        grammar=grammar(values),
    )


def has_grammar(values: Values) -> bool:
    """Whether there is one, sound or not: what `grammar` reads."""
    return any(values[name] is not None for name in ("grammar", "grammar_file", "json_schema", "json_schema_file"))


def grammar(values: Values) -> str | None:
    """The grammar that answers must follow, as GBNF; a JSON schema is turned into one.

    Raises:
        UsageError: a file that cannot be read, or a mistake in grammar or schema.
    """
    text: str | None = values["grammar"]
    if values["grammar_file"] is not None:
        text = file_text("--grammar-file", values["grammar_file"])
    schema: str | None = values["json_schema"]
    if values["json_schema_file"] is not None:
        schema = file_text("--json-schema-file", values["json_schema_file"])
    if schema is not None:
        from localspec.grammar import schema_grammar

        text = schema_grammar(schema)
    if text is not None:
        from localspec.grammar import parse

        parse(text)
    return text


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
        mode=values["spec"],
        depth=depth(values),
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
        template_kwargs=template_kwargs(values),
    )


def template_kwargs(values: Values) -> tuple[tuple[str, object], ...]:
    """What ``--chat-template-kwargs`` tells the template. Switches for ``--reasoning`` depend on the template, and so
    are the front end's to add (`localspec.chat.reasoning_of`).

    Raises:
        UsageError: it is no JSON object, or a name in it is not free.
    """
    if values["chat_template_kwargs"] is None:
        return ()
    from localspec.chat.sources import template_variables

    return template_variables(values["chat_template_kwargs"])
