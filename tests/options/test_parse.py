"""The command line: what is a flag, what is its value, and what is refused."""

from __future__ import annotations

import pytest

from localspec.errors import UsageError
from localspec.options import COMMANDS
from localspec.options.parse import Given, parse


def parsed(*arguments: str, command: str = "complete") -> Given:
    return parse(arguments, COMMANDS[command])


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        ([], {}),
        (["-p", "-n"], {"prompt": ["-n"]}),  # a text is what follows, whatever it looks like
        (["-p", "--help"], {"prompt": ["--help"]}),
        (["-p", "-x"], {"prompt": ["-x"]}),
        (["-p", "--"], {"prompt": ["--"]}),
        (["-p", "--temp=1"], {"prompt": ["--temp=1"]}),
        (["-p=-n", "--stop=--help"], {"prompt": ["-n"], "stop": ["--help"]}),
        (["-n", "-1"], {"n_predict": ["-1"]}),
        (["-p", ""], {"prompt": [""]}),
        (["--prompt="], {"prompt": [""]}),
        (["--prompt=a=b"], {"prompt": ["a=b"]}),
        (["-p=x"], {"prompt": ["x"]}),
        (["-n", "1", "--n-predict", "2"], {"n_predict": ["1", "2"]}),
        (["-r", "a", "--reverse-prompt", "b"], {"stop": ["a", "b"]}),
        (["--mmap", "--no-mmap"], {"mmap": ["true", "false"]}),
        (["-nkvo", "-cnv"], {"kv_offload": ["false"], "conversation": ["true"]}),
    ],
)
def test_flags_and_values(arguments: list[str], texts: dict[str, list[str]]) -> None:
    assert parsed(*arguments).texts == texts


def test_the_last_of_several_counts_and_repeatable_ones_add_up() -> None:
    from localspec.options import settle

    given = parsed("-n", "1", "-n", "2", "-r", "a", "-r", "b", "--mmap", "--no-mmap")
    values = settle(COMMANDS["complete"], given, {"LOCALSPEC_CONFIG": "/dev/null"}).values
    assert (values["n_predict"], values["stop"], values["mmap"]) == (2, ("a", "b"), False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--templ", "1"], "no such option: --templ. Did you mean --temp?"),
        (["--ctx-sise=1"], "no such option: --ctx-sise. Did you mean --ctx-size?"),
        (["--no-mmapp"], "Did you mean --no-mmap?"),
        (["--zzzzzzzz"], "no such option: --zzzzzzzz. See localspec complete --help."),
        (["--quuxbar", "x"], "no such option: --quuxbar. See"),  # dashes and length are no likeness
        (["--draft-mx", "3"], "Did you mean --spec-draft-n-max?"),  # not an old name
        (["-hg"], "no such option: -hg."),
        (["-hx", "a/b"], "no such option: -hx."),  # not -h with an x behind
        (["-n5"], "no such option: -n5."),
        (["-st"], "no such option: -st."),  # of the chat
        (["-n"], "-n requires an argument"),
        (["--temp", "-p", "hi"], "--temp takes a value, and -p is a flag. See localspec complete --help."),
        (["-fa", "-cnv"], "-fa takes a value, and -cnv is a flag"),
        (["-n", "--draft", "8"], "-n takes a value, and --draft is a flag"),
        (["-n", "-h"], "-n takes a value, and -h is a flag"),
        (["--json=true"], "--json takes no value. Leave =true out."),
        (["a", "-n", "1"], "'a' belongs to no flag"),
        (["-"], "'-' belongs to no flag"),
        (["--", "-n"], "'-n' belongs to no flag"),
    ],
)
def test_what_is_refused(arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(*arguments)
    assert words in f"{caught.value.message}. {caught.value.hint}"


def test_help_wherever_it_stands() -> None:
    for flag in ("-h", "--help"):
        assert parsed("-n", "1", flag, "-p").help
    assert not parsed("-p", "-h").help


def test_arguments_by_place() -> None:
    given = parsed("--offline", "a/b:Q4", "-hff", "c", command="models pull")
    assert given.texts == {"repo": ["a/b:Q4"], "offline": ["true"], "hf_file": ["c"]}
    assert parsed("--", "-x", command="models path").texts == {"model": ["-x"]}
    with pytest.raises(UsageError, match="MODEL is missing"):
        parsed(command="models rm")
    with pytest.raises(UsageError, match="'b' belongs to no flag"):
        parsed("a", "b", command="models rm")


# Old and foreign names


@pytest.mark.parametrize(
    ("arguments", "name", "text", "note"),
    [
        (["--draft", "8"], "draft_n_max", "8", "--draft is called --spec-draft-n-max here"),
        (["--draft-max=8"], "draft_n_max", "8", "--draft-max is called --spec-draft-n-max here"),
        (["--draft-min", "2"], "draft_n_min", "2", "--draft-min is called --spec-draft-n-min here"),
        (["--num-speculative-tokens", "5"], "draft_n_max", "5", "--spec-draft-n-max"),
        (["--speculative-num-steps", "5"], "draft_n_max", "5", "--spec-draft-n-max"),
        (["--speculative-eagle-topk", "4"], "tree_width", "4", "--spec-tree-width"),
        (["--speculative-num-draft-tokens", "8"], "tree_nodes", "7", "is --spec-tree-nodes 7 here"),
        (["--speculative-draft-model-path", "a"], "model_draft", "a", "is called --model-draft here"),
        (["--speculative-algorithm", "EAGLE"], "spec_type", "draft-eagle", "EAGLE is --spec-type draft-eagle here"),
        (["--speculative-algorithm", "EAGLE-2"], "spec_type", "draft-eagle", "--spec-type"),
        (["--speculative-algorithm=eagle3"], "spec_type", "draft-eagle3", "--spec-type"),
        (["--speculative-algorithm", "NextN"], "spec_type", "draft-mtp", "--spec-type"),
        (["--speculative-algorithm", "DFLASH"], "spec_type", "draft-dflash", "--spec-type"),
        (["--speculative-algorithm", "standalone"], "spec_type", "draft-simple", "--spec-type"),
        (["--speculative-algorithm", "NGRAM"], "spec_type", "ngram-cache", "--spec-type"),
        (["--prompt-lookup-max", "4"], "ngram_size_n", "4", "--spec-ngram-simple-size-n"),
    ],
)
def test_old_and_foreign_names_work_with_a_note(arguments: list[str], name: str, text: str, note: str) -> None:
    given = parsed(*arguments)
    assert given.texts == {name: [text]}
    (line,) = given.notes
    assert note in line


def test_names_that_are_still_good_get_no_note() -> None:
    assert parsed("--draft-p-min", "0.5", "--n-gpu-layers", "3", "--temperature", "1").notes == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("--prompt-lookup-min", "2"), ("--prompt-lookup-max", "4")),
        (("--num-speculative-tokens", "3"), ("--spec-draft-n-max", "4")),
        (("--spec-draft-n-max", "3"), ("--speculative-num-steps", "4")),
        (("--speculative-algorithm", "EAGLE"), ("--spec-type", "draft-eagle3")),
        (("--speculative-num-draft-tokens", "8"), ("--spec-tree-nodes", "8")),
        (("--speculative-eagle-topk", "2"), ("--spec-tree-width", "1")),
        (("--speculative-draft-model-path", "a"), ("-md", "b")),
    ],
)
def test_a_foreign_name_beside_another_name_must_say_the_same(one: tuple[str, str], other: tuple[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(*one, *other)
    assert caught.value.message == f"{one[0]} and {other[0]} are one option here"


def test_names_that_say_the_same_are_no_contradiction() -> None:
    assert parsed("--num-speculative-tokens", "4", "--spec-draft-n-max=4").texts == {"draft_n_max": ["4", "4"]}
    assert parsed("--speculative-num-draft-tokens", "8", "--spec-tree-nodes", "7").texts["tree_nodes"] == ["7", "7"]
    assert parsed("--speculative-algorithm", "NGRAM", "--spec-type", "ngram-cache").texts.keys() == {"spec_type"}
    assert parsed("-n", "1", "--predict", "2").texts == {"n_predict": ["1", "2"]}  # names of one program: the last


def test_an_algorithm_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="--speculative-algorithm MAGIC is not possible") as caught:
        parsed("--speculative-algorithm", "MAGIC")
    assert "EAGLE3, NEXTN" in caught.value.hint
