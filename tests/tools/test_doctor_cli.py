"""``localspec doctor`` as a command."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from localspec.backends.llamacpp import Native
from localspec.backends.llamacpp.probe import library_record
from localspec.cli import app
from localspec.cli.diagnostics import Ending
from localspec.cli.doctor import drawn
from localspec.cli.doctor import plain as plain_report
from localspec.errors import ExitCode
from localspec.tools.doctor import TITLES, Finding, Level
from localspec.tools.doctor.native import Answer
from tests.cli.support import Done, Terminal, error_line, plain, run, shell
from tests.support.gguf_files import TinyModel, TokenizerKeys, damage
from tests.support.rpc import rpc_servers

Inside = Callable[..., tuple[int, dict[str, dict[str, Any]]]]
LIBRARY: dict[str, Any] = {"path": "x", "system": "", "backends": [], "devices": [], "extra_buffers": None}


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", os.devnull)
    for name in os.environ:
        if name.startswith(("LOCALSPEC_", "LLAMA_ARG_")):
            monkeypatch.delenv(name)


def doctor(*arguments: str, env: Mapping[str, str] | None = None) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit code and findings by their names."""
    done = run("doctor", "--json", *arguments, env=env)
    assert done.stderr == b""
    record = json.loads(done.stdout)
    assert record["exit_code"] == done.returncode
    for finding in record["findings"]:
        assert finding.keys() == {"check", "level", "text", "mend"}
    return done.returncode, {finding["check"]: finding for finding in record["findings"]}


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Inside]:
    """The same within this process and without asking llama.cpp, which takes most of the time."""
    monkeypatch.setattr("localspec.tools.doctor.collect.ask", lambda paths: Answer({"library": LIBRARY}))
    before = signal.getsignal(signal.SIGTERM)

    def doctor(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
        with pytest.raises(Ending) as ending:
            app.run(["doctor", "--json", *arguments])
        out, err = capsys.readouterr()
        assert err == ""
        return ending.value.code, {finding["check"]: finding for finding in json.loads(out)["findings"]}

    yield doctor
    signal.signal(signal.SIGTERM, before)


def levels(findings: dict[str, dict[str, Any]], group: str) -> dict[str, str]:
    return {name.partition(".")[2]: one["level"] for name, one in findings.items() if name.startswith(f"{group}.")}


def lines(done: Done) -> list[str]:
    assert done.stderr == b""
    return done.stdout.decode().splitlines()


def test_the_demo_model(smol: Path) -> None:
    done = run("doctor", "-m", "demo")
    assert done.returncode == 0
    said = lines(done)
    assert [line for line in said if line in TITLES.values()] == [
        title for group, title in TITLES.items() if group not in ("draft", "pair")
    ]
    assert any(line.startswith(f"  ok       {smol}: ") and "Q4_1, 135 million parameters" in line for line in said)
    assert any("weights (98 MB) and cache (189 MB) for a context of 8192 tokens" in line for line in said)
    assert b"\x1b" not in done.stdout


def test_a_pair_as_json(smol: Path, smol_tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    draft = TinyModel(n_ctx=1024).write(tmp_path / "draft.gguf", smol_tokenizer)
    code, findings = doctor("-m", str(smol), "-md", str(draft), "-c", "2048")
    assert code == ExitCode.OK
    assert levels(findings, "target") == dict.fromkeys(("file", "support", "trees", "context", "template"), "ok")
    assert levels(findings, "pair")["vocabulary"] == "ok"
    assert "1024 tokens of 2048" in findings["pair.context"]["text"]
    assert findings["memory.fit"]["level"] == "ok"


def test_an_odd_pair(smol: Path, smol_tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    odd = TinyModel(changed={700: "otherwise"}, template="{% if %}").write(tmp_path / "odd.gguf", smol_tokenizer)
    code, findings = doctor("-m", str(odd), "-md", str(smol))
    assert code == ExitCode.OK
    assert "its guesses are translated" in findings["pair.vocabulary"]["text"]
    assert "--spec-type suffix" in findings["pair.vocabulary"]["mend"]
    assert findings["target.template"]["level"] == "warning"


def test_a_recurrent_pair(smol_tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    mamba = TinyModel(architecture="mamba").write(tmp_path / "mamba.gguf", smol_tokenizer)
    code, findings = doctor("-m", str(mamba), "-md", str(mamba))
    assert code == ExitCode.MODEL
    assert (findings["target.trees"]["level"], findings["draft.trees"]["level"]) == ("warning", "problem")


def test_a_draft_model_alone_is_one_for_the_demo_model(smol: Path, tmp_path: Path, inside: Inside) -> None:
    code, findings = inside("-md", str(tmp_path / "none.gguf"))
    assert code == ExitCode.MODEL
    assert str(smol) in findings["target.file"]["text"]
    assert "does not exist" in findings["draft.file"]["text"]


def test_a_target_that_is_missing_hides_nothing_of_the_draft_model(smol: Path, tmp_path: Path) -> None:
    code, findings = doctor("-m", str(tmp_path / "none.gguf"), "-md", str(smol))
    assert code == ExitCode.MODEL
    assert levels(findings, "target") == {"file": "problem"}
    assert levels(findings, "draft") == {"file": "ok", "support": "ok", "trees": "ok"}


@pytest.mark.parametrize(
    ("kind", "words"), [("html", "is not a GGUF file"), ("half", "bytes are missing"), ("directory", "without a GGUF")]
)
def test_files_that_are_no_models(kind: Any, words: str, smol: Path, tmp_path: Path, inside: Inside) -> None:
    code, findings = inside("-m", str(damage(smol, kind, tmp_path / "bad.gguf")))
    assert code == ExitCode.MODEL
    assert findings["target.file"]["level"] == "problem"
    assert words in findings["target.file"]["text"]
    assert findings["target.file"]["mend"]


def test_a_header_that_is_cut(smol: Path, tmp_path: Path, inside: Inside) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(smol.read_bytes()[:5000])
    code, findings = inside("-m", str(path))
    assert code == ExitCode.MODEL
    assert "damaged header" in findings["target.file"]["text"]


def test_texts_of_others_do_not_steer_the_terminal() -> None:
    finding = Finding("target.file", Level.PROBLEM, "a\x1b[31mb\n\nc", "d\x07[bold]")
    for report in ("\n".join(plain_report([finding])), drawn([finding], 80, colour=False)):
        assert "\x1b" not in report
        assert "a�[31mb c" in report
        assert "mend: d�[bold]" in report
    assert drawn([finding], 80, colour=True).count("\x1b[1;31m") == 1


@pytest.mark.usefixtures("smol")
def test_too_long_a_context(inside: Inside) -> None:
    code, findings = inside("-m", "demo", "-c", "2000000000")
    assert code == ExitCode.MEMORY
    assert findings["memory.fit"]["mend"].startswith("-c 8192,")


# Without llama.cpp


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise ModuleNotFoundError(\"No module named 'llama_cpp'\")", "No module named 'llama_cpp'"),
        ("raise RuntimeError('Failed to load shared library')", "Failed to load shared library"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "it dies of SIGILL"),
    ],
)
def test_a_library_that_is_missing_or_broken(code: str, words: str, smol: Path, tmp_path: Path) -> None:
    package = tmp_path / "llama_cpp"
    package.mkdir()
    (package / "__init__.py").write_text(code)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).resolve().parents[2])])
    ended, findings = doctor("-m", str(smol), env={"PYTHONPATH": path})
    assert ended == ExitCode.RUNTIME
    assert words in findings["build.llama"]["text"]
    assert findings["target.file"]["level"] == findings["memory.fit"]["level"] == "ok"
    assert not {"target.support", "devices.gpu", "build.simd"} & findings.keys()


def test_devices_come_with_their_memory() -> None:
    with rpc_servers(1) as servers:
        answer = Answer({"library": library_record(Native(rpc=servers))})
    assert answer.library is not None
    assert {"CPU", "RPC"} <= set(answer.library.backends)
    (device,) = answer.library.devices
    assert (device.description, device.shared) == (servers[0], False)
    assert 0 < device.free <= device.total


# Settings


def test_a_broken_configuration_file_is_a_finding(tmp_path: Path, inside: Inside) -> None:
    file = tmp_path / "config.toml"
    file.write_text("temperatur = 1\n")
    code, findings = inside("--config", str(file))
    assert code == ExitCode.RUNTIME
    assert "unknown key temperatur" in findings["files.config"]["text"]
    assert "Did you mean temp" in findings["files.config"]["mend"]
    code, findings = inside("--config", str(tmp_path / "none.toml"))
    assert (code, findings["files.config"]["level"]) == (ExitCode.RUNTIME, "problem")
    code, findings = inside("--profile", "none")
    assert (code, findings["files.config"]["level"]) == (ExitCode.RUNTIME, "problem")


def test_models_of_a_configuration_file_are_looked_into(tmp_path: Path, inside: Inside) -> None:
    file = tmp_path / "config.toml"
    file.write_text(f'model = "{tmp_path}/none.gguf"\nctx-size = 512\n')
    code, findings = inside("--config", str(file))
    assert code == ExitCode.MODEL
    assert findings["files.config"]["text"] == f"settings come from {file}"


def test_a_folder_that_cannot_be_written(tmp_path: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "file"))
    _, findings = inside()
    assert findings["files.models"]["level"] == "warning"


# The command line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--jso"], "no such option: --jso. Did you mean --json?"),
        (["-c", "many"], "--ctx-size many is not an integer"),
        (["demo"], "demo"),
        (["-ctk", "q3"], "q3 is not possible"),
        (["-ctkd", "q8_0"], "-ctkd is given without a draft model"),
    ],
)
def test_wrong_words(arguments: list[str], words: str) -> None:
    assert words in error_line(run("doctor", *arguments), ExitCode.USAGE)


@pytest.mark.parametrize("more", ["", "--json -m none.gguf"])
def test_a_closed_pipe(more: str) -> None:
    done = shell(f'set -o pipefail; "$@" doctor {more} | head -c 0')
    assert done.stderr == b""
    assert done.returncode == 0


def test_a_full_disk() -> None:
    done = shell('"$@" doctor >/dev/full')
    assert (done.returncode, b"No space left" in done.stderr) == (ExitCode.RUNTIME, True)


# Terminals


def test_at_a_terminal() -> None:
    with Terminal("doctor", env={"NO_COLOR": "", "COLUMNS": "60", "TERM": "xterm"}) as terminal:
        code, screen = terminal.end()
    assert code == 0
    assert b"\x1b[1mBuild\x1b[0m" in screen
    text = plain(screen).splitlines()
    assert max(map(len, text)) <= 60
    assert "  ok       colours are used" in text


def test_a_dumb_terminal() -> None:
    with Terminal("doctor", env={"TERM": "dumb"}) as terminal:
        code, screen = terminal.end()
    assert (code, b"\x1b" in screen) == (0, False)
    assert b"no colours" in screen
