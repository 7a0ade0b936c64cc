"""Settings over the whole command: precedence, notes, and what goes to stdout and what to stderr."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import ExitCode
from tests.cli.support import FAKE, Done, error_line, run

ASK = ("complete", "-m", "fake.gguf", "-p", "abc")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a user's configuration."""
    (tmp_path / "localspec").mkdir()
    return tmp_path / "localspec" / "config.toml"


def printed(home: Path, *arguments: str, command: str = "complete", **env: str) -> tuple[dict[str, Any], str]:
    done = run(command, "--print-config", *arguments, env={"XDG_CONFIG_HOME": str(home.parent.parent), **env})
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    return tomllib.loads(text), text


def line_of(text: str, key: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(f"{key} = ")]
    return line


def test_precedence(home: Path) -> None:
    home.write_text("temp = 0.1\ntop-k = 1\ntop-p = 0.1\nmin-p = 0.1\nseed = 1\n[profile.p]\ntop-k = 2\nseed = 2")
    env = {"LLAMA_ARG_TOP_P": "0.3", "LLAMA_ARG_MIN_P": "0.3", "LOCALSPEC_MIN_P": "0.4", "LOCALSPEC_SEED": "4"}
    table, text = printed(home, "--profile", "p", "-s", "5", **env)
    assert [table[key] for key in ("temp", "top-k", "top-p", "min-p", "seed")] == [0.1, 2, 0.3, 0.4, 5]
    assert table["typical-p"] == 1.0
    for key, origin in [
        ("temp", f"file {home}"),
        ("top-k", f"file {home} [profile.p]"),
        ("top-p", "env LLAMA_ARG_TOP_P"),
        ("min-p", "env LOCALSPEC_MIN_P"),
        ("seed", "cli"),
        ("typical-p", "default"),
    ]:
        assert line_of(text, key).endswith(f"  # {origin}")


@pytest.mark.parametrize(
    ("given", "env", "value", "origin"),
    [
        ((), {}, "false", "default"),
        (("-sys", "Yes"), {}, "true", "-sys"),
        (("-sysf", "file"), {}, "true", "-sysf"),
        ((), {"LOCALSPEC_SYSTEM_PROMPT": "Yes"}, "true", "env LOCALSPEC_SYSTEM_PROMPT"),
        (("-cnv", "-sys", "Yes"), {}, "true", "cli"),
    ],
)
def test_a_system_message_makes_a_conversation_and_says_so(
    home: Path, given: tuple[str, ...], env: dict[str, str], value: str, origin: str
) -> None:
    _, text = printed(home, *given, **env)
    assert line_of(text, "conversation") == f"{f'conversation = {value}':<44}  # {origin}"


def test_what_is_printed_reads_back(home: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.toml"
    for command in ("chat", "complete"):
        first, text = printed(home, "-r", "a\n", "--no-mmap", "-ngl", "3", "-sys", "é", command=command)
        copy.write_text(text, encoding="utf-8")
        again, text = printed(home, "--config", str(copy), command=command)
        assert again == first
        assert line_of(text, "mmap") == f"{'mmap = false':<44}  # file {copy}"


def test_settings_of_a_file_reach_the_engine(home: Path) -> None:
    home.write_text("predict = 5\nseed = 3\nignore-eos = true\njson = true\nsingle-turn = true")
    env = {"XDG_CONFIG_HOME": str(home.parent.parent)}
    quick = run(*ASK, module=FAKE, env=env)
    plain = run(*ASK, "-n", "5", "-s", "3", "--ignore-eos", "--json", module=FAKE)
    assert quick.stdout.split(b'"timings"')[0] == plain.stdout.split(b'"timings"')[0] != b""
    assert (quick.returncode, quick.stderr) == (0, b"")


def test_mistakes_in_a_file_are_one_line(home: Path) -> None:
    env = {"XDG_CONFIG_HOME": str(home.parent.parent)}
    for text, words in [("tempp = 1", "unknown key tempp"), ("top-p = 2", "top-p = 2.0 in"), ("a b", "is not TOML")]:
        home.write_text(text)
        line = error_line(run("complete", "-p", "a", env=env), ExitCode.USAGE)
        assert words in line
        assert str(home) in line


def note(*arguments: str, **env: str) -> Done:
    return run(*ASK, "-n", "2", "-s", "1", *arguments, module=FAKE, env=env)


def test_old_spellings_work_with_a_note_on_stderr() -> None:
    done = note("--draft", "8", "--draft-min", "2")
    assert done.returncode == 0
    assert done.stderr.decode().splitlines() == [
        "localspec: --draft is called --spec-draft-n-max here",
        "localspec: --draft-min is called --spec-draft-n-min here",
    ]
    assert done.stdout == note("--spec-draft-n-max", "8").stdout


def test_verbose_names_what_differs_from_the_defaults(home: Path) -> None:
    home.write_text("temp = 0.5")
    done = note(
        "-v",
        "--top-k",
        "3",
        "--min-p",
        "0.05",
        "--stop",
        "x" * 99,
        XDG_CONFIG_HOME=str(home.parent.parent),
        LLAMA_ARG_TOP_P="0.5",
        HF_TOKEN="secret",
    )
    assert sorted(done.stderr.decode().splitlines()) == [
        "localspec: hf-token = (not shown) (env HF_TOKEN)",
        'localspec: model = "fake.gguf" (cli)',
        "localspec: predict = 2 (cli)",
        'localspec: prompt = "abc" (cli)',
        "localspec: seed = 1 (cli)",
        f'localspec: stop = ["{"x" * 78}… (cli)',
        f"localspec: temp = 0.5 (file {home})",
        "localspec: top-k = 3 (cli)",
        "localspec: top-p = 0.5 (env LLAMA_ARG_TOP_P)",
    ]


def test_what_makes_no_sense_is_refused_before_a_model_is_looked_for() -> None:
    for arguments, words in [
        (("-hf", "a/b", "--spec-type", "magic"), "magic"),
        (("-hf", "a/b", "--spec-type", "draft-simple"), "-md"),
        (("-hf", "a/b", "-ngl", "some"), "-ngl some"),
        (("-hf", "a/b", "-cnv", "--chat-template", "chatmi"), "chatml"),
    ]:
        assert words in error_line(run("complete", "-p", "a", *arguments), ExitCode.USAGE)


def test_a_system_message_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "system ü"
    file.write_text("be brief\n", encoding="utf-8")
    ask = (*ASK, "-n", "5", "-s", "1", "--json")
    from_file = run(*ask, "-sysf", str(file), module=FAKE)
    assert (
        from_file.stdout.split(b'"timings"')[0]
        == run(*ask, "-sys", "be brief", module=FAKE).stdout.split(b'"timings"')[0]
    )
    line = error_line(run(*ask, "-sysf", str(tmp_path / "none"), module=FAKE), ExitCode.USAGE)
    assert "none cannot be read" in line
    assert "-sysf" in line


def test_debug_from_the_environment() -> None:
    done = run("complete", "--nope", env={"LOCALSPEC_DEBUG": "1"})
    assert b"Traceback" in done.stderr
