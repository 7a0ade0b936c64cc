"""What a server told at one moment, read from its own words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from localspec.errors import NetworkError
from localspec.types import SpecStats

_SAMPLE = re.compile(r"(?:\w+:)?(\w+)(?:\{([^}]*)\})?\s+(\S+)(?:\s+\d+)?")
_POSITION = re.compile(r'position="(\d+)"')
_PER_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"


@dataclass(frozen=True, slots=True)
class Slot:
    """One place for an answer. ``task`` tells two answers apart, ``tokens`` are in its cache, ``decoded`` came out."""

    number: int
    busy: bool
    task: int
    n_ctx: int
    tokens: int
    decoded: int


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums since the server started; seconds and tokens. ``waiting`` requests have no slot yet."""

    prompt_n: int
    cache_n: int
    prompt_s: float
    predicted_n: int
    predicted_s: float
    waiting: int
    stats: SpecStats

    def since(self, before: Counters) -> Counters:
        """What came after ``before``; all of it if the server was started anew in between."""
        if self.prompt_n < before.prompt_n or self.predicted_n < before.predicted_n:
            return self
        mine, old = self.stats, before.stats
        width = max(len(mine.accepted_at), len(old.accepted_at))
        return replace(
            self,
            prompt_n=self.prompt_n - before.prompt_n,
            cache_n=self.cache_n - before.cache_n,
            prompt_s=self.prompt_s - before.prompt_s,
            predicted_n=self.predicted_n - before.predicted_n,
            predicted_s=self.predicted_s - before.predicted_s,
            stats=SpecStats(
                drafted_steps=mine.drafted_steps - old.drafted_steps,
                draft_n=mine.draft_n - old.draft_n,
                accepted=mine.accepted - old.accepted,
                accepted_at=tuple(
                    new - was
                    for new, was in zip(_filled(mine.accepted_at, width), _filled(old.accepted_at, width), strict=True)
                ),
            ),
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """One look. ``at``: seconds of a clock that only runs forward; ``slots`` and ``counters`` are ``None`` where the
    server does not tell them, ``notes`` say why."""

    at: float
    model: str
    slots: tuple[Slot, ...] | None
    counters: Counters | None
    notes: tuple[str, ...] = ()


def _filled(counts: Sequence[int], width: int) -> tuple[int, ...]:
    return (*counts, *(0,) * (width - len(counts)))


def counters_of(text: str) -> Counters:
    """From the Prometheus text of ``/metrics``; names may have any prefix.

    Raises:
        NetworkError: it is none.
    """
    values: dict[str, float] = {}
    accepted_at: dict[int, int] = {}
    for line in text.splitlines():
        sample = None if line.startswith("#") else _SAMPLE.fullmatch(line.strip())
        if sample is None:
            continue
        name, labels, number = sample.groups()
        position = _POSITION.search(labels or "")
        if name == _PER_POSITION and position is not None:
            accepted_at[int(position[1])] = int(_number(number))
        else:
            values[name] = _number(number)
    if "tokens_predicted_total" not in values:
        raise _foreign("/metrics")
    return Counters(
        prompt_n=int(values.get("prompt_tokens_total", 0)),
        cache_n=int(values.get("prompt_tokens_cached_total", 0)),
        prompt_s=values.get("prompt_seconds_total", 0.0),
        predicted_n=int(values["tokens_predicted_total"]),
        predicted_s=values.get("tokens_predicted_seconds_total", 0.0),
        waiting=int(values.get("requests_deferred", 0)),
        stats=SpecStats(
            drafted_steps=int(values.get("spec_decode_num_drafts_total", 0)),
            draft_n=int(values.get("spec_decode_num_draft_tokens_total", 0)),
            accepted=int(values.get("spec_decode_num_accepted_tokens_total", 0)),
            accepted_at=tuple(accepted_at.get(place, 0) for place in range(max(accepted_at, default=-1) + 1)),
        ),
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _foreign("/metrics") from None


def slots_of(data: object) -> tuple[Slot, ...]:
    """From the JSON of ``/slots``.

    Raises:
        NetworkError: it is none.
    """
    if not isinstance(data, list):
        raise _foreign("/slots")
    return tuple(_slot(one) for one in data)


def _slot(one: object) -> Slot:
    if not isinstance(one, Mapping):
        raise _foreign("/slots")
    try:
        return Slot(
            number=int(one["id"]),
            busy=bool(one["is_processing"]),
            task=int(one.get("id_task", -1)),
            n_ctx=int(one["n_ctx"]),
            tokens=int(one.get("n_prompt_tokens", 0)),
            decoded=int(_next_token(one).get("n_decoded", 0)),
        )
    except (KeyError, TypeError, ValueError):
        raise _foreign("/slots") from None


def _next_token(one: Mapping[str, Any]) -> Mapping[str, Any]:
    """An object in older servers, a list of one in newer; nothing before the first task."""
    told = one.get("next_token") or {}
    told = told[0] if isinstance(told, list) else told
    if not isinstance(told, Mapping):
        raise TypeError("next_token is no object")
    return told


def model_of(data: object) -> str:
    """The model's name from the JSON of ``/props``; nothing if there is none."""
    told = data if isinstance(data, Mapping) else {}
    name = told.get("model_alias") or told.get("model_path")
    return name.replace("\\", "/").rsplit("/", 1)[-1] if isinstance(name, str) else ""


def _foreign(path: str) -> NetworkError:
    return NetworkError(
        f"what the server says at {path} is not understood", hint="Give the address of a llama.cpp or localspec server."
    )
