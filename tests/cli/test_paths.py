"""Names of files may be anything: for every option that takes a path, found by the table of options."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localspec.cli import session
from localspec.cli.main import main
from localspec.cli.serve import keys_of
from localspec.cli.source import read_prompt
from localspec.errors import ExitCode, UsageError
from localspec.grammar import schema_grammar
from localspec.hub import models_in
from localspec.hub.shelf import located
from localspec.options import COMMANDS, Values, engine_options, settle
from localspec.options.commands import Command
from localspec.options.option import Option
from localspec.options.parse import parse
from localspec.options.values import chat_template, grammar, system_message
from localspec.text.printable import one_line
from localspec.tools.batch.source import open_input, read_lines
from localspec.tools.prompts import read_prompts
from tests.cli.support import PLAIN, error_line, run
from tests.support.gguf_files import TinyModel, TokenizerKeys

ODD = {
    "spaces and letters": " a b ü модель　é ",
    "dash": "-dash",
    "two dashes": "--help",
    "line end": "end\n",
    "line end before the suffix": "end\n.gguf",
    "no text": os.fsdecode(b"caf\xe9"),
    "quotes": 'it\'s "so" `$HOME`',
    "signs": "a,b;c=d:e*[x]{y}%s",
}
#: For every option that takes a path, the first command that has it: ``complete`` if that has.
TAKES_PATH = {
    (option.name if option.flags else f"{name} {option.metavar}"): (command, option)
    for name, command in (*reversed(COMMANDS.items()), ("complete", COMMANDS["complete"]))
    for option in command.options
    if option.is_file
}
#: Of a training: opened when it begins.
TRAINING_OPENS = ("corpus", "from_log", "origin", "work", "hub_form")
#: Opened by the engine or a training, or written.
OPENED_LATER = ("lora", "lora_scaled", "log_file", "output_file", "token_map", *TRAINING_OPENS)
#: What holds no model, besides `FILES`.
OTHERS = ("models_dir", "spec_corpus", "lookup_static", "lookup_dynamic", "batch FILE")
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def quoted(path: str) -> str:
    """A name with commas, as a comma list takes it."""
    return '"' + path.replace('"', '""') + '"'


def named(option: Option, path: str) -> str:
    """The value that stands for this path."""
    if option.name in ("lora", "lora_scaled"):
        path = quoted(path)
    return f"{path}:0.5" if option.metavar == "FILE:SCALE" else path


def line(command: Command, option: Option, path: str) -> list[str]:
    """The arguments that give this path to this option."""
    value = named(option, path)
    if not option.flags:
        return ["--", value]
    return [option.flag, value, *("x" for place in command.arguments if place.required)]


def models(values: Values) -> Any:
    found = session.model_files(values)
    return next(path for path in found if path is not None)


def lines_of_a_batch(values: Values) -> list[bytes | None]:
    with open_input(values["input"]) as source:
        return [line.data for line in read_lines(source)]


def as_given(name: str) -> Callable[[Values], Path]:
    return lambda values: Path(values[name])


#: What reads each of them, and what it then gives of a file `FILES` was written for; ``None``: the path itself.
READERS: dict[str, tuple[Callable[[Values], Any], Any]] = {
    "file": (read_prompt, "the prompt"),
    "system_file": (system_message, "be brief"),
    "chat_template_file": (chat_template, TEMPLATE),
    "grammar_file": (grammar, 'root ::= "a"'),
    "json_schema_file": (grammar, schema_grammar('{"type": "null"}')),
    "config": (lambda values: values["temp"], 0.25),
    "model": (models, None),
    "model_draft": (models, None),
    "lora": (lambda values: engine_options(values).target.lora[0][0], None),
    "lora_scaled": (lambda values: engine_options(values).target.lora[0][0], None),
    "log_file": (lambda values: engine_options(values).log_file, None),
    **{name: (as_given(name), None) for name in ("output_file", "token_map", *TRAINING_OPENS)},
    "spec_corpus": (lambda values: engine_options(values).by_text.corpus, None),
    "lookup_static": (lambda values: engine_options(values).by_text.lookup_static, None),
    "lookup_dynamic": (lambda values: engine_options(values).by_text.lookup_dynamic, None),
    "api_key_file": (keys_of, ("secret",)),
    "batch FILE": (lines_of_a_batch, [b"GGUF"]),
    "prompts": (lambda values: [one.text for one in read_prompts(Path(values["prompts"]))], ["the prompt"]),
    "models_dir": (lambda values: [path.name for path in models_in(Path(values["models_dir"]))], ["a.gguf"]),
    **{
        f"models {name} MODEL": (lambda values: located(values["model"]), None)
        for name in ("info", "pair", "path", "rm", "verify")
    },
}
FILES = {
    "file": "the prompt\n",
    "system_file": "be brief\n",
    "chat_template_file": TEMPLATE,
    "grammar_file": 'root ::= "a"',
    "json_schema_file": '{"type": "null"}',
    "config": "temp = 0.25\n",
    "prompts": "the prompt\n",
    "api_key_file": "secret\n",
}


def write(name: str, path: Path) -> None:
    if name == "models_dir":
        path.mkdir()
        path = path / "a.gguf"
    path.write_text(FILES.get(name, "GGUF"))


def test_every_path_is_tried() -> None:
    assert TAKES_PATH.keys() == READERS.keys()


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("name", TAKES_PATH)
@pytest.mark.parametrize("before", ["", "./", "{}/"], ids=["bare", "dot", "absolute"])
def test_a_file_with_an_odd_name_is_found(name: str, odd: str, before: str, tmp_path: Path) -> None:
    command, option = TAKES_PATH[name]
    read, expected = READERS[name]
    write(name, tmp_path / odd)
    path = before.format(tmp_path) + odd
    values = settle(command, parse(line(command, option, path), command), {}).values
    assert read(values) == (Path(path) if expected is None else expected)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("name", [name for name, (_, option) in TAKES_PATH.items() if option.flags])
def test_the_environment_and_files_name_it_as_well(name: str, odd: str, tmp_path: Path) -> None:
    command, option = TAKES_PATH[name]
    read, expected = READERS[name]
    write(name, tmp_path / odd)
    want = Path(odd) if expected is None else expected
    places = ["x" for place in command.arguments if place.required]
    if not (option.many and "\n" in odd):  # there a line end parts two values
        got = settle(command, parse(places, command), {option.variables[0]: named(option, odd)}).values
        assert read(got) == want
    if option.key and odd.isprintable():  # TOML is text
        (tmp_path / "settings.toml").write_text(f"{option.word} = {json.dumps(named(option, odd))}")
        got = settle(command, parse(["--config", "settings.toml", *places], command), {}).values
        assert read(got) == want


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("name", [name for name in TAKES_PATH if name not in OPENED_LATER])
def test_what_is_not_there_is_one_line_with_its_name(name: str, odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command, option = TAKES_PATH[name]
    arguments = line(command, option, odd)
    if command.name == "complete":
        Path("here.gguf").write_text("GGUF")
        model = ["-m", "here.gguf"] if name != "model" else []
        drafter = ["--spec-type", "ngram-cache"] if name.startswith("lookup_") else []
        arguments = [*model, *drafter, "-cnv", *(["-p", "a"] if name != "file" else []), *arguments]
    monkeypatch.setattr(sys, "argv", ["localspec", *command.name.split(), *arguments])
    out, err = io.BytesIO(), io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(err, errors="backslashreplace"))  # as the interpreter's own
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    done = subprocess.CompletedProcess((), ended.value.code, out.getvalue(), err.getvalue())
    assert shown(odd) in error_line(done, ExitCode.USAGE if name in (*OTHERS, *FILES) else ExitCode.MODEL)


def shown(name: str) -> str:
    """A name in a message."""
    return one_line(name).encode(errors="backslashreplace").decode()


@pytest.mark.parametrize("name", TAKES_PATH)
def test_nothing_is_no_path(name: str, tmp_path: Path) -> None:
    """Not the folder one is in, as ``Path("")`` would have it."""
    command, option = TAKES_PATH[name]
    places = ["x" for place in command.arguments if place.required]
    arguments = [option.flag, "", *places] if option.flags else [""]
    with pytest.raises(UsageError, match="names no file") as caught:
        settle(command, parse(arguments, command), {})
    assert caught.value.message.startswith(option.flag)
    if option.key:
        (tmp_path / "settings.toml").write_text(f'{option.word} = ""')
        with pytest.raises(UsageError, match=rf"^{option.word} in settings.toml names no file"):
            settle(command, parse(["--config", "settings.toml", *places], command), {})


# What only the engine opens


@pytest.fixture(scope="module")
def tiny(smol_tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel().write(tmp_path_factory.mktemp("models") / "tiny.gguf", smol_tokenizer.first(2000))


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_models_and_logs_with_odd_names_are_opened(odd: str, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / odd).symlink_to(tiny)
    log = tmp_path / f"{odd}.log"
    done = run("complete", "-m", odd, "-md", odd, "--log-file", log.name, "-p", "a", "-n", "2", *PLAIN, "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["usage"]["completion_tokens"] == 2
    assert log.stat().st_size


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_adapters_and_logs_that_cannot_be_opened(odd: str, tiny: Path) -> None:
    adapter = ("lora", "lora_scaled")[[*ODD.values()].index(odd) % 2]  # both go one way
    for name, path, code in ((adapter, odd, ExitCode.MODEL), ("log_file", f"no folder/{odd}", ExitCode.USAGE)):
        command, option = TAKES_PATH[name]
        done = run("complete", "-m", str(tiny), "-p", "a", "-n", "2", *PLAIN, *line(command, option, path))
        assert shown(odd) in error_line(done, code)
