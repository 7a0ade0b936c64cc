"""Help and version: what they say, where they go and what they load."""

from __future__ import annotations

import subprocess
import sys

import pytest

from localspec import __version__
from localspec.cli.app import BODIES
from localspec.cli.help import WIDEST, help_on
from localspec.errors import ExitCode, UsageError
from localspec.options import COMMANDS, all_options
from localspec.options.commands import GROUPS, TOPICS
from tests.cli.support import environment, error_line, run, shell

HEAVY = (
    "numpy",
    "torch",
    "llama_cpp",
    "textual",
    "jinja2",
    "huggingface_hub",
    "gguf",
    "rich",
    "typer",
    "prompt_toolkit",
)
#: Not among the commands with options, but asked for in the same way.
WORDS = ((), *((group,) for group in GROUPS), *(tuple(name.split()) for name in COMMANDS))


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize(
    "words", [(), ("complete",), ("chat",), ("bench",), ("verify",), ("models",), ("models", "pull")]
)
def test_help_goes_to_stdout(words: tuple[str, ...], flag: str) -> None:
    done = run(*words, flag)
    assert (done.returncode, done.stderr) == (0, b"")
    if flag == "--help" or words not in (("complete",), ("chat",), ("bench",), ("verify",)):
        assert done.stdout.decode() == run("help", *words).stdout.decode()
    assert done.stdout.startswith(f"Usage: localspec {' '.join(words)}".rstrip().encode())


@pytest.mark.parametrize("name", ["complete", "chat", "bench", "verify"])
def test_the_short_help_has_the_common_flags(name: str) -> None:
    text, command = run(name, "-h").stdout.decode(), COMMANDS[name]
    assert len(text.splitlines()) < 65
    flags = {option.name: option for option in command.options if option.flags}
    assert [line.split()[0].rstrip(",") for line in text.split("\nCommon\n")[1].splitlines() if line[:3] == "  -"][
        : len(command.common)
    ] == [flags[option].flags[0] for option in command.common]
    assert text.endswith(f"\nAll {len(flags)} flags: localspec {name} --help.\n")
    assert "  -h      Show the common flags and leave.\n" in text
    assert "  -h      Show the common flags and leave.\n" in help_on([name])


def test_defaults_of_nought_are_shown() -> None:
    text = " ".join(help_on(["chat"]).split())
    for words in ("as the model was trained. (default 0)", "tokens already there. (default 0.0)"):
        assert words in text


def test_help_on_help() -> None:
    done = run("help", "-h")
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert text == run("help", "--help").stdout.decode() == help_on(["help"])
    assert all(f"  {name} " in text for name in (*TOPICS, *GROUPS, *COMMANDS))


@pytest.mark.parametrize("words", WORDS)
def test_help_tells_all(words: tuple[str, ...]) -> None:
    text = help_on(words)
    assert "\nExamples\n" in text
    assert "  -h" in text
    assert "--help" in text
    for example in (line.strip() for line in text.splitlines() if line.startswith("    localspec ")):
        assert example.split()[1] in {"help", *(name.split()[0] for name in COMMANDS)}
    command = COMMANDS.get(" ".join(words))
    for option in command.options if command else ():
        assert f" {option.flag}" in text
        assert all(choice in text for choice in option.choices)
    if not command:
        assert all(name.split()[len(words)] in text for name in COMMANDS if name.startswith(" ".join(words)))


def test_every_command_has_a_body() -> None:
    assert BODIES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("topic", TOPICS)
def test_topics(topic: str) -> None:
    done = run("help", topic)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout.splitlines()) > 10
    assert b"`" not in done.stdout


def test_help_on_flags_and_exit_codes_is_complete() -> None:
    text = help_on(["flags"])
    for option in all_options():
        for word in (*option.flags, *option.aliases, *option.former, *option.negations, *option.variables):
            assert word in text
    assert all(f"  {code.value}  {code.name}" in help_on(["exit-codes"]) for code in ExitCode)


def test_no_help_on_something() -> None:
    with pytest.raises(UsageError) as caught:
        help_on(["flag"])
    assert caught.value.hint.startswith("Did you mean flags? There are flags, keys, config, exit-codes, chat")
    assert "no help on models pul" in error_line(run("help", "models", "pul"), ExitCode.USAGE)


# Width


@pytest.mark.parametrize("columns", [20, 40, 59, 60, 80, 100, 300])
@pytest.mark.parametrize("words", [(), ("chat",), ("flags",), ("config",), ("keys",), ("exit-codes",)])
def test_lines_fit(words: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = [line for line in help_on(words).splitlines() if not line.startswith("    localspec ")]
    # Names are not broken: a line may be longer where it has no place to break.
    assert [line for line in lines if len(line) > min(columns, WIDEST) and len(line.split()) > 6] == []


def test_help_is_plain_at_a_terminal_and_where_stdout_is_ascii() -> None:
    for env in ({"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}, {"FORCE_COLOR": "1"}, {"NO_COLOR": "1"}):
        done = run("complete", "--help", env=env)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"\x1b" not in done.stdout
        assert "ID±X" in done.stdout.decode()


@pytest.mark.parametrize("words", ["complete --help", "help flags", "chat --print-config", "--version"])
@pytest.mark.parametrize("reader", ["head -c 5 >/dev/null", "true", "cat >/dev/full"])
def test_a_closed_pipe_is_no_failure(words: str, reader: str) -> None:
    done = shell(f'set -o pipefail; "$@" {words} | {reader}')
    assert done.stderr == b"" or b"No space left" in done.stderr
    assert done.returncode == 0 or "full" in reader


def test_no_stdout() -> None:
    done = shell('"$@" complete --help >&-')
    assert (done.returncode, done.stderr) == (0, b"")
    done = shell('"$@" complete --help >/dev/full')
    assert done.returncode == ExitCode.RUNTIME
    assert done.stderr.startswith(b"localspec: error: [Errno 28] No space left on device")


# Version


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version_goes_to_stdout(flag: str) -> None:
    for more in ((), ("-x",)):
        done = run(flag, *more)
        assert (done.returncode, done.stdout.decode(), done.stderr) == (0, f"localspec {__version__}\n", b"")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("--help",),
        ("complete", "--help"),
        ("chat", "-h"),
        ("models", "-h"),
        ("bench", "--help"),
        ("chat", "--print-config"),
    ],
)
def test_nothing_heavy_is_loaded(arguments: tuple[str, ...]) -> None:
    code = (
        f"import sys; from localspec.cli.main import main; sys.argv[1:] = {arguments!r}\n"
        "try: main()\n"
        f"except SystemExit: print(*(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(), check=True)
    assert done.stdout
    assert done.stderr.strip() == b""


# What is no command


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "no command is given. Try localspec chat, or see localspec --help."),
        (["chatt"], "no such command: chatt. Did you mean chat? See localspec --help."),
        (["model"], "no such command: model. Did you mean models? See localspec --help."),
        (["-m", "x.gguf"], "-m stands before the command. Write localspec chat -m …."),
        (["--versoin"], "no such option: --versoin. Did you mean --version? See localspec --help."),
        (["-hf", "a/b"], "-hf stands before the command. Write localspec chat -hf …."),
        (
            ["models"],
            "models needs to know what to do. There are ls, pull, pair, info, path, rm, verify: see localspec models",
        ),
        (["models", "pul"], "no such command: models pul. Did you mean pull? There are ls"),
    ],
)
def test_what_is_no_command(arguments: list[str], line: str) -> None:
    assert error_line(run(*arguments), ExitCode.USAGE).startswith(f"localspec: error: {line}")
