"""One answer's numbers while it runs."""

from __future__ import annotations

import pytest

from localspec.server.choice import Choice
from localspec.server.wishes import Wish
from localspec.types import GenerationRequest, Started, Tokens


def test_the_time_of_the_prompt_is_all_of_it_but_the_wait() -> None:
    now = 100.0
    request = GenerationRequest(prompt="x")
    choice = Choice(0, request, Wish((request,), "m"), clock=lambda: now)
    now = 108.0  # the first pass is over by then
    choice.take(Started(1, 211, 0, seed=7, waited_s=2.0))
    now = 109.0
    choice.take(Tokens(1, "a", (), None))
    now = 120.0
    timings = choice.timings()
    assert timings["prompt_ms"] == pytest.approx(7000)
    assert timings["ttft_ms"] == pytest.approx(9000)
