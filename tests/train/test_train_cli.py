"""The command, from its flags to its files; and what llama.cpp makes of these."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'localspec[torch]')")

from localspec import torch_drafters  # noqa: E402
from localspec.backends.base import Work as Pass  # noqa: E402
from localspec.backends.llamacpp import EagleHead, LlamaModel  # noqa: E402
from localspec.backends.torch.llama import TorchLlama  # noqa: E402
from localspec.cli import train as command  # noqa: E402
from localspec.errors import UsageError  # noqa: E402
from localspec.spec.tree import TokenTree  # noqa: E402
from localspec.train.drive import Job, drive  # noqa: E402
from localspec.train.eagle3 import Eagle3  # noqa: E402
from localspec.train.export import read_head, read_small  # noqa: E402
from localspec.train.head import HeadLearner  # noqa: E402
from localspec.train.inputs import Wish, source_of  # noqa: E402
from localspec.train.kinds import SmallKind  # noqa: E402
from localspec.train.learner import Learner  # noqa: E402
from localspec.train.notes import take_notes  # noqa: E402
from localspec.train.small import Small, SmallLearner  # noqa: E402
from localspec.train.texts import Texts  # noqa: E402
from tests.real.support import opened  # noqa: E402
from tests.support.gguf_files import TokenizerKeys  # noqa: E402
from tests.train.support import TARGET, Deaf, fewer_tokens  # noqa: E402

SHORT = ("--guessable", "300", "--outtype", "f32", "-t", "1", "--json")
TEXT = "A quick brown fox jumps over the lazy dog, and the dog does not mind. " * 20


@pytest.fixture(scope="module")
def folder(smol_tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target and a text."""
    folder = tmp_path_factory.mktemp("train")
    TARGET.write(folder / "target.gguf", fewer_tokens(smol_tokenizer))
    (folder / "text.txt").write_text(TEXT)
    return folder


@pytest.fixture(scope="module")
def head(folder: Path) -> tuple[Path, dict[str, object]]:
    """A head, whose training was killed once."""
    out = folder / "head.gguf"
    given = ["-m", str(folder / "target.gguf"), "--corpus", str(folder / "text.txt"), "-o", str(out)]
    line = [sys.executable, "-m", "localspec", "train", "eagle3", *given, *SHORT, "--tokens"]
    process = subprocess.Popen([*line, str(10**9)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    state = folder / "head.train" / "state.pt"
    while not state.exists() and process.poll() is None:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not out.exists()
    done = subprocess.run([*line, "8000"], capture_output=True, check=True)
    return out, json.loads(done.stdout)


def test_the_command_goes_on_after_a_kill(head: tuple[Path, dict[str, object]]) -> None:
    out, told = head
    assert told["finished"] is True
    assert told["drafter"] == str(out)
    curve, tokens = told["curve"], told["tokens"]
    assert isinstance(curve, list)
    assert isinstance(tokens, int)
    assert (curve[0]["tokens"], tokens >= 8000) == (0, True)


def texts(n_vocab: int) -> Texts:
    tokens = np.random.default_rng(2).integers(5, n_vocab, (1, 120)).astype(np.int32)
    return Texts(tokens, np.ones(tokens.shape, np.float32))


def guesses(learner: Learner, target: TorchLlama, given: Texts, layers: tuple[int, ...]) -> list[int]:
    """What is guessed first behind each token; -1: nothing."""
    with torch.no_grad():
        found: list[int] = learner.guesses(take_notes(target, given, layers).rows([0]))[0, 1:, 0].tolist()
    return found


def test_llama_cpp_guesses_what_a_head_learned(folder: Path, head: tuple[Path, dict[str, object]]) -> None:
    module = Eagle3.of(read_head(head[0]))
    target = TorchLlama.of_file(folder / "target.gguf")
    given = texts(target.shape.n_vocab)
    # Row t, which has read token t + 1, is the first to guess: token t + 2.
    ours = guesses(HeadLearner(module, target), target, given, module.reads)[1:]
    text = given.tokens[0].tolist()
    with opened(folder / "target.gguf", sequences=3) as native:
        model = EagleHead(
            LlamaModel(native.model.native, replace(native._options, path=head[0])), native._options, native
        )
        assert model.layers == module.reads
        seq = native.open()
        (rows,) = native.forward([Pass.prompt(seq, text[:-2], features=model.layers)])
        features = {layer: states.copy() for layer, states in rows.features.items()}
        lane, theirs = model.open(), list[int]()
        states = model.encode(lane, features)
        for start in range(0, len(text) - 2, 16):
            chain = TokenTree.chain(text[start + 1 : min(start + 17, len(text) - 1)])
            (rows,) = model.forward([Pass(lane, chain, rows_from=0, states=states[start : start + len(chain)])])
            theirs += [int(np.argmax(rows.logits(node))) for node in range(len(chain))]
            model.commit(lane, range(len(chain)))
        model.close_all()
    assert len(theirs) == len(ours)
    assert np.mean(np.array(ours) == np.array(theirs)) >= 0.99


def test_llama_cpp_guesses_what_a_draft_model_learned(folder: Path) -> None:
    out, source = folder / "draft.gguf", folder / "target.gguf"
    made = Job(SmallKind(32, 1, "f32"), source, out, folder / "draft.train", None, 3000, threads=1)
    drive(made, source_of(Wish(corpus=folder / "text.txt"), source), Deaf())
    shape, weights = read_small(out)
    module = Small(shape)
    module.load_state_dict(weights)
    given = texts(shape.n_vocab)
    ours = guesses(SmallLearner(module), TorchLlama.of_file(folder / "target.gguf"), given, ())
    text = given.tokens[0].tolist()
    theirs = list[int]()
    with opened(out) as native:
        seq = native.open()
        for start in range(0, len(text) - 1, 16):
            chain = TokenTree.chain(text[start : min(start + 16, len(text) - 1)])
            (rows,) = native.forward([Pass(seq, chain)])
            theirs += [int(np.argmax(rows.logits(node))) for node in range(len(chain))]
            native.commit(seq, range(len(chain)))
    assert len(theirs) == len(ours)
    assert np.mean(np.array(ours) == np.array(theirs)) >= 0.99


def test_without_torch_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_drafters, "find_spec", lambda _name: None)
    for body in (command.eagle3, command.draft):
        with pytest.raises(UsageError, match="localspec train runs on torch, which is not installed") as error:
            body({})
        assert error.value.hint == "pip install 'localspec[torch]'"
