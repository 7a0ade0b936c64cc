"""What a server says of itself at one moment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localspec.client.prometheus import Sample

_BY_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"


@dataclass(frozen=True, slots=True)
class Slot:
    """One sequence of the server: which request it works on or worked on last, ``cached`` tokens of the conversation,
    and ``decoded`` ones of its answer so far, which are among them."""

    id: int
    task: int | None
    n_ctx: int
    busy: bool
    cached: int
    decoded: int
    speculative: bool

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Slot:
        """From an object of ``/slots``; older servers have one object where newer ones have a list of one."""
        after = found.get("next_token")
        after = after[0] if isinstance(after, list) and after else after
        decoded = after.get("n_decoded") if isinstance(after, dict) else None
        return cls(
            id=_int(found.get("id")),
            task=found["id_task"] if isinstance(found.get("id_task"), int) else None,
            n_ctx=_int(found.get("n_ctx")),
            busy=found.get("is_processing") is True,
            cached=_int(found.get("n_prompt_tokens")),
            decoded=_int(decoded),
            speculative=found.get("speculative") is True,
        )


def _int(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


@dataclass(frozen=True, slots=True)
class Reading:
    """All of it, at ``at`` seconds of some clock.

    ``ready``: it has its model; ``slots`` and ``metrics`` (without their prefix) are ``None`` where the server does not
    tell them, and then ``missing`` says why. ``accepted_at`` counts accepted guesses by depth.
    """

    at: float
    ready: bool
    model: str = ""
    build: str = ""
    slots: tuple[Slot, ...] | None = None
    metrics: Mapping[str, float] | None = None
    accepted_at: tuple[float, ...] = ()
    missing: tuple[str, ...] = field(default=())

    def metric(self, name: str) -> float | None:
        return None if self.metrics is None else self.metrics.get(name)


def slots_of(found: object) -> tuple[Slot, ...] | None:
    """From the answer of ``/slots``; ``None`` if it is none."""
    if not isinstance(found, list):
        return None
    return tuple(Slot.of(one) for one in found if isinstance(one, dict))


def metrics_of(samples: Iterable[Sample]) -> tuple[dict[str, float], tuple[float, ...]]:
    """Metrics by name, without what a server puts before it (``llamacpp:``), and accepted guesses by depth."""
    plain: dict[str, float] = {}
    by_depth: dict[int, float] = {}
    for one in samples:
        if not math.isfinite(one.value):
            continue
        name = one.name.rpartition(":")[2]
        if name == _BY_POSITION and (position := one.label("position") or "").isdecimal():
            by_depth[int(position)] = one.value
        elif not one.labels:
            plain[name] = one.value
    return plain, _in_order(by_depth)


def _in_order(by_depth: Mapping[int, float]) -> tuple[float, ...]:
    """From the first depth on, as far as there is one after the other."""
    found: list[float] = []
    while len(found) in by_depth:
        found.append(by_depth[len(found)])
    return tuple(found)


def model_of(props: object) -> tuple[str, str]:
    """Name of the model and build of the server, from ``/props``; what is not told is empty."""
    told = props if isinstance(props, dict) else {}
    names: Sequence[Any] = (told.get("model_alias"), told.get("model_path"))
    name = next((one for one in names if isinstance(one, str) and one), "")
    build = told.get("build_info")
    return name, build if isinstance(build, str) else ""
