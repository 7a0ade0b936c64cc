"""Every option of the table, from its spellings to the field of the engine it is for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from localspec.drafters.options import Scored, TextOptions
from localspec.engine_options import FitOptions
from localspec.errors import UsageError
from localspec.loading import EngineOptions, ModelOptions, RopeOptions
from localspec.options import COMMANDS, GENERATION_OPTIONS, Option, Values, engine_options, request, settle
from localspec.options.commands import Command
from localspec.options.option import spellings
from localspec.options.parse import parse
from localspec.options.rules import DRAFT_ONLY, EXCLUSIVE, NEEDS, ONLY_WITH
from localspec.options.tables.load import LIMITS, PARALLEL
from localspec.spec_types import SPEC_TYPES
from localspec.types import SamplingParams

#: For options whose kind does not say what a sensible value is.
SAMPLES: dict[str, Any] = {
    "gpu_layers": "7",
    "gpu_layers_draft": "all",
    "spec_type": "ngram-simple,draft-simple",
    "samplers": "top_k;temperature",
    "logit_bias": ("15-1.5", "16-inf"),
    "grammar": 'root ::= "a"',
    "json_schema": '{"type": "null"}',
    "stop": ("one", "two words"),
    "fit_target": "512,2048",
    "device": "RPC0,RPC1",
    "device_draft": "none",
    "override_tensor": ("exps=CPU,attn=RPC0", "norm=CPU"),
    "override_tensor_draft": ("exps=CPU",),
    "tensor_split": "3,1",
    "rpc": "127.0.0.1:50052,[::1]:9",
    "lora": ("a.gguf", "b.gguf"),
    "lora_scaled": ("a:b.gguf:0.5",),
    "chat_template": "chatml",
    "chat_template_kwargs": '{"a": [1]}',
    "load_mode": "mmap+mlock",
    "dry_base": 2.5,
    "dry_allowed_length": 3,
    "dry_sequence_breaker": (r"\t", "none", "a b"),
    "sampler_sets": "greedy,top-k",
    "shapes": "chain,tree",
    "server": ("http://127.0.0.1:1", "b=http://127.0.0.1:2"),
    "seconds": 90.0,
    "guessable": 64,
    "width": 32,
    "setting": ("chain=--spec fixed", "off=--spec off"),
}
#: Where each option arrives.
ARRIVES = {
    "model": {"target.path"},
    "model_draft": {"draft.path"},
    "gpu_layers": {"target.gpu_layers"},
    "gpu_layers_draft": {"draft.gpu_layers"},
    "fit": {"fit.on"},
    "fit_target": {"fit.margins"},
    "fit_ctx": {"fit.n_ctx"},
    "device": {"target.devices", "draft.devices"},  # the draft's follow unless -devd is given
    "device_draft": {"draft.devices"},
    "override_tensor": {"target.tensor_overrides"},
    "override_tensor_draft": {"draft.tensor_overrides"},
    "cpu_moe": {"target.cpu_moe"},
    "n_cpu_moe": {"target.cpu_moe"},
    "cpu_moe_draft": {"draft.cpu_moe"},
    "n_cpu_moe_draft": {"draft.cpu_moe"},
    "split_mode": {"target.split_mode", "draft.split_mode"},
    "tensor_split": {"target.tensor_split", "draft.tensor_split"},
    "main_gpu": {"target.main_gpu", "draft.main_gpu"},
    "kv_offload": {"target.kv_offload", "draft.kv_offload"},
    "rpc": {"rpc"},
    "load_mode": {"target.mlock", "draft.mlock"},
    "mmap": {"target.mmap", "draft.mmap"},
    "mlock": {"target.mlock", "draft.mlock"},
    "repack": {"target.repack", "draft.repack"},
    "check_tensors": {"target.check_tensors", "draft.check_tensors"},
    "lora": {"target.lora"},
    "lora_scaled": {"target.lora"},
    "ctx_size": {"n_ctx"},
    "batch_size": {"n_batch"},
    "ubatch_size": {"n_ubatch"},
    "threads": {"target.threads", "draft.threads"},  # the draft's follow unless -td is given
    "threads_batch": {"target.threads_batch"},
    "threads_draft": {"draft.threads"},
    "threads_batch_draft": {"draft.threads_batch"},
    "flash_attn": {"flash_attn"},
    "exact": {"exact"},
    "cache_type_k": {"target.cache_type_k"},
    "cache_type_v": {"target.cache_type_v"},
    "cache_type_k_draft": {"draft.cache_type_k"},
    "cache_type_v_draft": {"draft.cache_type_v"},
    "swa_full": {"swa_full"},
    "rope_scaling": {"target.rope.scaling"},
    "rope_scale": {"target.rope.freq_scale"},
    "rope_freq_base": {"target.rope.freq_base"},
    "rope_freq_scale": {"target.rope.freq_scale"},
    "yarn_orig_ctx": {"target.rope.yarn_orig_ctx"},
    "yarn_ext_factor": {"target.rope.yarn_ext_factor"},
    "yarn_attn_factor": {"target.rope.yarn_attn_factor"},
    "yarn_beta_slow": {"target.rope.yarn_beta_slow"},
    "yarn_beta_fast": {"target.rope.yarn_beta_fast"},
    "log_file": {"log_file"},
    "chat_template": {"chat_template"},
    "chat_template_file": {"chat_template"},
    "chat_template_kwargs": {"template_kwargs"},
    "spec": {"spec.mode", "spec.depth"},
    "spec_type": {"spec_types"},
    "draft_n_max": {"spec.depth"},
    "draft_n_min": {"spec.min_depth"},
    "draft_p_min": {"spec.p_min"},
    "tree_nodes": {"tree_nodes", "spec.nodes"},
    "tree_width": {"spec.width"},
    "spec_accept": {"spec.accept"},
    "ngram_size_n": {"by_text.ngram_simple.size_n"},
    "ngram_size_m": {"by_text.ngram_simple.size_m"},
    "ngram_min_hits": {"by_text.ngram_simple.min_hits"},
    "ngram_map_k_size_n": {"by_text.ngram_map_k.size_n"},
    "ngram_map_k_size_m": {"by_text.ngram_map_k.size_m"},
    "ngram_map_k_min_hits": {"by_text.ngram_map_k.min_hits"},
    "ngram_map_k4v_size_n": {"by_text.ngram_map_k4v.size_n"},
    "ngram_map_k4v_size_m": {"by_text.ngram_map_k4v.size_m"},
    "ngram_map_k4v_min_hits": {"by_text.ngram_map_k4v.min_hits"},
    "ngram_mod_n_match": {"by_text.ngram_mod.n_match"},
    "ngram_mod_n_min": {"by_text.ngram_mod.n_min"},
    "ngram_mod_n_max": {"by_text.ngram_mod.n_max"},
    "lookup_static": {"by_text.lookup_static"},
    "lookup_dynamic": {"by_text.lookup_dynamic"},
    "spec_corpus": {"by_text.corpus"},
    "head_vocab": {"scored.n"},
    "token_map": {"scored.path"},
    "medusa_tree": {"medusa_tree"},
    "backend": {"backend"},
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
    "dry_multiplier": {"sampling.dry_multiplier"},
    "dry_base": {"sampling.dry_base"},
    "dry_allowed_length": {"sampling.dry_allowed_length"},
    "dry_penalty_last_n": {"sampling.dry_penalty_last_n"},
    "dry_sequence_breaker": {"sampling.dry_sequence_breakers"},
    "top_nsigma": {"sampling.top_n_sigma"},
    "xtc_probability": {"sampling.xtc_probability"},
    "xtc_threshold": {"sampling.xtc_threshold"},
    "dynatemp_range": {"sampling.dynatemp_range"},
    "dynatemp_exponent": {"sampling.dynatemp_exponent"},
    "mirostat": {"sampling.mirostat"},
    "mirostat_lr": {"sampling.mirostat_eta"},
    "mirostat_ent": {"sampling.mirostat_tau"},
    "adaptive_target": {"sampling.adaptive_target"},
    "adaptive_decay": {"sampling.adaptive_decay"},
    "logit_bias": {"sampling.logit_bias"},
    "samplers": {"sampling.samplers"},
    "ignore_eos": {"sampling.ignore_eos"},
    "min_tokens": {"sampling.min_tokens"},
    "grammar": {"sampling.grammar"},
    "grammar_file": {"sampling.grammar"},
    "json_schema": {"sampling.grammar"},
    "json_schema_file": {"sampling.grammar"},
    "n_predict": {"max_tokens"},
    "stop": {"stop"},
    "parallel": {"sequences", "kept"},
    "max_concurrency": {"most_running"},
    "max_queue": {"most_waiting"},
}
#: Those that commands read themselves: they become messages, or files that stand in for ``model``.
ELSEWHERE = {
    "system",
    "system_file",
    "reasoning",
    "dump",
    "hf_repo",
    "hf_file",
    "hf_repo_draft",
    "hf_file_draft",
    "hf_token",
    "offline",
}
ARRIVING = (*GENERATION_OPTIONS, PARALLEL, *LIMITS)
BASE = {option.name: option.default for option in ARRIVING} | {
    "model": "target.gguf",
    "model_draft": "draft.gguf",
    "spec_type": "draft-simple,ngram-simple",
}
SPELLINGS = [
    (command, option, flag, on)
    for command in COMMANDS.values()
    for option in command.options
    for flag, on in spellings(option)
    if command.name == "complete" or option not in COMMANDS["complete"].options
]


#: What is in the files that some options name.
FILES = {
    "chat_template_file": "{% for message in messages %}{{ message.content }}{% endfor %}",
    "grammar_file": 'root ::= "a"',
    "json_schema_file": '{"type": "null"}',
}


def sample(option: Option) -> Any:
    """A value that is not the default."""
    if option.name in SAMPLES:
        return SAMPLES[option.name]
    if option.kind is bool:
        return not option.default
    if option.choices:
        return next(choice for choice in option.choices if choice != option.default)
    return {int: 2, float: 0.5, str: "some text"}[option.kind]


# Spellings


def forms(option: Option, flag: str, texts: tuple[str, ...]) -> Iterator[list[str]]:
    """Ways to write a flag and its values."""
    if option.kind is bool:
        yield [flag]
        return
    yield [word for text in texts for word in (flag, text)]
    yield [f"{flag}={text}" for text in texts]


#: Names of other programs whose values are others, too: what stands for the sample.
FOREIGN = {"--speculative-num-draft-tokens": ("3",), "--speculative-algorithm": ("EAGLE3",)}


@pytest.mark.parametrize(
    ("command", "option", "flag", "on"), SPELLINGS, ids=[f"{one.name} {flag}" for one, _, flag, _ in SPELLINGS]
)
def test_every_spelling_sets_its_value_and_no_other(command: Command, option: Option, flag: str, on: bool) -> None:
    value: Any = on if option.kind is bool else sample(option)
    texts: tuple[str, ...] = value if option.many else (str(value),)
    places = [word for argument in command.arguments for word in ("x",) if argument.required]
    texts = FOREIGN.get(flag, texts)
    value = "draft-eagle3" if flag == "--speculative-algorithm" else value
    for form in forms(option, flag, texts):
        given = parse([*form, *places], command)
        required = {argument.name for argument in command.arguments if argument.required}
        assert given.texts.keys() == {option.name} | required
        assert [option.flag in note for note in given.notes] == [True] * (flag in option.former) * len(texts)
        if option.name not in ("config", "profile"):  # they name files
            values = settle(command, given, {}).values
            implied = {"conversation": True} if option.name in ("system", "system_file") else {}
            implied = implied if "conversation" in values else {}
            assert values == {**settle(command, parse(places, command), {}).values, option.name: value, **implied}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=attrgetter("name"))
def test_no_spelling_has_two_meanings(command: Command) -> None:
    flags = [flag for option in command.options for flag, _ in spellings(option)]
    assert len(flags) == len(set(flags))
    names = [name for one in command.options for name in (*one.variables, *one.off_variables)]
    assert len(names) == len(set(names))


def test_an_option_has_one_type_in_all_commands() -> None:
    """Files and environment are for all commands."""
    kinds: dict[str, set[tuple[Any, ...]]] = {}
    for command in COMMANDS.values():
        for option in command.options:
            if option.flags:
                kinds.setdefault(option.name, set()).add((option.flags, option.kind, option.many, option.env))
    assert {name for name, found in kinds.items() if len(found) > 1} == set()


def test_rules_name_options_that_exist() -> None:
    known = {option.name for command in COMMANDS.values() for option in command.options}
    named = {name for pair in EXCLUSIVE for side in pair for name in side}
    needed = {name for one, others in NEEDS for name in (one, *others)}
    assert named | needed | {*DRAFT_ONLY} <= known
    assert {name for names in ONLY_WITH.values() for name in names} <= known
    assert {drafter for drafters in ONLY_WITH for drafter in drafters} <= set(SPEC_TYPES)


# Arrival


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


@pytest.mark.parametrize("option", [o for o in ARRIVING if o.name not in ELSEWHERE], ids=attrgetter("name"))
def test_every_option_arrives_where_it_belongs_and_nowhere_else(option: Option, tmp_path: Path) -> None:
    value = sample(option)
    if option.name in FILES:
        value = str(tmp_path / "file")
        Path(value).write_text(FILES[option.name])
    before, after = arrived(BASE), arrived({**BASE, option.name: value})
    assert {field for field in after if after[field] != before[field]} == ARRIVES[option.name]


def test_every_field_has_an_option() -> None:
    reached = {field for arrives in ARRIVES.values() for field in arrives}
    whole = {"target", "draft", "by_text", "scored", "fit"}
    by_library = {"measure"}
    parts = {name.rpartition(".")[0] for name in reached}
    assert {f"by_text.{field.name}" for field in fields(TextOptions)} <= reached | parts
    assert {f"scored.{field.name}" for field in fields(Scored)} <= reached
    assert {f"fit.{field.name}" for field in fields(FitOptions)} <= reached
    assert {f"sampling.{field.name}" for field in fields(SamplingParams)} <= reached
    assert {field.name for field in fields(EngineOptions)} - whole - by_library <= reached
    assert {f"target.{field.name}" for field in fields(ModelOptions)} - {"target.rope"} <= reached
    assert {f"target.rope.{field.name}" for field in fields(RopeOptions)} <= reached
    # Adapters and positions are the target's alone.
    assert {f"draft.{field.name}" for field in fields(ModelOptions)} - {"draft.rope", "draft.lora"} <= reached


def test_values_arrive_as_meant() -> None:
    values = {**BASE, "logit_bias": ("15-1.5", "16-inf", "17+2"), "gpu_layers": "all", "gpu_layers_draft": "0"}
    fields = arrived({**values, "threads": 3, "threads_draft": 2, "log_file": "a b.log"})
    assert fields["sampling.logit_bias"] == ((15, -1.5), (16, float("-inf")), (17, 2.0))
    assert (fields["target.gpu_layers"], fields["draft.gpu_layers"]) == (-1, 0)
    assert (fields["target.threads"], fields["draft.threads"]) == (3, 2)
    assert fields["log_file"] == Path("a b.log")
    assert fields["sampling.seed"] is None


def test_lists_arrive_as_meant() -> None:
    fields = arrived({**BASE, **{name: SAMPLES[name] for name in ("override_tensor", "tensor_split", "rpc", "device")}})
    assert fields["target.tensor_overrides"] == (("exps", "CPU"), ("attn", "RPC0"), ("norm", "CPU"))
    assert fields["target.tensor_split"] == fields["draft.tensor_split"] == (3.0, 1.0)
    assert fields["rpc"] == ("127.0.0.1:50052", "[::1]:9")
    assert fields["target.devices"] == fields["draft.devices"] == ("RPC0", "RPC1")
    fields = arrived({**BASE, "lora": ('"a,b.gguf",c.gguf',), "lora_scaled": ("d:e.gguf:-0.5",)})
    assert fields["target.lora"] == ((Path("a,b.gguf"), 1.0), (Path("c.gguf"), 1.0), (Path("d:e.gguf"), -0.5))
    assert arrived({**BASE, "override_tensor": (r"blk\.[0-3]\.=CPU",)})["target.tensor_overrides"] == (
        (r"blk\.[0-3]\.", "CPU"),
    )


@pytest.mark.parametrize(("mode", "mmap", "mlock"), [("none", 0, 0), ("mmap", 1, 0), ("mlock", 0, 1)])
def test_load_modes(mode: str, mmap: int, mlock: int) -> None:
    fields = arrived({**BASE, "load_mode": mode})
    assert (fields["target.mmap"], fields["target.mlock"]) == (fields["draft.mmap"], fields["draft.mlock"])
    assert (fields["target.mmap"], fields["target.mlock"]) == (mmap, mlock)


def test_a_draft_on_devices_of_its_own_takes_no_shares_of_the_target() -> None:
    values = {**BASE, "device": "A,B", "tensor_split": "1,2", "main_gpu": 1, "split_mode": "row"}
    fields = arrived({**values, "device_draft": "none", "cpu_moe": True, "rope_scale": 4.0})
    assert (fields["target.devices"], fields["draft.devices"]) == (("A", "B"), ("none",))
    assert (fields["draft.tensor_split"], fields["draft.main_gpu"], fields["draft.split_mode"]) == ((), None, None)
    assert (fields["target.cpu_moe"], fields["draft.cpu_moe"]) == (-1, 0)
    assert (fields["target.rope.freq_scale"], fields["draft.rope.freq_scale"]) == (0.25, None)


def test_files_that_were_found_stand_in_for_names() -> None:
    found = engine_options({**BASE, "model": None, "model_draft": None}, Path("t.gguf"), Path("d.gguf"))
    assert (found.target.path, found.draft and found.draft.path) == (Path("t.gguf"), Path("d.gguf"))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("gpu_layers", "some", "-ngl some"),
        ("gpu_layers", "²", "-ngl ²"),
        ("gpu_layers_draft", "-1", "-ngld -1"),
        ("device", "", "-dev"),
        ("device", "A,none", "-dev A,none"),
        ("device_draft", "A,,B", "-devd A,,B"),
        ("override_tensor", ("exps",), "-ot exps"),
        ("override_tensor", ("exps=",), "-ot exps="),
        ("override_tensor_draft", ("=CPU",), "-otd =CPU"),
        ("tensor_split", "1,x", "--tensor-split 1,x"),
        ("tensor_split", "0,0", "--tensor-split 0,0"),
        ("tensor_split", "nan", "--tensor-split nan"),
        ("tensor_split", "1,-1", "--tensor-split 1,-1"),
        ("rpc", "localhost", "--rpc localhost"),
        ("rpc", "a:1,b:70000", "--rpc b:70000"),
        ("rpc", ":1", "--rpc :1"),
        ("lora", ("",), "--lora"),
        ("lora_scaled", ("a.gguf",), "--lora-scaled a.gguf"),
        ("lora_scaled", ("a.gguf:nan",), "--lora-scaled a.gguf:nan"),
        ("chat_template", "chatmi", "chatml"),
        ("chat_template_file", "/no/such", "/no/such"),
        ("grammar", "root ::= (", "line 1, column 10"),
        ("grammar_file", "/no/such", "/no/such"),
        ("json_schema", "{", "no JSON"),
        ("json_schema_file", "/no/such", "/no/such"),
        ("chat_template_kwargs", "[1]", "--chat-template-kwargs"),
        ("chat_template_kwargs", "{", "--chat-template-kwargs"),
    ],
)
def test_what_cannot_be_read_is_named(name: str, value: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        arrived({**BASE, name: value})
    assert words in f"{caught.value.message} {caught.value.hint}"
