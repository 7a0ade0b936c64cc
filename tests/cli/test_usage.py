"""What is refused: exit code, one line on stderr, nothing on stdout."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.cli.main import main
from localspec.errors import ExitCode
from tests.cli.support import FAKE, PLAIN, Terminal, error_line, run
from tests.support.gguf_files import DAMAGES, Damage, TinyModel, TokenizerKeys, damage


class Input(io.TextIOWrapper):
    """Piped standard input that is empty."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())


@pytest.fixture(autouse=True)
def same_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """The error of a command that is refused before a model is loaded."""
    monkeypatch.setattr(sys, "argv", ["localspec", *arguments])
    monkeypatch.setattr(sys, "stdin", Input())
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    done = subprocess.CompletedProcess(arguments, ended.value.code, out.encode(), err.encode())
    return error_line(done, ExitCode.USAGE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], ["nope", "localspec --help"]),
        (["complete", "--nope"], ["--nope", "localspec complete --help"]),
        (["complete", "-n"], ["-n", "requires an argument"]),
        (["complete", "-n", "x"], ["--predict", "integer"]),
        (["complete", "-p", "a", "more"], ["more"]),
        (["complete", "-p", "a", "--json", "--jsonl"], ["--json", "--jsonl"]),
        (["complete", "-p", "a", "--logprobs", "2"], ["--logprobs", "--json"]),
        (["complete", "-p", "a", "--logprobs", "101", "--json"], ["--logprobs 101", "0 to 100"]),
        (["complete", "-p", "a", "-ngld", "3"], ["-ngld", "-md"]),
        (["complete", "-p", "a", "-td", "3"], ["-td", "-md"]),
        (["complete", "-p", "a", "-ctkd", "q8_0"], ["-ctkd", "-md"]),
        (["complete", "-p", "a", "-ngl", "some"], ["-ngl some", "auto or all"]),
        (["complete", "-p", "a", "-ngl", "-1"], ["-ngl -1"]),
        (["complete", "-p", "a", "-ngl", "9999999999"], ["-ngl 9999999999"]),
        (["complete", "-p", "a", "--spec-draft-n-min", "20"], ["--spec-draft-n-min 20", "--spec-draft-n-max 16"]),
        (["complete", "-p", "a", "--spec-draft-n-max", "-1"], ["--spec-draft-n-max -1", "0 to 256"]),
        (["complete", "-p", "a", "--spec-draft-n-max", "10000"], ["--spec-draft-n-max 10000"]),
        (["complete", "-p", "a", "--spec-tree-nodes", "10000"], ["--spec-tree-nodes 10000"]),
        (["complete", "-p", "a", "-md", "d.gguf", "--spec-ngram-simple-size-n", "5"], ["--spec-ngram-simple-size-n"]),
        (["complete", "-p", "a", "--spec-type", "none", "--spec-ngram-simple-min-hits", "2"], ["min-hits"]),
        (["complete", "-p", "a", "--spec-type", ""], ["--spec-type is empty", "Known types: none, draft-simple"]),
        (["complete", "-p", "a", "--spec-type", ","], ["--spec-type is empty"]),
        (["complete", "-p", "a", "--spec-type", "suffix, "], ["a name in --spec-type suffix, is empty"]),
        (["complete", "-p", "a", "--spec-type", "suffix,none"], ["--spec-type suffix,none: none stands alone"]),
        (["complete", "-p", "a", "--spec-type", "draft-dflash"], ["--spec-type draft-dflash needs a head", "-md"]),
        (
            ["complete", "-p", "a", "-md", "d", "--spec-type", "suffix"],
            ["a draft model is given", "suffix does not use"],
        ),
        (["complete", "-p", "a", "--spec-accept", "maybe"], ["--spec-accept maybe", "draw, ratio"]),
        (["complete", "-p", "a", "--samplers", "top_k;nope"], ["'nope'", "penalties"]),
        (["complete", "-p", "a", "--grammar", 'root ::= "a" ('], ["line 1, column 14", "never closed"]),
        (["complete", "-p", "a", "--grammar", 'root ::= root "a" | "b"'], ["rule root", "left recursion"]),
        (["complete", "-p", "a", "--grammar", 'root ::= "a" root'], ["allows no text"]),
        (["complete", "-p", "a", "--grammar", 'root ::= "a"{99999}'], ["repetitions", "10000"]),
        (["complete", "-p", "a", "-j", "{"], ["JSON schema is no JSON"]),
        (["complete", "-p", "a", "-j", '{"type": "object", "minProperties": 1}'], ["minProperties", "not supported"]),
        (["complete", "-p", "a", "-j", "[" * 5_000], ["nested too deeply"]),
        (["complete", "-p", "a", "-j", '{"$ref": "#"}'], ["allows no text"]),
        (["complete", "-p", "a", "-j", "{}", "--grammar", 'root ::= "a"'], ["--grammar and -j are given together"]),
        (["complete", "-p", "a", "-j", "{}", "-jf", "x"], ["-j and -jf are given together"]),
        (["chat", "-p", "a", "--grammar", "root"], ["::= is missing"]),
        (["complete", "-p", "a", "--logit-bias", "hello"], ["--logit-bias hello", "15043-1"]),
        (["complete", "-p", "a", "-l", "15043"], ["--logit-bias 15043"]),
        (["complete", "-p", "a", "--stop", ""], ["stop string"]),
        (["complete", "-p", "a", "--temp", "nan"], ["--temp nan"]),
        (["complete", "-p", "a", "--temp", "inf"], ["--temp inf"]),
        (["complete", "-p", "a", "--presence-penalty", "inf"], ["--presence-penalty inf", "finite"]),
        (["complete", "-p", "a", "--repeat-penalty", "0"], ["--repeat-penalty 0"]),
        (["complete", "-p", "a", "--seed", str(2**64)], [f"--seed {2**64}", str(2**64 - 1)]),
        (["complete", "-p", "a", "-n", "-5"], ["--predict -5"]),
        (["complete", "-p", "a", "-t", "100000"], ["--threads 100000", "512"]),
        (["complete", "-p", "a", "-c", str(2**40)], [f"--ctx-size {2**40}"]),
        (["complete", "-p", "a", "-b", "0"], ["--batch-size 0"]),
        (["complete", "-p", "a\udcffb"], ["--prompt", "UTF-8"]),
        (["complete", "-p", "a", "--stop", "\udcff"], ["--stop", "UTF-8"]),
        (["complete", "-f", "/no/such/file"], ["/no/such/file", "-f"]),
        (["complete", "-f", "/"], ["directory", "-f"]),
        (["chat"], ["no terminal", "-p TEXT"]),
    ],
    ids=lambda value: " ".join(value).encode("ascii", "replace").decode() if isinstance(value, list) else None,
)
def test_refused_before_anything_is_loaded(
    arguments: list[str],
    words: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = [] if "-m" in arguments or len(arguments) < 3 else ["-m", "no-such-model.gguf"]
    line = refused(capsys, monkeypatch, *arguments, *model)
    for word in words:
        assert word in line


@pytest.mark.parametrize("name", ["draft-simple", "draft-eagle3", "draft-dspark", "draft-mtp"])
def test_what_a_draft_file_is_is_asked_when_it_is_there(name: str) -> None:
    done = run("complete", "-p", "a", "-m", "no-such-model.gguf", "-md", "d.gguf", "--spec-type", name)
    assert "no-such-model.gguf does not exist" in error_line(done, ExitCode.MODEL)


def test_blanks_are_no_message() -> None:
    """That the model's file is there is looked at first; what is in it, later."""
    assert "no message" in error_line(run("chat", "-m", __file__, "-p", "  "), ExitCode.USAGE)


@pytest.mark.parametrize("name", ["complete", "chat"])
def test_debug_shows_the_traceback(name: str) -> None:
    done = run(name, "--debug", "-p", "a", "--top-p", "-1")
    assert done.returncode == 1
    assert b"Traceback" in done.stderr
    assert b"UsageError" in done.stderr


def test_no_prompt_at_a_terminal() -> None:
    with Terminal("complete", "-n", "4", module=FAKE) as terminal:
        code, said = terminal.end()
    assert code == ExitCode.USAGE
    assert said.decode().startswith("localspec: error: no prompt is given. ")
    assert said.count(b"\n") == 1


# Models


@pytest.fixture(scope="module")
def models(smol_tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good random model and some that cannot be used."""
    folder = tmp_path_factory.mktemp("models")
    TinyModel().write(folder / "good.gguf", smol_tokenizer)
    TinyModel(template="").write(folder / "base.gguf", smol_tokenizer)
    TinyModel(nan=True).write(folder / "nan.gguf", smol_tokenizer)
    return folder


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_models(kind: Damage, models: Path, tmp_path: Path) -> None:
    path = damage(models / "good.gguf", kind, tmp_path / "damaged.gguf")
    line = error_line(run("complete", "-m", str(path), "-p", "a", "-n", "2", *PLAIN), ExitCode.MODEL)
    assert "damaged.gguf" in line


def test_missing_model(tmp_path: Path) -> None:
    path = tmp_path / "модель ü" / "none.gguf"
    line = error_line(run("complete", "-m", str(path), "-p", "a"), ExitCode.MODEL)
    assert f"{path} does not exist" in line


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["complete", "-m", "nan.gguf"], ExitCode.MODEL, ["nan.gguf", "NaN"]),
        (["complete", "-m", "good.gguf", "-md", "nan.gguf"], ExitCode.MODEL, ["the draft model", "nan.gguf"]),
        (["complete", "-m", "good.gguf", "-md", "none.gguf"], ExitCode.MODEL, ["the draft model", "none.gguf"]),
        (["chat", "-m", "base.gguf"], ExitCode.MODEL, ["base.gguf", "no chat template", "localspec complete"]),
        (["complete", "-m", "good.gguf", "--spec-type", "draft-simple"], ExitCode.USAGE, ["draft-simple", "-md"]),
        (["complete", "-m", "good.gguf", "-md", "good.gguf", "--spec-type", "none"], ExitCode.USAGE, ["none", "-md"]),
        (["complete", "-m", "good.gguf", "--spec-type", "magic"], ExitCode.USAGE, ["magic", "ngram-simple"]),
        (["complete", "-m", "good.gguf", "--spec-corpus", "/no/such"], ExitCode.USAGE, ["--spec-corpus /no/such"]),
        (["complete", "-m", "good.gguf", "-ctv", "q8_0", "-fa", "off"], ExitCode.USAGE, ["-fa on", "-ctv"]),
        (["complete", "-m", "good.gguf", "-l", "99999999+1"], ExitCode.USAGE, ["99999999", "49152"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_models_that_do_not_fit(arguments: list[str], code: int, words: list[str], models: Path) -> None:
    paths = [str(models / word) if word.endswith(".gguf") else word for word in arguments]
    line = error_line(run(*paths, "-p", "a", "-n", "2", *PLAIN), code)
    for word in words:
        assert word in line
