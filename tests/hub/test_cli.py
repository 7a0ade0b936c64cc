"""What the commands say about downloads and models: stdout for data, stderr for the rest."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from localspec.cli import models, session
from localspec.cli.diagnostics import Ending, errors_end_the_command
from localspec.cli.transfer import Transfer
from localspec.errors import ExitCode, LocalspecError, NetworkError
from tests.cli.support import FAKE, error_line
from tests.cli.support import run as command
from tests.hub.conftest import Client
from tests.hub.server import Fault
from tests.hub.test_files import write

REPO = "user/model-GGUF"
NAME = "model-Q4_K_M.gguf"
NONE = {
    "model": None,
    "hf_repo": None,
    "hf_file": None,
    "model_draft": None,
    "hf_repo_draft": None,
    "hf_file_draft": None,
    "offline": False,
    "hf_token": None,
    "json": False,
    "yes": False,
}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def stocked(client: Client, tmp_path: Path) -> Client:
    client.hub.repos[REPO] = {NAME: write(tmp_path / "source.gguf").read_bytes()}
    return client


def run(body: Callable[[Mapping[str, Any]], int], **values: Any) -> int:
    """The exit code of a command; its error is said on stderr."""
    try:
        with errors_end_the_command():
            return body({**NONE, **values})
    except Ending as ending:
        return ending.code


# Which files are loaded


def test_models_from_the_hub(stocked: Client, capsys: pytest.CaptureFixture[str]) -> None:
    target, draft = session.model_files({**NONE, "hf_repo": REPO, "hf_repo_draft": REPO, "hf_file_draft": NAME})
    assert target == draft
    assert target is not None
    assert target.name == NAME
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert re.fullmatch(rf"localspec: downloading {NAME} \([\d.]+ kB\)", first)
    assert re.fullmatch(rf"localspec: downloaded {NAME} \([\d.]+ kB\)", second)


def test_models_from_paths(tmp_path: Path) -> None:
    folder = tmp_path / "модель ü [1]"
    folder.mkdir()
    path = write(folder / "a.gguf")
    assert session.model_files({**NONE, "model": str(folder)}) == (path, None)
    assert session.model_files({**NONE, "model_draft": str(path)}) == (None, path)
    assert session.model_files(NONE) == (None, None)


def test_models_by_name(stocked: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stocked.get(REPO)
    monkeypatch.setattr("localspec.hub.shelf.DEMOS", {"demo": lambda: tmp_path / "source.gguf"})
    monkeypatch.chdir(tmp_path)
    named = {**NONE, "model": "demo", "model_draft": f"{REPO}:q4_k_m"}
    assert session.model_files(named) == (tmp_path / "source.gguf", path)
    with pytest.raises(LocalspecError, match="user/nope does not exist") as caught:
        session.model_files({**NONE, "model": "user/nope"})
    assert "-hf user/nope" in caught.value.hint
    write(tmp_path / "demo")
    assert session.model_files(named) == (Path("demo"), path)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("dmeo", "Did you mean demo? Check the path."),
        ("Demo", "Did you mean demo? Check the path."),
        ("user/modl-GGUF", f"Did you mean {REPO}:Q4_K_M? If it is a repository on the hub, write -hf user/modl-GGUF."),
        ("mine/bigg.gguf", "Did you mean mine/big.gguf? Check the path."),
        ("mine/big", "Did you mean mine/big.gguf? Check the path."),
        ("mine/other.gguf", "Check the path."),
        ("none/big.gguf", "Check the path."),  # another folder
        ("zebra", "Check the path."),
        ("mine/a\0b.gguf", "Check the path."),
    ],
)
@pytest.mark.parametrize("option", ["model", "model_draft"])
def test_names_that_are_nearly_right(
    stocked: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, hint: str, option: str
) -> None:
    stocked.get(REPO)
    monkeypatch.setattr("localspec.hub.shelf.DEMOS", {"demo": lambda: tmp_path / "source.gguf"})
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    write(Path("mine/big.gguf"))
    with pytest.raises(LocalspecError) as caught:
        session.model_files({**NONE, option: name})
    assert caught.value.hint == hint


@pytest.mark.parametrize("body", [models.info, models.path, models.verify, models.rm])
def test_every_command_asks_what_was_meant(
    stocked: Client, body: Callable[[Mapping[str, Any]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    stocked.get(REPO)
    for near in ("user/model-GUF", f"{REPO}:Q4_K"):
        assert run(body, model=near, yes=True) == ExitCode.MODEL
        (line,) = capsys.readouterr().err.splitlines()
        assert f". Did you mean {REPO}:Q4_K_M? " in line


def test_what_is_there_but_cannot_be_used_was_meant(tmp_path: Path) -> None:
    write(tmp_path / "big.gguf")
    (tmp_path / "bigg").mkdir()
    with pytest.raises(LocalspecError, match="a folder without a GGUF model") as caught:
        session.model_files({**NONE, "model": str(tmp_path / "bigg")})
    assert "mean" not in caught.value.hint


def test_errors_name_the_draft_model(stocked: Client, tmp_path: Path) -> None:
    with pytest.raises(LocalspecError, match=r"^the draft model: .*none\.gguf does not exist"):
        session.model_files({**NONE, "model_draft": str(tmp_path / "none.gguf")})
    stocked.hub.gated = True
    with pytest.raises(NetworkError, match=r"^the draft model: user/model-GGUF is gated"):
        session.model_files({**NONE, "hf_repo_draft": REPO})


# models pull, ls, info, path, rm, verify


def test_pull_prints_the_path_and_nothing_else(stocked: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(models.pull, repo=REPO) == ExitCode.OK
    path = capsys.readouterr().out
    assert path == f"{stocked.get(REPO, offline=True)}\n"
    assert run(models.path, model=REPO) == ExitCode.OK
    assert capsys.readouterr() == (path, "")


@pytest.mark.parametrize(
    ("repo", "code", "words"),
    [
        ("nonsense", ExitCode.USAGE, ["models pull nonsense", "user/repo"]),
        (f"{REPO}:Q2_K", ExitCode.MODEL, ["has no Q2_K", "It has Q4_K_M."]),
        ("user/nope", ExitCode.MODEL, ["is not at http", "HF_TOKEN"]),
    ],
)
def test_pull_refuses_in_one_line(
    stocked: Client, capsys: pytest.CaptureFixture[str], repo: str, code: int, words: list[str]
) -> None:
    assert run(models.pull, repo=repo) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    for word in ("localspec: error: ", *words):
        assert word in err


def test_the_token_is_never_shown(stocked: Client, capsys: pytest.CaptureFixture[str]) -> None:
    stocked.hub.gated = True
    assert run(models.pull, repo=REPO, hf_token="hf_topsecret") == ExitCode.NETWORK
    out, err = capsys.readouterr()
    assert "hf_topsecret" not in out + err
    assert "Bearer hf_topsecret" in [request.token for request in stocked.hub.requests]


def test_ls(stocked: Client, capsys: pytest.CaptureFixture[str]) -> None:
    stocked.get(REPO)
    assert run(models.ls) == ExitCode.OK
    out, err = capsys.readouterr()
    assert err == ""
    heads, *rows = out.splitlines()
    assert heads.split() == ["NAME", "QUANT", "SIZE", "ARCH", "CONTEXT", "DRAFTERS"]
    row = next(row for row in rows if row.startswith("user/"))
    assert row.split() == [f"{REPO}:Q4_K_M", "Q4_K_M", "17", "kB", "llama", "4096", "-"]
    assert row.index("llama") == heads.index("ARCH")


def test_ls_for_machines(stocked: Client, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = stocked.get(REPO)
    (tmp_path / "mine").mkdir()
    write(tmp_path / "mine" / "größe.gguf")
    assert run(models.ls, json=True, models_dir=str(tmp_path / "mine")) == ExitCode.OK
    found = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["models"]}
    assert found[f"{REPO}:Q4_K_M"] == {
        "name": f"{REPO}:Q4_K_M",
        "path": str(path),
        "size": path.stat().st_size,
        "quant": "Q4_K_M",
        "architecture": "llama",
        "context": 4096,
        "fault": None,
        "drafters": [],
    }
    assert str(tmp_path / "mine" / "größe.gguf") in found


def test_info(stocked: Client, capsys: pytest.CaptureFixture[str]) -> None:
    stocked.get(REPO)
    assert run(models.info, model=REPO) == ExitCode.OK
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["name"] == "Größe [x]"
    assert lines["template"] == "yes"
    assert lines["types"] == "F16 (2 tensors), F32 (1 tensor)"
    assert "window" not in lines
    assert run(models.info, model=REPO, json=True) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["context"] == 4096


def test_info_on_a_head(capsys: pytest.CaptureFixture[str]) -> None:
    """What it is to --spec-type, and how it came to be."""
    assert run(models.info, model="demo-eagle3") == ExitCode.OK
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["spec_type"] == "draft-eagle3"
    assert lines["training"].startswith("target SmolLM2-135M-Instruct.Q4_1.gguf, ")
    assert run(models.info, model="demo-eagle3", json=True) == ExitCode.OK
    assert float(json.loads(capsys.readouterr().out)["training"]["accepted_length"]) > 1.5


def test_a_cut_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(write(tmp_path / "whole.gguf").read_bytes()[:-8])
    (tmp_path / "whole.gguf").unlink()
    assert run(models.info, model=str(path)) == ExitCode.MODEL
    out, err = capsys.readouterr()
    assert "fault         8 bytes are missing at its end" in out
    assert err.startswith(f"localspec: error: {path} is damaged: 8 bytes")
    assert run(models.ls, models_dir=str(tmp_path)) == ExitCode.OK
    assert "llama (damaged)" in next(row for row in capsys.readouterr().out.splitlines() if "cut" in row)


def test_a_folder_of_models_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(models.ls, models_dir="/nonexistent") == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)


def test_verify(stocked: Client, capsys: pytest.CaptureFixture[str]) -> None:
    path = stocked.get(REPO)
    assert run(models.verify, model=REPO) == ExitCode.OK
    assert capsys.readouterr().out == f"{path}: its structure is sound and its checksum is the hub's\n"
    with path.resolve().open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"rot!")
    assert run(models.verify, model=REPO) == ExitCode.MODEL
    out, err = capsys.readouterr()
    assert out == ""
    assert "is damaged: its checksum" in err


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "goes"), [("y\n", True), ("YES\n", True), ("\n", False), ("n\n", False), ("", False)]
)
def test_rm_asks(
    stocked: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: str, goes: bool
) -> None:
    path = stocked.get(REPO)
    monkeypatch.setattr(sys, "stdin", Keyboard(answer))
    assert run(models.rm, model=REPO) == (ExitCode.OK if goes else ExitCode.RUNTIME)
    out, err = capsys.readouterr()
    assert out == ""
    assert f"Remove {NAME} of {REPO} (17 kB)? [y/N]" in err
    assert path.exists() != goes
    assert ("17 kB are free now" in err) == goes


def test_rm_without_a_terminal(stocked: Client, capsys: pytest.CaptureFixture[str]) -> None:
    path = stocked.get(REPO)
    assert run(models.rm, model=REPO) == ExitCode.USAGE
    assert "--yes" in capsys.readouterr().err
    assert path.exists()
    assert run(models.rm, model=REPO, yes=True) == ExitCode.OK
    assert not path.exists()


# Downloads on a terminal


def pull(
    client: Client, *, terminal: bool, env: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], int]:
    """A download in a process of its own; the number is its stderr to read from."""
    code = (
        "import sys; from localspec.cli.diagnostics import *; from localspec.cli import models, output\n"
        "output.accept_any_text()\n"
        "values = dict(repo=sys.argv[1], hf_file=None, offline=False, hf_token=None)\n"
        "try:\n"
        "    with errors_end_the_command(): models.pull(values)\n"
        "except Ending as ending: sys.exit(ending.code)"
    )
    ours, theirs = pty.openpty() if terminal else os.pipe()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "100", **(env or {})}
    process = subprocess.Popen(
        [sys.executable, "-c", code, REPO], stdout=subprocess.PIPE, stderr=theirs, env=environ, cwd=ROOT
    )
    os.close(theirs)
    return process, ours


def said(number: int) -> str:
    text = b""
    while True:
        try:
            piece = os.read(number, 65536)
        except OSError:
            piece = b""
        if not piece:
            os.close(number)
            return text.decode()
        text += piece


@pytest.mark.parametrize("coding", ["utf-8", "ascii"])
def test_a_bar_on_a_terminal(stocked: Client, coding: str) -> None:
    stocked.hub.repos[REPO] = {"größe [bold]-Q4_K_M.gguf": b"GGUF" + bytes(3_000_000)}
    process, number = pull(stocked, terminal=True, env={"PYTHONIOENCODING": coding})
    text = said(number)
    assert process.wait() == 0
    assert process.stdout is not None
    assert process.stdout.read().endswith("größe [bold]-Q4_K_M.gguf\n".encode())
    process.stdout.close()
    assert "3.0/3.0 MB" in text
    assert "[bold]-Q4_K_M.gguf" in text
    assert "\x1b[?25h" in text  # the cursor is back
    assert text.rstrip().endswith("(3.0 MB)")


def test_lines_on_a_terminal_that_cannot_go_back(stocked: Client) -> None:
    process, number = pull(stocked, terminal=True, env={"TERM": "dumb"})
    text = said(number)
    assert process.wait() == 0
    assert process.stdout is not None
    process.stdout.close()
    assert "\x1b" not in text
    assert len(text.splitlines()) == 2


def test_ctrl_c(stocked: Client) -> None:
    stocked.hub.repos[REPO] = {NAME: b"GGUF" + bytes(100_000)}
    over = threading.Event()
    stocked.hub.file_faults = [Fault(cut=0.5, stall=over)]
    process, number = pull(stocked, terminal=False)
    while not any(path.stat().st_size for path in stocked.cache.glob("*/blobs/*.incomplete")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    text = said(number)
    assert process.wait() == ExitCode.INTERRUPTED
    assert process.stdout is not None
    assert process.stdout.read() == b""
    process.stdout.close()
    assert text.splitlines()[-1].startswith("localspec: the download is stopped; what arrived is kept")
    assert [Path(name).suffix for name in stocked.stored()] == [".incomplete"]
    over.set()


def test_notes_stand_above_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    transfer = Transfer(bars=True, colour=False)
    transfer.begin("folder/a[b].gguf", 1000, 500)
    transfer.advance(250)
    transfer.note("a note [/red] \x1b[31m")
    transfer.check()
    transfer.end(whole=False)
    err = capsys.readouterr().err
    assert "localspec: a note [/red] �[31m" in err
    assert "a[b].gguf" in err
    assert transfer.unfinished


def test_sizes_that_are_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    transfer = Transfer(bars=False, colour=False)
    transfer.begin("a.gguf", None, 0)
    transfer.advance(10)
    transfer.end(whole=True)
    assert capsys.readouterr().err.splitlines() == [
        "localspec: downloading a.gguf (size unknown)",
        "localspec: downloaded a.gguf (10 B)",
    ]


def test_nothing_heavy_before_it_is_needed() -> None:
    code = (
        "import sys; import localspec.cli.session, localspec.cli.models; from localspec.hub import find, HubRef;"
        "print(*(m for m in ('huggingface_hub', 'httpx2', 'gguf', 'numpy', 'rich.progress') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# The whole command


def test_complete_with_a_model_from_the_hub(stocked: Client) -> None:
    arguments = ("complete", "-hf", f"{REPO}:q4_k_m", "-p", "abc", "-n", "5", "-s", "3", "--ignore-eos")
    done = command(*arguments, module=FAKE)
    assert done.returncode == 0
    assert done.stdout
    assert b"downloaded model-Q4_K_M.gguf" in done.stderr
    again = command(*arguments, "--offline", module=FAKE, env={"HF_ENDPOINT": "http://no-such-host.invalid"})
    assert (again.returncode, again.stdout, again.stderr) == (0, done.stdout, b"")
    down = command(*arguments, module=FAKE, env={"HF_ENDPOINT": "http://no-such-host.invalid"})
    assert (down.returncode, down.stdout) == (0, done.stdout)
    (line,) = down.stderr.decode().splitlines()
    assert line.endswith(f"using {REPO}:q4_k_m from the cache")


def test_complete_without_it(stocked: Client) -> None:
    line = error_line(command("complete", "-hf", f"{REPO}:Q2_K", "-p", "a"), ExitCode.MODEL)
    assert "has no Q2_K. It has Q4_K_M." in line
    line = error_line(command("complete", "-hf", "model", "-p", "a"), ExitCode.USAGE)
    assert "-hf model" in line
    line = error_line(command("complete", "-hf", REPO, "--offline", "-p", "a"), ExitCode.MODEL)
    assert "is not in the cache" in line


def test_models_as_a_command(stocked: Client) -> None:
    done = command("models", "pull", REPO)
    assert done.returncode == 0
    path = Path(done.stdout.decode().rstrip("\n"))
    assert path.name == NAME
    assert command("models", "path", REPO).stdout == done.stdout
    assert command("models", "rm", "-y", REPO).returncode == 0
    assert not path.exists()
    assert b"is not in the cache" in command("models", "path", REPO).stderr
