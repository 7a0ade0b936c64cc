"""llama.cpp's log goes where it is sent, and nothing of it to the terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PRINTS_WHILE_IT_LOADS = """
import sys, threading, time
from pathlib import Path
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.types import GenerationRequest

going = threading.Event()
count = 0

def print_lines():
    global count
    while not going.is_set() or count < 50:
        print(f"line {count}", flush=True)
        count += 1
        time.sleep(0.002)

thread = threading.Thread(target=print_lines)
thread.start()
path, log = map(Path, sys.argv[1:])
for _ in range(2):
    model = ModelOptions(path, threads=1)
    options = EngineOptions(model, n_ctx=256, spec_types=("none",), log_file=log)
    with load(options) as engine:
        for _ in engine.submit(GenerationRequest(tokens=(500, 501), max_tokens=2)):
            pass
going.set()
thread.join()
print(f"{count} lines", flush=True)
"""

TWO_MODELS = """
import gc, sys
from pathlib import Path
import llama_cpp
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.types import GenerationRequest

def engine():
    return load(EngineOptions(ModelOptions(Path(sys.argv[1]), threads=1), n_ctx=256, spec_types=("none",)))

first = engine()
second = engine()
second.close()
del second
gc.collect()
answered = [type(event).__name__ for event in first.submit(GenerationRequest(tokens=(500, 501), max_tokens=2))]
first.close()
del first
gc.collect()
llama_cpp.llama_model_load_from_file(b"/nowhere.gguf", llama_cpp.llama_model_default_params())
print(answered[-1])
"""


def run(code: str, *args: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, check=False, timeout=100
    )


def test_nothing_is_lost_and_nothing_is_added(gemma: Path, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "native.log"
    log.parent.mkdir()
    done = run(PRINTS_WHILE_IT_LOADS, gemma, log)
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    assert last == f"{len(lines)} lines"
    assert lines == [f"line {i}" for i in range(len(lines))]
    assert len(lines) >= 50
    logged = log.read_text(encoding="utf-8").splitlines()
    assert any("loaded meta data" in line for line in logged)
    # Two loads, each logged once.
    assert sum("loaded meta data" in line for line in logged) == 2


def test_a_model_outlives_the_log_of_another(random_draft: Path) -> None:
    done = run(TWO_MODELS, random_draft)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "Finished", "")
