"""What vLLM's metrics page tells of guesses: its answers do not."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from localspec.client.prometheus import parse
from localspec.client.site import Site
from localspec.errors import LocalspecError
from localspec.types import SpecStats

_RUNNING = "num_requests_running"
_DRAFTS, _DRAFTED, _ACCEPTED = (
    f"spec_decode_num_{name}_total" for name in ("drafts", "draft_tokens", "accepted_tokens")
)
_BY_POSITION = "spec_decode_num_accepted_tokens_per_pos_total"


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums over all models and engines of the server, by name; accepted guesses by their place in a draft."""

    sums: Mapping[str, int] = field(default_factory=dict)
    accepted_at: tuple[int, ...] = ()

    def since(self, before: Counters) -> SpecStats:
        """What was guessed in between; nothing is known where other answers ran, too."""
        if self._others or before._others:
            return SpecStats()
        drafts, drafted, accepted = (
            self.sums.get(name, 0) - before.sums.get(name, 0) for name in (_DRAFTS, _DRAFTED, _ACCEPTED)
        )
        if drafted <= 0 or min(drafts, accepted) < 0:
            return SpecStats()
        earlier = (*before.accepted_at, *(0,) * len(self.accepted_at))
        held = tuple(now - then for now, then in zip(self.accepted_at, earlier, strict=False))
        return SpecStats(drafted_steps=drafts, draft_n=drafted, accepted=accepted, accepted_at=held)

    @property
    def _others(self) -> bool:
        """Before our request and after it nothing may run."""
        return self.sums.get(_RUNNING, 0) > 0


def read(site: Site) -> Counters:
    """As they stand now; empty where the server has none."""
    page = ""
    with suppress(LocalspecError):
        page = site.page("/metrics")
    sums: dict[str, int] = {}
    places: dict[int, int] = {}
    for sample in parse(page):
        name = sample.name.rpartition(":")[2]
        if name in (_RUNNING, _DRAFTS, _DRAFTED, _ACCEPTED) and 0 <= sample.value < 2**53:
            sums[name] = sums.get(name, 0) + int(sample.value)
        place = sample.label("position") or ""
        if name == _BY_POSITION and place.isdecimal() and 0 <= sample.value < 2**53:
            places[int(place)] = places.get(int(place), 0) + int(sample.value)
    return Counters(sums, tuple(places[at] for at in range(len(places)) if at in places))
