"""The documents say what is so: generated pages are fresh, names and flags exist, the example runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localspec import loading
from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.cli.app import COMPLETION, VERSION
from localspec.cli.help import ROOT_EXAMPLES
from localspec.drafters.ngram import NgramSimple
from localspec.engine import Engine
from localspec.errors import ExitCode
from localspec.options import COMMANDS, all_options, check_values, settle
from localspec.options.commands import GROUPS, TOPICS
from localspec.options.option import spellings
from localspec.options.parse import HELP, parse
from localspec.types import GenerationRequest, Tokens
from scripts import gen_docs, screenshot, setup_env

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
MADE = gen_docs.pages()
WRITTEN = (
    *(README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"),
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page not in MADE),
)
SOURCES = ("localspec", "models", "tui", "scripts", "tests")
OPTION_FLAGS = {flag for option in all_options() for flag, _ in spellings(option)}
ALL_FLAGS = {*OPTION_FLAGS, *HELP, *VERSION, *COMPLETION}


def fences(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def spans(page: Path) -> list[str]:
    """Code in the running text."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


def commands(page: Path) -> Iterator[list[str]]:
    """Every command of the shell examples and of the running text, as words; pipes are taken apart."""
    lines = [line for fence in fences(page, "sh") for line in fence.replace("\\\n", " ").splitlines()]
    for line in (*lines, *(span for span in spans(page) if " " in span)):
        words = shlex.split(line, comments=True)
        while words:
            end = next((i for i, word in enumerate(words) if word in ("|", "&&", ">")), len(words))
            if words[:end]:
                yield words[:end]
            words = words[end + 1 :]


def source_text() -> str:
    return "\n".join(file.read_text("utf-8") for part in SOURCES for file in sorted((ROOT / part).rglob("*.py")))


@pytest.mark.parametrize("page", MADE, ids=lambda page: page.name)
def test_generated_pages_are_fresh(page: Path) -> None:
    assert page.read_text("utf-8") == MADE[page], "run scripts/gen_docs.py"


def test_generated_pages_leave_nothing_out() -> None:
    flags = (ROOT / "docs" / "flags.md").read_text("utf-8")
    variables = {name for option in all_options() for name in option.variables}
    assert [word for word in sorted(OPTION_FLAGS | variables) if f"`{word}" not in flags] == []
    rows = re.findall(r"^\| (\d+) \| `(\w+)`", (ROOT / "docs" / "exit-codes.md").read_text("utf-8"), re.MULTILINE)
    assert rows == [(str(code.value), code.name) for code in ExitCode]


def test_the_example_of_a_configuration_file_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = fences(ROOT / "docs" / "config.md", "toml")
    path = tmp_path / "config.toml"
    path.write_text(example)
    monkeypatch.setenv("HOME", str(tmp_path))
    for profile, temp in (("code", 0.0), ("plain", 0.7)):
        given = parse(["--config", str(path), "--profile", profile], COMMANDS["chat"])
        settings = settle(COMMANDS["chat"], given, {})
        check_values(COMMANDS["chat"].options, settings.values, settings.origins)
        assert (settings.values["temp"], settings.values["model"]) == (temp, f"{tmp_path}/models/big.gguf")


def test_examples_of_the_help_can_be_read() -> None:
    for command in COMMANDS.values():
        for example in command.examples:
            check_command(shlex.split(example.line)[1:])
    for example in ROOT_EXAMPLES:
        check_command(shlex.split(example.line)[1:])


def check_command(words: list[str]) -> None:
    """Raises `UsageError` if ``localspec`` does not take these words."""
    if words[:1] == ["help"]:
        assert not words[1:] or " ".join(words[1:]) in {*TOPICS, *COMMANDS, *GROUPS}
    elif words and not words[0].startswith("-"):
        size = 2 if words[0] in GROUPS else 1
        if words[size - 1 : size] not in (["-h"], ["--help"]):
            parse(words[size:], COMMANDS[" ".join(words[:size])])


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_commands_use_flags_that_exist(page: Path) -> None:
    for words in commands(page):
        match words:
            case ["localspec", "bench" | "chat" | "complete" | "doctor" | "help" | "models" | "serve" | "verify", *_]:
                check_command(words[1:])
            case ["scripts/setup", *arguments]:
                run = setup_env.arguments(arguments).run
                assert not run or run[0] == "localspec" or (ROOT / run[0]).is_file(), words
            case [program, *_] if program.startswith("scripts/"):
                assert (ROOT / program).is_file(), words


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_flags_in_the_text_exist(page: Path) -> None:
    others = {
        "--dev",
        "--demo",
        "--run",
        "--venv",
        "--server",
        "--torch",
        "--fast",
        "--durations=30",
    }  # of scripts and pytest
    named = {span.split()[0] for span in spans(page) if re.match(r"--?[a-zA-Z]+", span)}
    assert {flag for flag in named - ALL_FLAGS - others if not flag.startswith("-D")} == set()


def test_the_two_commands_come_first_and_lead_somewhere() -> None:
    first, second = [setup_env.arguments(words[1:]) for words in commands(README) if words[0] == "scripts/setup"][:2]
    assert (first.extras, first.run) == (["demo"], ["localspec", "chat"])
    assert (second.extras, second.run) == (["demo", "dev"], ["scripts/check"])


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_paths_and_links_exist(page: Path) -> None:
    named = {
        span for span in spans(page) if re.fullmatch(r"(localspec|models|tui|scripts|tests|docs|\.ci)/[\w./-]*", span)
    }
    linked = {target for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")) if "://" not in target}
    missing = {path for path in named if not (ROOT / path).exists()}
    missing |= {target for target in linked if not leads_somewhere(page, *target.partition("#")[::2])}
    assert missing == set()


def leads_somewhere(page: Path, path: str, anchor: str) -> bool:
    """Whether a link on ``page`` names what is there, down to the heading. (GitHub makes anchors of headings so.)"""
    target = page.parent / path if path else page
    if not anchor:
        return target.exists()
    headings = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE) if target.is_file() else []
    return anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_names_in_the_architecture_exist() -> None:
    source = source_text()
    classes = set(re.findall(r"^class (\w+)", source, re.MULTILINE))
    functions = set(re.findall(r"^ *def (\w+)", source, re.MULTILINE))
    attributes = functions | set(re.findall(r"^    (?:    self\.)?(\w+)(?:: .+)?(?: =|$)", source, re.MULTILINE))
    constants = set(re.findall(r"^(\w+)(?:: .+)? =", source, re.MULTILINE))

    def exists(span: str) -> bool | None:
        """``None``: not a name."""
        if match := re.fullmatch(r"(\w+)\(\)", span):
            return match[1] in functions
        if match := re.fullmatch(r"(_?[A-Z]\w+)\.(\w+)", span):
            return match[1] in classes and match[2] in attributes
        if re.fullmatch(r"_?[A-Z]\w+", span):
            return span in classes | constants
        return None

    found = {span: exists(span) for span in spans(ARCHITECTURE)}
    assert [span for span, is_there in found.items() if is_there is False] == []
    assert sum(is_there is True for is_there in found.values()) > 40


def test_documents_name_no_place_outside_the_project() -> None:
    outside = re.compile(r"(?<![\w.~/])/(?:home|root|tmp|work|opt|mnt)/\w+")
    pages = [*WRITTEN, *MADE, *(ROOT / "docs").glob("*.svg")]
    assert [page.name for page in pages if outside.search(page.read_text("utf-8"))] == []


def test_the_library_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[tuple[str, str]] = []

    def load(target: str, *, draft: str) -> Engine:
        asked.append((target, draft))
        return Engine(FakeTarget(FakeVocab(), seed=3), [NgramSimple()])

    monkeypatch.setattr(loading, "load", load)
    (example,) = fences(README, "python")
    scope: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), scope)
    assert asked == [("big.gguf", "small.gguf")]
    plain = Engine(FakeTarget(FakeVocab(), seed=3)).submit(GenerationRequest(prompt="Once upon a time", max_tokens=64))
    assert scope["Tokens"] is Tokens
    assert capsys.readouterr().out
    assert len([event for event in plain if isinstance(event, Tokens)]) > 1


# The scripts that make pictures and tables


def test_a_drawn_screen_keeps_text_and_colour_and_loads_nothing() -> None:
    picture = screenshot.draw("$ run\n\x1b[31mred\x1b[0m α", columns=40, title="a title")
    assert "a&#160;title" in picture or "a title" in picture
    assert "red" in picture
    assert "α" in picture
    assert "#be3f48" in picture.lower()
    assert "@font-face" not in picture
    assert "cdn" not in picture


def test_screenshot_steps_keep_their_order() -> None:
    args = screenshot.arguments(["a.svg", "--until", "x", "--type", "y", "--until", "z", "--", "run", "--now"])
    assert args.steps == [("until", "x"), ("type", "y"), ("until", "z")]
    assert args.command == ["run", "--now"]
