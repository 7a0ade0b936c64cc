"""Which options exclude each other, which need another, and which do nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from localspec.errors import UsageError
from localspec.options.option import Option
from localspec.options.origin import CLI, Level, Origin
from localspec.options.remote import OF_ENGINES, is_remote
from localspec.types import DEFAULT_SAMPLERS

Values = Mapping[str, Any]


def depth(values: Values) -> int:
    """Guesses on a path at most. Where what pays is measured there is no harm in a high limit."""
    given: int | None = values["draft_n_max"]
    return given if given is not None else {"auto": 16, "fixed": 3, "off": 0}[values["spec"]]


def servers_alone(values: Values) -> bool:
    """Whether answers come from servers and from no model here."""
    return bool(values.get("server")) and not any(values[name] for name in _OF_A_MODEL)


#: Two sides of which one can be had. The first name of a side is the one that decides.
EXCLUSIVE: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("model",), ("hf_repo", "hf_file")),
    (("model_draft",), ("hf_repo_draft", "hf_file_draft")),
    (("system",), ("system_file",)),
    (("chat_template",), ("chat_template_file",)),
    (("load_mode",), ("mmap", "mlock")),
    (("cpu_moe",), ("n_cpu_moe",)),
    (("cpu_moe_draft",), ("n_cpu_moe_draft",)),
    (("rope_scale",), ("rope_freq_scale",)),
    (("json",), ("jsonl",)),
    (("grammar", "grammar_file"), ("json_schema", "json_schema_file")),
    (("grammar",), ("grammar_file",)),
    (("json_schema",), ("json_schema_file",)),
    (("json",), ("output",)),
    (("exact",), ("spec_accept", "ubatch_size")),
    (("resume",), ("session",)),
    (("resume", "session"), ("save_session",)),
)
#: Why ``exact`` excludes what it excludes, where names do not tell.
NOT_EXACT = {
    "spec_accept": "the rule ratio draws other random numbers than plain decoding",
    "ubatch_size": "rows are computed eight at a time, whatever else is asked for",
}
#: These do nothing without one of the others.
NEEDS = (
    ("hf_file", ("hf_repo",)),
    ("hf_file_draft", ("hf_repo_draft",)),
    ("server_model", ("server", "server_baseline")),
    ("api_key", ("server", "server_baseline")),
)
#: One of these beside --server asks for a model here too.
_OF_A_MODEL = ("model", "hf_repo", "model_draft", "hf_repo_draft", "setting", "spec_type")
NEEDED = {"hf_repo": "repository", "hf_repo_draft": "repository", "server": "server"}
#: Options that do nothing without a draft model.
DRAFT_ONLY = (
    "gpu_layers_draft",
    "device_draft",
    "override_tensor_draft",
    "cpu_moe_draft",
    "n_cpu_moe_draft",
    "threads_draft",
    "threads_batch_draft",
    "cache_type_k_draft",
    "cache_type_v_draft",
)
#: Options that do nothing without a chat template.
TEMPLATE_ONLY = ("chat_template", "chat_template_file", "chat_template_kwargs", "reasoning")
#: Drafters that are there unless others are named.
DEFAULT_TYPES = ("suffix",)
#: Drafters, and options that do nothing without one of them.
ONLY_WITH: dict[tuple[str, ...], tuple[str, ...]] = {
    ("ngram-simple",): ("ngram_size_n", "ngram_size_m", "ngram_min_hits"),
    ("ngram-map-k",): ("ngram_map_k_size_n", "ngram_map_k_size_m", "ngram_map_k_min_hits"),
    ("ngram-map-k4v",): ("ngram_map_k4v_size_n", "ngram_map_k4v_size_m", "ngram_map_k4v_min_hits"),
    ("ngram-mod",): ("ngram_mod_n_match", "ngram_mod_n_min", "ngram_mod_n_max"),
    ("ngram-cache",): ("lookup_static", "lookup_dynamic"),
    ("suffix", "ngram-mod"): ("spec_corpus",),
}
#: Samplers, and the options that turn them on.
SAMPLERS = {
    "penalties": ("repeat_penalty", "presence_penalty", "frequency_penalty"),
    "dry": ("dry_multiplier",),
    "top_n_sigma": ("top_nsigma",),
    "top_k": ("top_k",),
    "typ_p": ("typical",),
    "top_p": ("top_p",),
    "min_p": ("min_p",),
    "xtc": ("xtc_probability",),
    "temperature": ("dynatemp_range",),
    "adaptive_p": ("adaptive_target",),
}


def check_values(options: tuple[Option, ...], values: Values, origins: Mapping[str, Origin] | None = None) -> None:
    """Checks every value against its option, and those that depend on each other.

    What a file or the environment says of a draft model that is not there is no mistake: it waits for one. Without
    ``origins`` all values count as given by hand.

    Raises:
        UsageError: naming the flag, the variable or the file's key.
    """
    _Rules(options, values, origins or {}).check()


def ignored(options: tuple[Option, ...], values: Values) -> tuple[str, ...]:
    """A line for each sampling option that is not at its default and, as in llama.cpp, does nothing: with Mirostat, or
    since ``samplers`` does not name its sampler.

    Raises:
        UsageError: an unknown sampler.
    """
    flags = {one.name: one.flag for one in options if values[one.name] != one.default}
    turned_on = [(name, flags[option]) for name, some in SAMPLERS.items() for option in some if option in flags]
    if "mirostat" in flags:
        idle = [flag for _, flag in turned_on] + [flags[name] for name in ("samplers",) if name in flags]
        return tuple(f"{flag} does nothing: --mirostat draws without other samplers" for flag in idle)
    names: tuple[str, ...] = DEFAULT_SAMPLERS
    if turned_on and "samplers" in flags:
        from localspec.params import parse_samplers

        names = parse_samplers(values["samplers"])
    return tuple(
        f"{flag} does nothing: --samplers does not name {name}" for name, flag in turned_on if name not in names
    )


class _Rules:
    def __init__(self, options: tuple[Option, ...], values: Values, origins: Mapping[str, Origin]) -> None:
        self._options = {option.name: option for option in options}
        self._values = values
        self._origins = origins

    def check(self) -> None:
        for option in self._options.values():
            option.check(self._values[option.name], self._origin(option.name))
        self._check_exclusive()
        self._check_needs()
        if is_remote(self._values):
            self._check_remote()
        if "draft_n_max" in self._options:
            self._check_drafting()
        if "model_draft" in self._options:
            self._check_draft_model()
        if {"conversation", "prompt"} <= self._options.keys():  # lines of a batch may hold messages
            self._check_template(always=self._options["conversation"].default)

    def _check_template(self, *, always: bool) -> None:
        if always and self._by_hand(("conversation",)):
            raise UsageError(f"{self._site('conversation')} is given, but chat is one", hint="Use localspec complete.")
        uses = always or self._values["conversation"] or self._has("system") or self._has("system_file")
        if not uses and (name := self._by_hand(TEMPLATE_ONLY)):
            raise UsageError(
                f"{self._site(name)} is given, but the prompt goes through no chat template", hint="Add -cnv."
            )

    def _check_exclusive(self) -> None:
        for one, other in EXCLUSIVE:
            first, second = next(self._given(one), None), next(self._given(other), None)
            if first and second:
                why = f": {NOT_EXACT[second]}" if first == "exact" else ""
                raise UsageError(
                    f"{self._site(first)} and {self._site(second)} are given together{why}", hint="Choose one."
                )

    def _check_needs(self) -> None:
        for name, others in NEEDS:
            needed = others[0]
            if needed in self._options and self._by_hand((name,)) and not any(self._given(others)):
                raise UsageError(
                    f"{self._site(name)} is given without {self._options[needed].flags[0]}",
                    hint=f"Say which {NEEDED[needed]} with {self._options[needed].flags[0]}.",
                )

    def _check_remote(self) -> None:
        if name := self._by_hand(tuple(sorted(OF_ENGINES))):
            raise UsageError(
                f"{self._site(name)} is given, but a server answers, which has its model already",
                hint="Say it where the server is started, or leave --server out.",
            )

    def _check_drafting(self) -> None:
        values = self._values
        if values["draft_n_min"] > depth(values):
            cites = [
                self._origin(name).cite(self._options[name].flag, value)
                for name, value in (("draft_n_min", values["draft_n_min"]), ("draft_n_max", depth(values)))
            ]
            raise UsageError(
                f"{cites[0]} is more than {cites[1]}",
                hint="No draft could ever be long enough: lower the one or raise the other.",
            )
        self._check_guessers()

    def _check_draft_model(self) -> None:
        draft = self._has("model_draft") or self._has("hf_repo_draft")
        if not draft and (name := self._by_hand(DRAFT_ONLY)):
            raise UsageError(f"{self._site(name)} is given without a draft model", hint="Give one with -md or -hfd.")

    def _check_guessers(self) -> None:
        types = self._values["spec_type"]
        loaded = DEFAULT_TYPES if types is None else [name.strip() for name in types.split(",")]
        for drafters, names in ONLY_WITH.items():
            if not {*drafters} & {*loaded} and (name := self._by_hand(names)):
                raise UsageError(
                    f"{self._site(name)} is given, but {' or '.join(drafters)} does not guess",
                    hint=f"Add {drafters[0]} to --spec-type.",
                )

    def _has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def _given(self, names: tuple[str, ...]) -> Iterator[str]:
        """Those that have not their default value."""
        return (name for name in names if name in self._options and self._values[name] != self._options[name].default)

    def _by_hand(self, names: tuple[str, ...]) -> str | None:
        return next((name for name in self._given(names) if self._origin(name).level is Level.CLI), None)

    def _origin(self, name: str) -> Origin:
        return self._origins.get(name, CLI)

    def _site(self, name: str) -> str:
        option = self._options[name]
        if self._origin(name).level is Level.CLI and option.negations and self._values[name] is False:
            return option.negations[-1]
        return self._origin(name).site(option.flags[0])
