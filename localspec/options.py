"""The one table of options: every front end reads its flags, defaults and limits here.

Names and spellings are llama.cpp's. Where a default differs from llama.cpp's the help text says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.errors import UsageError
from localspec.types import DEFAULT_SAMPLERS, GenerationRequest, Message, SamplingParams, SpecParams

if TYPE_CHECKING:
    from localspec.loading import EngineOptions, ModelOptions

INT_MAX = 2**31 - 1
#: More make ggml crash.
MOST_THREADS = 512
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``flags`` starts with those shown; ``aliases`` work too. ``least``/``most`` bound numbers,
    ``choices`` texts; a default of ``None`` means "not given"."""

    name: str
    flags: tuple[str, ...]
    kind: type
    default: Any
    help: str
    group: str
    metavar: str = ""
    aliases: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    many: bool = False

    def check(self, value: Any) -> None:
        """Raises `UsageError` naming the flag if ``value`` is out of bounds, or text of bytes that are not UTF-8."""
        if value is None:
            return
        for one in value if self.many else (value,):
            if self.kind is str and self.metavar != "FILE":  # names of files may be any bytes
                self._check_text(one)
            if self.choices and one not in self.choices:
                raise UsageError(
                    f"{self.flags[-1]} {one} is not possible", hint=f"Use one of {', '.join(self.choices)}."
                )
            if self.kind in (int, float):
                self._check_number(one)

    def _check_text(self, text: str) -> None:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"the text of {self.flags[-1]} is not UTF-8", hint="Convert it first.") from None

    def _check_number(self, number: float) -> None:
        low = self.least is not None and not number >= self.least
        high = self.most is not None and not number <= self.most
        if not (low or high or not math.isfinite(number)):
            return
        if self.least is None:
            bounds = "a finite number"
        else:
            bounds = f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"
        raise UsageError(f"{self.flags[-1]} {number} is out of range", hint=f"It takes {bounds}.")


MODEL, CONTEXT, SPEC, SAMPLING, TEXT = "Model", "Context", "Speculation", "Sampling", "Generation"

ENGINE_OPTIONS = (
    Option("model", ("-m", "--model"), str, None, "Target GGUF file; none = the demo model.", MODEL, "FILE"),
    Option(
        "model_draft",
        ("-md", "--model-draft"),
        str,
        None,
        "Draft GGUF file that guesses ahead for the target.",
        MODEL,
        "FILE",
        aliases=("--spec-draft-model",),
    ),
    Option(
        "gpu_layers",
        ("-ngl", "--gpu-layers"),
        str,
        "auto",
        "Target layers kept in GPU memory: a number, auto or all.",
        MODEL,
        "N",
        aliases=("--n-gpu-layers",),
    ),
    Option(
        "gpu_layers_draft",
        ("-ngld", "--gpu-layers-draft"),
        str,
        "auto",
        "Draft layers kept in GPU memory: a number, auto or all.",
        MODEL,
        "N",
        aliases=("--spec-draft-ngl", "--n-gpu-layers-draft"),
    ),
    Option(
        "ctx_size",
        ("-c", "--ctx-size"),
        int,
        0,
        "Context in tokens; 0 = as the model was trained.",
        CONTEXT,
        "N",
        least=0,
        most=INT_MAX,
    ),
    Option(
        "batch_size",
        ("-b", "--batch-size"),
        int,
        2048,
        "Rows of one pass at most.",
        CONTEXT,
        "N",
        least=1,
        most=INT_MAX,
    ),
    Option(
        "ubatch_size",
        ("-ub", "--ubatch-size"),
        int,
        512,
        "Rows computed at a time.",
        CONTEXT,
        "N",
        least=1,
        most=INT_MAX,
    ),
    Option(
        "threads",
        ("-t", "--threads"),
        int,
        -1,
        "Threads; -1 = measured while it runs.",
        CONTEXT,
        "N",
        least=-1,
        most=MOST_THREADS,
    ),
    Option(
        "threads_batch",
        ("-tb", "--threads-batch"),
        int,
        -1,
        "Threads for prompts; -1 = as -t.",
        CONTEXT,
        "N",
        least=-1,
        most=MOST_THREADS,
    ),
    Option(
        "threads_draft",
        ("-td", "--threads-draft"),
        int,
        -1,
        "Threads of the draft model; -1 = as -t.",
        CONTEXT,
        "N",
        aliases=("--spec-draft-threads",),
        least=-1,
        most=MOST_THREADS,
    ),
    Option(
        "threads_batch_draft",
        ("-tbd", "--threads-batch-draft"),
        int,
        -1,
        "Threads of the draft model for prompts; -1 = as -td.",
        CONTEXT,
        "N",
        aliases=("--spec-draft-threads-batch",),
        least=-1,
        most=MOST_THREADS,
    ),
    Option(
        "flash_attn",
        ("-fa", "--flash-attn"),
        str,
        "auto",
        "Flash attention: on, off, auto.",
        CONTEXT,
        "X",
        choices=("on", "off", "auto"),
    ),
    Option(
        "cache_type_k",
        ("-ctk", "--cache-type-k"),
        str,
        "f16",
        "Type of the key cache.",
        CONTEXT,
        "TYPE",
        choices=CACHE_TYPES,
    ),
    Option(
        "cache_type_v",
        ("-ctv", "--cache-type-v"),
        str,
        "f16",
        "Type of the value cache.",
        CONTEXT,
        "TYPE",
        choices=CACHE_TYPES,
    ),
    Option(
        "cache_type_k_draft",
        ("-ctkd", "--cache-type-k-draft"),
        str,
        "f16",
        "Type of the draft model's key cache.",
        CONTEXT,
        "TYPE",
        aliases=("--spec-draft-type-k",),
        choices=CACHE_TYPES,
    ),
    Option(
        "cache_type_v_draft",
        ("-ctvd", "--cache-type-v-draft"),
        str,
        "f16",
        "Type of the draft model's value cache.",
        CONTEXT,
        "TYPE",
        aliases=("--spec-draft-type-v",),
        choices=CACHE_TYPES,
    ),
    Option("log_file", ("--log-file",), str, None, "Where llama.cpp's log goes.", MODEL, "FILE"),
)
SPEC_OPTIONS = (
    Option(
        "spec_type",
        ("--spec-type",),
        str,
        None,
        "Drafters: none, draft-simple, ngram-simple or a comma list; default draft-simple with -md, else ngram-simple.",
        SPEC,
        "LIST",
    ),
    Option(
        "draft_n_max",
        ("--spec-draft-n-max",),
        int,
        3,
        "Guesses on a path at most (depth); 0 = off.",
        SPEC,
        "N",
        least=0,
        most=256,
    ),
    Option(
        "draft_n_min",
        ("--spec-draft-n-min",),
        int,
        0,
        "Drafts shorter than this are dropped.",
        SPEC,
        "N",
        least=0,
        most=256,
    ),
    Option(
        "draft_p_min",
        ("--spec-draft-p-min",),
        float,
        0.0,
        "A path ends where the guess is less likely than this.",
        SPEC,
        "P",
        aliases=("--draft-p-min",),
        least=0,
        most=1,
    ),
    Option(
        "tree_nodes",
        ("--spec-tree-nodes",),
        int,
        16,
        "Guesses in the whole tree at most.",
        SPEC,
        "N",
        least=0,
        most=240,
    ),
    Option(
        "tree_width",
        ("--spec-tree-width",),
        int,
        1,
        "Guesses side by side; 1 = a chain.",
        SPEC,
        "N",
        least=1,
        most=64,
    ),
    Option(
        "spec_accept",
        ("--spec-accept",),
        str,
        "draw",
        "Rule for guesses: draw (same text as without) or ratio (same distribution).",
        SPEC,
        "RULE",
        choices=("draw", "ratio"),
    ),
    Option(
        "ngram_size_n",
        ("--spec-ngram-simple-size-n",),
        int,
        3,
        "Tokens that must match (llama.cpp: 12).",
        SPEC,
        "N",
        least=1,
        most=64,
    ),
    Option(
        "ngram_size_m",
        ("--spec-ngram-simple-size-m",),
        int,
        48,
        "Tokens guessed after a match at most.",
        SPEC,
        "N",
        least=1,
        most=256,
    ),
    Option(
        "ngram_min_hits",
        ("--spec-ngram-simple-min-hits",),
        int,
        1,
        "Matches wanted before guessing.",
        SPEC,
        "N",
        least=1,
    ),
)
SAMPLING_OPTIONS = (
    Option(
        "seed",
        ("-s", "--seed"),
        int,
        -1,
        "Seed; -1 = random, and reported.",
        SAMPLING,
        "N",
        least=-1,
        most=2**64 - 1,
    ),
    Option(
        "temp",
        ("--temp",),
        float,
        0.8,
        "Temperature; 0 = greedy.",
        SAMPLING,
        "T",
        aliases=("--temperature",),
        least=0,
    ),
    Option("top_k", ("--top-k",), int, 40, "Keep the k likeliest; 0 = off.", SAMPLING, "K"),
    Option(
        "top_p",
        ("--top-p",),
        float,
        0.95,
        "Keep the likeliest that add up to p; 1 = off.",
        SAMPLING,
        "P",
        least=0,
    ),
    Option(
        "min_p",
        ("--min-p",),
        float,
        0.05,
        "Keep what has this share of the best one's probability; 0 = off.",
        SAMPLING,
        "P",
        least=0,
        most=1,
    ),
    Option(
        "typical",
        ("--typical-p",),
        float,
        1.0,
        "Locally typical sampling; 1 = off.",
        SAMPLING,
        "P",
        aliases=("--typical",),
        least=0,
    ),
    Option(
        "repeat_last_n",
        ("--repeat-last-n",),
        int,
        64,
        "Window of the penalties; 0 = off, -1 = whole context.",
        SAMPLING,
        "N",
        least=-1,
    ),
    Option(
        "repeat_penalty",
        ("--repeat-penalty",),
        float,
        1.0,
        "Penalty for repeats; 1 = off.",
        SAMPLING,
        "X",
        least=1e-6,
        most=1e6,
    ),
    Option(
        "presence_penalty",
        ("--presence-penalty",),
        float,
        0.0,
        "Penalty for tokens already there.",
        SAMPLING,
        "X",
    ),
    Option(
        "frequency_penalty",
        ("--frequency-penalty",),
        float,
        0.0,
        "Penalty for each time a token is there.",
        SAMPLING,
        "X",
    ),
    Option(
        "logit_bias",
        ("-l", "--logit-bias"),
        str,
        (),
        "ID+BIAS or ID-BIAS, e.g. 15043-1; -inf bans. Repeatable.",
        SAMPLING,
        "ID±X",
        many=True,
    ),
    Option(
        "samplers",
        ("--samplers",),
        str,
        ";".join(DEFAULT_SAMPLERS),
        "Samplers in order, separated by ;.",
        SAMPLING,
        "LIST",
    ),
    Option("ignore_eos", ("--ignore-eos",), bool, False, "Never end by itself.", SAMPLING),
    Option("min_tokens", ("--min-tokens",), int, 0, "No end before so many tokens.", SAMPLING, "N", least=0),
)
TEXT_OPTIONS = (
    Option(
        "n_predict",
        ("-n", "--predict"),
        int,
        -1,
        "Tokens at most; -1 = until the context is full.",
        TEXT,
        "N",
        aliases=("--n-predict",),
        least=-1,
    ),
    Option(
        "stop",
        ("-r", "--stop"),
        str,
        (),
        "Stop where this text comes. Repeatable.",
        TEXT,
        "TEXT",
        aliases=("--reverse-prompt",),
        many=True,
    ),
    Option("system", ("-sys", "--system-prompt"), str, None, "System message.", TEXT, "TEXT"),
)
#: Options that do nothing without a draft model, and without the n-gram drafter.
DRAFT_ONLY = (
    "gpu_layers_draft",
    "threads_draft",
    "threads_batch_draft",
    "cache_type_k_draft",
    "cache_type_v_draft",
)
NGRAM_ONLY = ("ngram_size_n", "ngram_size_m", "ngram_min_hits")
GENERATION_OPTIONS = (*ENGINE_OPTIONS, *SPEC_OPTIONS, *SAMPLING_OPTIONS, *TEXT_OPTIONS)

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
