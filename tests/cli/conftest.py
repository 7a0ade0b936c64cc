from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither this process nor one that it starts sees the user's files and variables."""
    monkeypatch.setenv("XDG_CONFIG_HOME", os.devnull)
    for name in os.environ:
        if name == "HF_TOKEN" or name.startswith(("LOCALSPEC_", "LLAMA_ARG_")):
            monkeypatch.delenv(name)
