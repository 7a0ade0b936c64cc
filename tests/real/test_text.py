"""Text of a real model where characters are several tokens and guesses end within them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.engine import Engine
from localspec.types import GenerationRequest, SamplingParams, SpecParams, Tokens
from tests.real.support import PLAIN, answer, running

FACE = "😀"
WISH = GenerationRequest(
    prompt=FACE * 10, sampling=SamplingParams(temperature=0.0, seed=1, ignore_eos=True), max_tokens=12
)


@pytest.fixture(scope="module")
def twins(smol: Path) -> Iterator[Engine]:
    with running(smol, smol) as engine:
        yield engine


def test_the_character_is_several_tokens(twins: Engine) -> None:
    assert len(twins.target.vocab.tokenize(FACE)) > 1
    assert FACE in answer(twins, replace(WISH, spec=PLAIN)).text


@pytest.mark.parametrize("depth", range(9))
def test_a_stream_has_whole_characters_only(twins: Engine, depth: int) -> None:
    spec = SpecParams(depth=depth, nodes=max(depth, 1), mode="fixed")
    for limit in (1, 2, 3, 12):
        got = answer(twins, replace(WISH, spec=spec, max_tokens=limit))
        steps = [event.text for event in got.events if isinstance(event, Tokens)]
        data = b"".join(map(twins.target.vocab.piece, got.ids))
        assert len(got.ids) == limit
        assert "".join(steps) == got.text == data.decode(errors="ignore")
        assert "\ufffd" not in got.text


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_a_stop_that_is_such_a_character(twins: Engine, depth: int) -> None:
    spec = SpecParams(depth=depth, nodes=max(depth, 1), mode="fixed")
    got = answer(twins, replace(WISH, spec=spec, stop=(FACE,)))
    assert (got.text, got.finished.reason, got.finished.stop) == ("", "stop", FACE)
