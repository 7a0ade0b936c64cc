"""Guesses at what was meant."""

from __future__ import annotations

import pytest

from localspec.options.suggest import closest

WORDS = ("temp", "chat-template", "model", "models-dir", "mmap", "top-k", "spec-draft-n-max", "ctx-size")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("temprature", "temp"),
        ("templ", "temp"),
        ("models-dri", "models-dir"),  # nearly the same goes before a common beginning
        ("models", "model"),
        ("spec-dra", "spec-draft-n-max"),
        ("ctx-sise", "ctx-size"),
        ("tmep", "temp"),
        ("to", None),  # too short for a beginning
        ("zzz", None),
    ],
)
def test_closest(word: str, meant: str | None) -> None:
    assert closest(word, WORDS) == meant
