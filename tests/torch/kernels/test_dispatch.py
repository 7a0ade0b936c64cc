"""Where kernels are chosen: Triton's on cards that have them, torch's elsewhere, with one line where that is a loss."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")

import torch

from localspec.backends.torch.kernels import dispatch, gated, jit
from localspec.backends.torch.kernels.dispatch import PLAIN, TRITON, choose

CUDA = torch.device("cuda")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A card that is said to be there."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")
    monkeypatch.setattr(jit, "triton", SimpleNamespace())
    monkeypatch.setattr(dispatch, "_failure", lambda try_out: "")
    return monkeypatch


def test_a_processor_runs_what_torch_has_and_says_nothing() -> None:
    assert choose(torch.device("cpu")) == dispatch.Choice(PLAIN)


def test_a_card_runs_triton(card: Any) -> None:
    assert choose(CUDA) == dispatch.Choice(TRITON)


def test_without_triton_one_line_says_so(card: Any) -> None:
    card.setattr(jit, "triton", None)
    choice = choose(CUDA)
    assert choice.ops is PLAIN
    assert choice.note.startswith("kernels of torch instead of Triton's: Triton is not installed (pip install")


def test_an_old_card_is_named(card: Any) -> None:
    card.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert "a card is older" in choose(CUDA).note


def test_what_cannot_be_compiled_is_told_in_one_line(card: Any) -> None:
    card.undo()

    def broken() -> None:
        raise RuntimeError("Failed to find C compiler.\nPlease specify it.")

    assert dispatch._failure(broken) == "Triton cannot compile here (Failed to find C compiler.)"
    assert dispatch._failure(lambda: None) == ""


def test_references_run_where_triton_cannot_be_imported() -> None:
    code = """
import sys
sys.modules["triton"] = None
import torch
from localspec.backends.torch.kernels.dispatch import choose
print(choose(torch.device("cpu")).ops.gated(*torch.ones(2, 1, 4)).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(gated.gated_plainly(*torch.ones(2, 1, 4)).tolist())
