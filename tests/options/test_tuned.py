"""What was tuned stands above defaults and below everything that anybody said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import LocalspecError, UsageError
from localspec.options import COMMANDS, Settings
from localspec.options.origin import Level
from localspec.options.tuned import VERSION, Tuned, file_of, overlaid, read, write
from tests.options.sources import Sources

FOUND = Tuned({"spec-type": "lookahead", "spec-tree-width": 2, "threads": 3}, {"kind": "a test"})


def laid_over(sources: Sources, *arguments: str, env: dict[str, str] | None = None, file: str = "") -> Settings:
    sources.user.write_text(file)
    return overlaid(COMMANDS["complete"].options, sources.settle(arguments, env), FOUND)


def tuned_values(settings: Settings) -> dict[str, Any]:
    return {name: settings.values[name] for name, origin in settings.origins.items() if origin.level is Level.TUNED}


def test_it_takes_the_place_of_defaults(sources: Sources) -> None:
    settings = laid_over(sources, "-n", "5", file="temp = 0.5")
    assert tuned_values(settings) == {"spec_type": "lookahead", "tree_width": 2, "threads": 3}
    assert str(settings.origins["threads"]) == "tuned"
    assert (settings.values["n_predict"], settings.values["temp"]) == (5, 0.5)


@pytest.mark.parametrize(
    ("arguments", "env", "file", "left"),
    [
        (("-t", "1"), {}, "", {"spec_type": "lookahead", "tree_width": 2}),
        ((), {"LLAMA_ARG_THREADS": "1"}, "", {"spec_type": "lookahead", "tree_width": 2}),
        ((), {}, "threads = -1", {"spec_type": "lookahead", "tree_width": 2}),  # the default, but somebody said so
        (("--spec-type", "suffix"), {}, "", {"threads": 3}),
        ((), {}, "spec-draft-n-max = 4", {"threads": 3}),
        (("--spec-ngram-simple-size-n", "4", "--spec-type", "ngram-simple"), {}, "", {"threads": 3}),
    ],
)
def test_what_anybody_said_stays_and_guesses_are_taken_as_a_whole(
    sources: Sources, arguments: tuple[str, ...], env: dict[str, str], file: str, left: dict[str, Any]
) -> None:
    assert tuned_values(laid_over(sources, *arguments, env=env, file=file)) == left


@pytest.mark.parametrize(
    "settings", [{"no-such-key": 1}, {"threads": "many"}, {"spec-tree-width": 0}, {"model": "/nope"}]
)
def test_what_no_option_takes_is_an_error(sources: Sources, settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        overlaid(COMMANDS["complete"].options, sources.settle(), Tuned(settings, {}))


def test_files_are_written_whole_and_read_back(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b.json"
    write(file, FOUND)
    assert read(file) == FOUND
    assert [path.name for path in file.parent.iterdir()] == ["b.json"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"version": 0, "settings": {}, "about": {}}', f'{{"version": {VERSION}, "settings": 1}}']
)
def test_a_file_that_is_none_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "b.json"
    file.write_text(text)
    with pytest.raises(UsageError):
        read(file)
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path)
    assert read(tmp_path / "nothing.json") is None


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    with pytest.raises(LocalspecError, match="cannot be written"):
        write(tmp_path / "a" / "b.json", FOUND)


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    write(file, FOUND)
    before = file.read_text()
    with pytest.raises(TypeError):
        write(file, Tuned({"threads": object()}, {}))
    file.chmod(0o600)
    assert file.read_text() == before
    assert json.loads(before)["version"] == VERSION


def test_every_part_of_a_key_counts() -> None:
    assert len({file_of(*parts) for parts in [("a", "b"), ("b", "a"), ("a", ""), ("a",)]}) == 4
