"""Model files as fixtures. A test that uses one is marked ``real`` by that alone."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest

from tests.support import real_models
from tests.support.gguf_files import TinyModel, TokenizerKeys

TESTS = Path(__file__).parent
#: The folders whose files take longest, the longest first.
LONGEST = ("real", "tui", "tools", "cli", "server", "host")
#: Of SmolLM2's 30 and Gemma's 18, where the first ones are enough. The last of these is the first of Gemma's that
#: looks back further than its window.
LAYERS = 6


def pytest_configure() -> None:
    _heed_signals()
    # Tests run side by side, so threads of a pass often wait for one that another worker keeps from running. Spinning
    # meanwhile made what runs on two threads take four times the CPU time. Read when llama.cpp is loaded, not later.
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    # Triton's kernels are interpreted on the CPU. Read when Triton is imported, not later; for the tests marked gpu it
    # has to be 0.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    # By default garbage is looked for after every 700 objects: a tenth of what the screen's tests took.
    gc.set_threshold(20_000, 20, 50)


def pytest_runtest_setup() -> None:
    _heed_signals()


def _heed_signals() -> None:
    """What runs in the background, or under nohup, is started with signals ignored, and a command that ran in this
    process has left them so; commands under test would inherit that."""
    usual = (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGTERM, signal.SIG_DFL),
    )
    for number, handler in usual:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    for item in items:
        # Every fixture here rests on `smol` or `gemma`, and this list holds indirect ones too.
        if {"smol", "gemma"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.real)


def pytest_collection_finish() -> None:
    """What there is by now stays to the end, and nobody has to look through it for garbage again and again."""
    gc.collect()
    gc.freeze()


def _turn(item: pytest.Item) -> int:
    """The longest files come first, so that workers that take a file each end together."""
    folder = item.path.relative_to(TESTS).parts[0]
    return LONGEST.index(folder) if folder in LONGEST else len(LONGEST)


@pytest.fixture(scope="session")
def smol() -> Path:
    """SmolLM2-135M-Instruct Q4_1: chat template, 49,152 tokens, context 8,192."""
    return real_models.smol()


@pytest.fixture(scope="session")
def smol_f32(smol: Path) -> Path:
    """The same model with its weights in F32: little rounding, so logic faults show (540 MB)."""
    return real_models.smol_in("f32")


@pytest.fixture(scope="session")
def beginning(smol: Path) -> Path:
    """The first `LAYERS` of the same model, their weights as they are."""
    return real_models.smol_beginning(LAYERS)


@pytest.fixture(scope="session")
def beginning_f32(smol: Path) -> Path:
    """The same layers in F32: where the whole model would find no more faults, in a third of the time."""
    return real_models.smol_beginning(LAYERS, "f32")


@pytest.fixture(scope="session")
def gemma() -> Path:
    """Gemma-3-270M Q4_K_M: no chat template, 262,144 tokens, sliding window 512."""
    return real_models.gemma()


@pytest.fixture(scope="session")
def gemma_beginning(gemma: Path) -> Path:
    """Its first `LAYERS`, their weights as they are."""
    return real_models.gemma_beginning(LAYERS)


@pytest.fixture(scope="session")
def smol_tokenizer(smol: Path) -> TokenizerKeys:
    """SmolLM2's tokenizer, to write tiny models with: ``TinyModel(...).write(path, smol_tokenizer)``."""
    return TokenizerKeys.read(smol)


@pytest.fixture(scope="session")
def random_draft(smol_tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A draft model for SmolLM2 that is almost always wrong."""
    return TinyModel().write(tmp_path_factory.mktemp("models") / "random.gguf", smol_tokenizer)
