"""Requests, and what an engine makes of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from localspec.types import Event, Failed, Finished, GenerationRequest, Message, SamplingParams, SpecParams, Tokens

#: As the command line has it by default.
USUAL = GenerationRequest(
    messages=(Message("user", "hello"),),
    max_tokens=12,
    sampling=SamplingParams(seed=5),
    spec=SpecParams(depth=16),
)


def drawn(**changes: Any) -> GenerationRequest:
    """The usual request with other sampling."""
    return replace(USUAL, sampling=replace(USUAL.sampling, **changes))


def text(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Tokens))


def end(events: list[Event]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished), last
    return last


def failure(events: list[Event]) -> Failed:
    last = events[-1]
    assert isinstance(last, Failed), last
    return last
