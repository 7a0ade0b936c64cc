"""What a model in torch takes of memory, against what was planned."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")

from localspec.backends.torch.llama import read_header_and_shape
from localspec.backends.torch.memory import memory_plan
from localspec.errors import OutOfMemory
from localspec.loading import load
from localspec.torch_options import count_weights
from tests.real.support import exact_options
from tests.support.gguf_files import TinyModel, TokenizerKeys

ROOT = Path(__file__).resolve().parents[2]
N_CTX, ROWS, OUTPUTS = 1024, 256, 17
#: Fills a context in pieces and reads a tree, in a process that has used all libraries before; says by how many bytes
#: its memory grew at most.
GROWTH = f"""
import sys, torch
from pathlib import Path
from localspec.backends.base import Work
from localspec.backends.fake import FakeVocab
from localspec.backends.torch.llama import TorchLlama
from localspec.backends.torch.target import TorchTarget
from localspec.spec.tree import TokenTree

def bytes_of(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(key)).split()[1])

def run(path):
    model = TorchLlama.of_file(path, n_ctx={N_CTX})
    target = TorchTarget(model, FakeVocab(9), n_ctx={N_CTX}, max_rows={ROWS}, max_outputs={OUTPUTS})
    seq, left = target.open(), {N_CTX} - {OUTPUTS}
    while left:
        n = min(left, {ROWS})
        target.forward([Work.prompt(seq, [5] * n)])
        target.commit(seq, range(n))
        left -= n
    parents = (-1, *[0] * ({OUTPUTS} - 1))
    target.forward([Work(seq, TokenTree.grown(range({OUTPUTS}), parents, [1.0] * {OUTPUTS}, [""] * {OUTPUTS}))])

torch.set_num_threads(1)
run(Path(sys.argv[1]))
before = bytes_of("VmRSS:")
run(Path(sys.argv[2]))
print(bytes_of("VmHWM:") - before)
"""


@pytest.fixture(scope="module")
def tiny(smol_tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(n_ctx=100_000_000).write(
        tmp_path_factory.mktemp("memory") / "tiny.gguf", smol_tokenizer.first(300)
    )


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_is_as_planned(smol: Path, smol_f32: Path, tiny: Path) -> None:
    for path in (smol, smol_f32):
        command = [sys.executable, "-c", GROWTH, str(tiny), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True, timeout=300)
        _, shape = read_header_and_shape(path)
        plan = memory_plan(shape, 4 * count_weights(path), n_ctx=N_CTX, rows=ROWS, outputs=OUTPUTS)
        assert int(done.stdout) == pytest.approx(plan.total, rel=0.05)


def test_what_cannot_fit_is_told_before_it_is_read(tiny: Path) -> None:
    with pytest.raises(OutOfMemory, match=r"tiny\.gguf needs \d+\.\d GB in torch"):
        load(exact_options(tiny, backend="torch", flash_attn="auto", n_ctx=0, spec_types=()))
