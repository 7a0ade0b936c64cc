"""Which source counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pytest

from localspec.errors import UsageError
from localspec.options import COMMANDS, Settings, check_values
from localspec.options.origin import Level
from tests.options.sources import Sources

#: Lowest rank first.
RANKS = ("system", "user", "system profile", "user profile", "LLAMA_ARG", "LOCALSPEC", "cli")


@dataclass(frozen=True)
class Case:
    """An option, and a value for each source as it is written there."""

    name: str
    flag: str
    theirs: str  # llama.cpp's variable
    toml: tuple[str, ...]
    texts: tuple[str, ...]
    values: tuple[Any, ...]
    off: str = ""


NUMBERS = tuple(str(n) for n in range(1, 8))
SWITCHES = tuple("true" if n % 2 else "false" for n in range(7))
ATTENTION = ("on", "off", "on", "off", "on", "off", "on")
HALVES = tuple(f"{n}.5" for n in NUMBERS)
CASES = (
    Case("n_predict", "--predict", "LLAMA_ARG_N_PREDICT", NUMBERS, NUMBERS, tuple(map(int, NUMBERS))),
    Case("temp", "--temp", "LLAMA_ARG_TEMPERATURE", HALVES, HALVES, tuple(map(float, HALVES))),
    Case(
        "mmap", "--mmap", "LLAMA_ARG_MMAP", SWITCHES, SWITCHES, tuple(word == "true" for word in SWITCHES), "--no-mmap"
    ),
    Case("flash_attn", "--flash-attn", "LLAMA_ARG_FLASH_ATTN", tuple(map(repr, ATTENTION)), ATTENTION, ATTENTION),
    Case(
        "override_tensor",
        "--override-tensor",
        "LLAMA_ARG_OVERRIDE_TENSOR",
        tuple(f'["{n}=CPU", "x=CPU"]' for n in NUMBERS),
        tuple(f"{n}=CPU\nx=CPU" for n in NUMBERS),
        tuple((f"{n}=CPU", "x=CPU") for n in NUMBERS),
    ),
)


def settled(sources: Sources, case: Case, ranks: Sequence[int]) -> Settings:
    key = case.flag.lstrip("-")
    env = {}
    arguments = ["--profile", "p"]
    texts = {"system": ["[profile.q]", "[profile.p]"], "user": ["[profile.p]"]}
    for rank in ranks:
        where, toml, text = RANKS[rank], f"{key} = {case.toml[rank]}", case.texts[rank]
        if where == "cli":
            off = [case.off] if text == "false" else [case.flag]
            arguments += off if case.off else [word for one in text.split("\n") for word in (case.flag, one)]
        elif where in ("LLAMA_ARG", "LOCALSPEC"):
            env[case.theirs if where == "LLAMA_ARG" else f"LOCALSPEC_{key.replace('-', '_').upper()}"] = text
        elif where.endswith("profile"):
            texts[where.split()[0]].append(toml)
        else:
            texts[where].insert(0, toml)
    sources.system.write_text("\n".join(texts["system"]))
    sources.user.write_text("\n".join(texts["user"]))
    return sources.settle(arguments, env)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_of_any_two_sources_the_higher_counts(case: Case, sources: Sources) -> None:
    for low, high in combinations(range(len(RANKS)), 2):
        got = settled(sources, case, (low, high))
        assert (got.values[case.name], RANKS[low], RANKS[high]) == (case.values[high], RANKS[low], RANKS[high])


@pytest.mark.parametrize("rank", range(len(RANKS)), ids=RANKS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_source_counts_and_is_named(case: Case, rank: int, sources: Sources) -> None:
    got = settled(sources, case, (rank,))
    key = case.flag.lstrip("-")
    said = {
        "system": f"file {sources.system}",
        "user": f"file {sources.user}",
        "system profile": f"file {sources.system} [profile.p]",
        "user profile": f"file {sources.user} [profile.p]",
        "LLAMA_ARG": f"env {case.theirs}",
        "LOCALSPEC": f"env LOCALSPEC_{key.replace('-', '_').upper()}",
        "cli": "cli",
    }
    assert got.values[case.name] == case.values[rank]
    assert str(got.origins[case.name]) == said[RANKS[rank]]
    others = {name: origin for name, origin in got.origins.items() if name not in (case.name, "profile")}
    assert {origin.level for origin in others.values()} == {Level.DEFAULT}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_sources_together(case: Case, sources: Sources) -> None:
    for top in range(len(RANKS)):
        assert settled(sources, case, range(top + 1)).values[case.name] == case.values[top]


def test_defaults_without_any_source(sources: Sources) -> None:
    for command in COMMANDS.values():
        places = [word for argument in command.arguments for word in ("x",) if argument.required]
        got = sources.settle(places, command=command.name)
        flags = [option for option in command.options if option.flags]
        assert {option.name: got.values[option.name] for option in flags} == {one.name: one.default for one in flags}
        check_values(command.options, got.values, got.origins)


# The environment


@pytest.mark.parametrize("word", ["true", "1", "on", "enabled", "TRUE", "On"])
def test_words_for_on(word: str, sources: Sources) -> None:
    assert sources.settle(env={"LOCALSPEC_IGNORE_EOS": word}).values["ignore_eos"] is True
    assert sources.settle(env={"LOCALSPEC_NO_MMAP": word}).values["mmap"] is False


@pytest.mark.parametrize("word", ["false", "0", "off", "disabled"])
def test_words_for_off(word: str, sources: Sources) -> None:
    assert sources.settle(env={"LLAMA_ARG_KV_OFFLOAD": word}).values["kv_offload"] is False
    assert sources.settle(env={"LLAMA_ARG_FLASH_ATTN": word}).values["flash_attn"] == "off"


def test_an_empty_variable_is_none(sources: Sources) -> None:
    got = sources.settle(env={"LOCALSPEC_TEMP": "", "LLAMA_ARG_TEMPERATURE": "0.25"})
    assert (got.values["temp"], got.origins["temp"].name) == (0.25, "LLAMA_ARG_TEMPERATURE")


def test_negative_variables_of_llama_cpp(sources: Sources) -> None:
    got = sources.settle(env={"LLAMA_ARG_NO_KV_OFFLOAD": "1"})
    assert (got.values["kv_offload"], got.origins["kv_offload"].name) == (False, "LLAMA_ARG_NO_KV_OFFLOAD")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("LOCALSPEC_TEMP", "warm", "LOCALSPEC_TEMP=warm is not a number"),
        ("LLAMA_ARG_TEMPERATURE", "nan", "LLAMA_ARG_TEMPERATURE=nan is out of range"),
        ("LLAMA_ARG_TOP_P", "1.5", "LLAMA_ARG_TOP_P=1.5 is out of range"),
        ("LOCALSPEC_PREDICT", "1.5", "LOCALSPEC_PREDICT=1.5 is not an integer"),
        ("LOCALSPEC_IGNORE_EOS", "maybe", "LOCALSPEC_IGNORE_EOS=maybe is not true or false"),
        ("LLAMA_ARG_FLASH_ATTN", "maybe", "LLAMA_ARG_FLASH_ATTN=maybe is not possible"),
        ("LLAMA_ARG_THREADS", "99999", "LLAMA_ARG_THREADS=99999 is out of range"),
    ],
)
def test_bad_variables_are_named(name: str, text: str, words: str, sources: Sources) -> None:
    with pytest.raises(UsageError, match=words.replace("_", ".")):
        sources.settle(env={name: text})


def test_a_misspelt_variable_is_mentioned(sources: Sources) -> None:
    (line,) = sources.settle(env={"LOCALSPEC_TEMPP": "1", "LOCALSPEC_CMAKE_ARGS": "-D", "TEMPP": "1"}).notes
    assert line == "LOCALSPEC_TEMPP sets no option; did you mean LOCALSPEC_TEMP?"
    (line,) = sources.settle(env={"LOCALSPEC_TMEP": "0.9"}).notes
    assert line == "LOCALSPEC_TMEP sets no option; did you mean LOCALSPEC_TEMP?"


def test_variables_of_other_commands_do_not_disturb(sources: Sources) -> None:
    assert sources.settle(["x"], {"LOCALSPEC_TEMP": "warm"}, command="models path").values["model"] == "x"


# Options that exclude each other


PAIRS = [
    ("model", "--model", "hf_repo", "--hf-repo"),
    ("model_draft", "--model-draft", "hf_repo_draft", "--hf-repo-draft"),
    ("system", "--system-prompt", "system_file", "--system-prompt-file"),
    ("chat_template", "--chat-template", "chat_template_file", "--chat-template-file"),
]


@pytest.mark.parametrize(("one", "flag", "other", "other_flag"), PAIRS)
@pytest.mark.parametrize("swap", [False, True])
def test_the_higher_source_silences(
    one: str, flag: str, other: str, other_flag: str, swap: bool, sources: Sources
) -> None:
    if swap:
        one, flag, other, other_flag = other, other_flag, one, flag
    sources.user.write_text(f'{flag.strip("-")} = "file"\n[profile.p]\n{other_flag.strip("-")} = "profile"')
    got = sources.settle([other_flag, "x/y"], command="chat")
    assert (got.values[one], got.values[other]) == (None, "x/y")
    check_values(COMMANDS["chat"].options, got.values, got.origins)
    got = sources.settle([flag, "x/y"], {f"LOCALSPEC_{other_flag.strip('-').replace('-', '_').upper()}": "env"})
    assert (got.values[one], got.values[other]) == ("x/y", None)
    got = sources.settle(["--profile", "p"])
    assert (got.values[one], got.values[other]) == (None, "profile")


def test_what_hangs_on_the_silenced_goes_with_it(sources: Sources) -> None:
    sources.user.write_text('hf-repo = "a/b"\nhf-file = "c.gguf"')
    got = sources.settle(["-m", "x.gguf"])
    assert (got.values["hf_repo"], got.values["hf_file"]) == (None, None)


def refused(sources: Sources, *arguments: str, env: dict[str, str] | None = None) -> str:
    got = sources.settle(arguments, env)
    with pytest.raises(UsageError) as caught:
        check_values(COMMANDS["complete"].options, got.values, got.origins)
    return f"{caught.value.message}. {caught.value.hint}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("-m a -hf b/c", "-m and -hf are given together"),
        ("-m a -hff b", "-m and -hff are given together"),
        ("-md a -hfd b/c", "-md and -hfd are given together"),
        ("-sys a -sysf b", "-sys and -sysf are given together"),
        ("--chat-template a --chat-template-file b", "--chat-template and --chat-template-file are given together"),
        ("--json --jsonl", "--json and --jsonl are given together"),
        ("-lm none --no-mmap", "-lm and --no-mmap are given together"),
        ("-lm none --mlock", "-lm and --mlock are given together"),
        ("-cmoe -ncmoe 3", "-cmoe and -ncmoe are given together"),
        ("-md a -cmoed -ncmoed 3", "-cmoed and -ncmoed are given together"),
        (
            "--exact --spec-accept ratio",
            "--exact and --spec-accept are given together: the rule ratio draws other random",
        ),
        ("--exact -ub 64", "--exact and -ub are given together: rows are computed eight at a time"),
        ("--rope-scale 2 --rope-freq-scale 0.5", "--rope-scale and --rope-freq-scale are given together"),
        ("-hff b", "-hff is given without -hf"),
        ("-hffd b", "-hffd is given without -hfd"),
        ("-devd none", "-devd is given without a draft model"),
        ("-otd a=b", "-otd is given without a draft model"),
        ("-cmoed", "-cmoed is given without a draft model"),
        ("-ncmoed 3", "-ncmoed is given without a draft model"),
        ("--spec-draft-n-min 20", "--spec-draft-n-min 20 is more than --spec-draft-n-max 16"),
        ("-hfd a/b --spec-ngram-simple-size-n 5", "ngram-simple does not guess"),
        ("--spec-type ngram-map-k --spec-ngram-map-k4v-size-n 5", "ngram-map-k4v does not guess"),
        ("--spec-type ngram-simple --spec-corpus a.txt", "suffix or ngram-mod does not guess"),
        ("-lcs a.bin", "ngram-cache does not guess"),
        ("--chat-template chatml", "--chat-template is given, but the prompt goes through no chat template. Add -cnv."),
        ("--reasoning off", "-rea is given, but the prompt goes through no chat template"),
    ],
)
def test_contradictions_name_both(arguments: str, words: str, sources: Sources) -> None:
    assert words in refused(sources, *arguments.split())


@pytest.mark.parametrize("more", ["-cnv", "-sys a", "-sysf a"])
def test_template_options_need_a_template(more: str, sources: Sources) -> None:
    got = sources.settle(["--reasoning", "off", "--chat-template", "chatml", *more.split()])
    check_values(COMMANDS["complete"].options, got.values, got.origins)


def test_contradictions_of_files_and_variables_name_them(sources: Sources) -> None:
    sources.user.write_text('model = "a"\nhf_repo = "b/c"\nspec-draft-n-min = 9')
    assert f"model in {sources.user} and hf_repo in {sources.user} are given together" in refused(sources)
    env = {"LLAMA_ARG_MODEL": "a", "LOCALSPEC_HF_REPO": "b/c"}
    assert "LLAMA_ARG_MODEL and LOCALSPEC_HF_REPO are given together" in refused(sources, env=env)
    line = refused(sources, "-m", "a", env={"LLAMA_ARG_SPEC_DRAFT_N_MAX": "4"})
    assert f"spec-draft-n-min = 9 in {sources.user} is more than LLAMA_ARG_SPEC_DRAFT_N_MAX=4" in line


def test_a_file_may_speak_of_a_draft_model_that_is_not_there(sources: Sources) -> None:
    sources.user.write_text('gpu-layers-draft = 3\nspec-ngram-simple-size-n = 5\nhf-file-draft = "x.gguf"')
    for arguments in ((), ("-md", "d.gguf")):
        got = sources.settle(arguments, {"LOCALSPEC_THREADS_DRAFT": "2"})
        check_values(COMMANDS["complete"].options, got.values, got.origins)
        assert got.values["gpu_layers_draft"] == "3"


def test_a_chat_is_a_conversation(sources: Sources) -> None:
    got = sources.settle(["-no-cnv"], command="chat")
    with pytest.raises(UsageError, match="--no-conversation is given, but chat is one"):
        check_values(COMMANDS["chat"].options, got.values, got.origins)
    sources.user.write_text("conversation = false")  # for other commands
    got = sources.settle(command="chat")
    check_values(COMMANDS["chat"].options, got.values, got.origins)
