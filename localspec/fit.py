"""Where the layers of two models go, and how long the context is, where devices have no room for all (``--fit``).

Pure: sizes come from the headers of files, free memory from the devices. Times are not measured for that, they follow
from the bytes that a pass reads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from localspec.hub.sizes import human
from localspec.plan import Part, Plan, Seconds, Split, placed, split_of
from localspec.types import Placement

#: Bytes a second that a pass reads of memory: of a desktop's CPU and of its card. The split hangs on how they compare.
CPU_READS, DEVICE_READS = 50e9, 500e9
#: What each further row adds to a pass, as a share of the first: a CPU computes it, a device hardly feels it.
CPU_ROW, DEVICE_ROW = 0.1, 0.02
#: Contexts are multiples of this, as llama.cpp's are.
STEP = 256
#: What is on a device may be larger than planned by this factor before it is said.
TOO_MUCH = 1.1
#: Splits that are this much faster than another are told with it.
_FASTER = 1.05


@dataclass(frozen=True, slots=True)
class Device:
    """``free`` bytes, of which ``margin`` are to stay free."""

    name: str
    free: int
    margin: int

    @property
    def room(self) -> int:
        return max(self.free - self.margin, 0)


@dataclass(frozen=True, slots=True)
class Model:
    """``flag``: how its layers are asked for; ``sizes``: context → bytes by layer, in the order in which they are
    moved; ``buffers``: context → what its passes take of each device that it may use; these are ``on``, places among
    all devices; ``read``: bytes of weights that a pass over a row reads, and ``read_on_cpu`` there, if that is not the
    same; ``fixed``: how many layers the user wants there."""

    flag: str
    sizes: Callable[[int], tuple[int, ...]]
    buffers: Callable[[int], int]
    read: int
    on: tuple[int, ...] = (0,)
    fixed: int | None = None
    read_on_cpu: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can be chosen how many of its layers are moved."""
        return self.fixed is None and bool(self.on)

    def part(self, n_ctx: int) -> Part:
        """With a cache for so many tokens."""
        here = self.read if self.read_on_cpu is None else self.read_on_cpu
        cpu, device = _seconds(here / CPU_READS, CPU_ROW), _seconds(self.read / DEVICE_READS, DEVICE_ROW)
        return Part(self.sizes(n_ctx), cpu, device, self.on, self.fixed if self.on else 0)


def _seconds(first: float, row: float) -> Seconds:
    return lambda rows: first * (1 + row * (rows - 1))


@dataclass(frozen=True, slots=True)
class Share:
    """Of one model: how many ``layers`` go to devices, how many of them to ``each`` that it may use, and ``bytes`` of
    these by name, with buffers."""

    layers: int
    each: tuple[int, ...]
    bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Fit:
    """What is to be loaded: the context, and a share for each model; ``told``: a line for the user."""

    n_ctx: int
    shares: tuple[Share, ...]
    told: str


def fit(models: Sequence[Model], devices: Sequence[Device], n_ctx: int, trained: int, least: int) -> Fit | None:
    """A target, or a target and a draft model, on devices.

    All of it stays as it is (``None``) where there is room for all, and where layers that are fixed have none. A
    context that was not asked for (``n_ctx`` 0) is as long as the target was ``trained`` for; it is shortened first, to
    no less than ``least`` tokens, if all layers then find room. Else it is ``least``, and layers go where they make the
    most tokens a second.
    """
    least = -(-least // STEP) * STEP
    whole = _Fit(models, devices, n_ctx or trained)
    if whole.has_room_for_all:
        return None
    shorter = _Fit(models, devices, n_ctx or min(least, trained))
    if not n_ctx and shorter.has_room_for_all:
        lengths = range(shorter.n_ctx, trained, STEP)
        too_long = bisect_left(lengths, True, key=lambda n: not _Fit(models, devices, n).has_room_for_all)
        return _Fit(models, devices, lengths[too_long - 1]).all_of_it()
    return shorter.split(shortened=shorter.n_ctx < whole.n_ctx)


class _Fit:
    """With one context."""

    def __init__(self, models: Sequence[Model], devices: Sequence[Device], n_ctx: int) -> None:
        self.n_ctx = n_ctx
        self._models, self._devices = models, devices
        self._parts = [one.part(n_ctx) for one in models]
        # Passes of a model use its devices even for layers that are on the CPU.
        buffers = [sum(one.buffers(n_ctx) for one in models if at in one.on) for at in range(len(devices))]
        self._rooms = [max(one.room - taken, 0) for one, taken in zip(devices, buffers, strict=True)]

    @property
    def has_room_for_all(self) -> bool:
        return self._placed([part.choices[-1] for part in self._parts]) is not None

    def all_of_it(self) -> Fit:
        """Where there is room for all, and none with a longer context."""
        return self._fit([part.choices[-1] for part in self._parts], [f"-c {self.n_ctx}"], "all layers find room so")

    def split(self, *, shortened: bool) -> Fit | None:
        """``None``: what is fixed finds no room."""
        if self._placed([part.choices[0] for part in self._parts]) is None:
            return None
        target, draft = self._parts[0], self._parts[1] if len(self._parts) > 1 else None
        plan = Plan.of(target, draft, self._rooms)
        moved = (plan.best.target, plan.best.draft)[: len(self._parts)]
        flags = [f"-c {self.n_ctx}"] * shortened + [self._layers(plan.best)]
        if plan.best.speed > _FASTER * plan.usual.speed:
            gain, than = plan.best.speed / plan.usual.speed, self._layers(plan.usual)
        else:
            gain, than = plan.best.speed / split_of(target, draft, (0, 0)).speed, "the CPU alone"
        reason = f"{gain:.1f} times as fast to be expected as {than}" if any(moved) else "not a layer finds room"
        return self._fit(moved, flags, reason)

    def _placed(self, moved: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
        return placed(list(zip(self._parts, moved, strict=True)), self._rooms)

    def _layers(self, split: Split) -> str:
        """The flags for it."""
        counts = zip(self._models, (split.target, split.draft), strict=False)
        return " ".join(f"{model.flag} {count}" for model, count in counts if model.is_open)

    def _fit(self, moved: Sequence[int], flags: Sequence[str], reason: str) -> Fit:
        counts = self._placed(moved)
        assert counts is not None, "what was planned has room"
        shares = [
            Share(part_moved, each, self._bytes(model, part, each))
            for model, part, part_moved, each in zip(self._models, self._parts, moved, counts, strict=True)
        ]
        several = [f"-ts {','.join(map(str, shares[0].each))}"] * (len(shares[0].each) > 1)
        return Fit(
            self.n_ctx, tuple(shares), f"fit: {' '.join([*flags, *several])}: {', '.join(self._full(shares))}; {reason}"
        )

    def _bytes(self, model: Model, part: Part, each: Sequence[int]) -> dict[str, int]:
        """By device, what its layers and its passes take."""
        sizes = iter(part.sizes[: sum(each)][::-1])
        return {
            self._devices[at].name: sum(islice(sizes, count)) + model.buffers(self.n_ctx)
            for at, count in zip(model.on, each, strict=True)
        }

    def _full(self, shares: Sequence[Share]) -> Iterator[str]:
        """How full the devices are going to be."""
        for device in self._devices:
            taken = sum(share.bytes.get(device.name, 0) for share in shares)
            yield f"{human(taken)} of {human(device.free)} free on {device.name}"


def unplanned(role: str, share: Share, placement: Sequence[Placement]) -> list[str]:
    """A line for the user for each device on which a model that was loaded takes more than was planned."""
    taken = {one.device: one.bytes_weights + one.bytes_cache + one.bytes_buffers for one in placement}
    return [
        f"fit: the {role} takes {human(taken[name])} of {name}, {human(planned)} were planned: should memory run out,"
        " give a larger --fit-target, or fewer layers (-ngl, -ngld)"
        for name, planned in share.bytes.items()
        if taken.get(name, 0) > TOO_MUCH * planned
    ]
