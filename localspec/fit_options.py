"""From a plan of ``--fit`` back to options: what both backends do alike. Part of the composition root."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from localspec.backends.options import ModelOptions
from localspec.engine_options import EngineOptions, FitOptions
from localspec.errors import UsageError
from localspec.fit import Fit, Share, unplanned
from localspec.types import ModelLoad

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Fitted:
    """The options to load with, and what was planned for target and draft model, if anything was; ``packed``: with
    matrices that stay quantised, where a backend would not do so by itself."""

    options: EngineOptions
    plan: Fit | None = None
    packed: bool = False

    @classmethod
    def of(cls, options: EngineOptions, plan: Fit, trained: int, draft: ModelOptions | None) -> Fitted:
        """As planned for a target that was ``trained`` for so many tokens, and for ``draft`` if that has a share."""
        target = _with(options.target, plan.shares[0])
        planned = options.draft if draft is None else _with(draft, plan.shares[1])
        n_ctx = options.n_ctx if plan.n_ctx == trained else plan.n_ctx
        return cls(replace(options, n_ctx=n_ctx, target=target, draft=planned), plan)

    def unplanned(self, load: ModelLoad) -> list[str]:
        """A line for the user for each device of which a model that was loaded takes more than was planned."""
        shares = {} if self.plan is None else dict(zip(("target", "draft"), self.plan.shares, strict=False))
        share = shares.get(load.role)
        return [] if share is None else unplanned(load.role, share, load.placement)


def _with(model: ModelOptions, share: Share) -> ModelOptions:
    """As planned; layers that were given stay as they were."""
    layers = share.layers if model.gpu_layers is None else model.gpu_layers
    several = len(share.each) > 1 and share.layers > 0
    return replace(model, gpu_layers=layers, tensor_split=tuple(map(float, share.each)) if several else ())


def margins(wish: FitOptions, devices: Sequence[str]) -> list[int]:
    """Bytes that are to stay free of each of ``devices``.

    Raises:
        UsageError: margins for others than are there.
    """
    given = wish.margins
    if len(given) not in (1, len(devices)):
        raise UsageError(
            f"--fit-target has {len(given)} margins for {len(devices)} devices ({', '.join(devices)})",
            hint="Give one for all, or one for each, in this order.",
        )
    each = given if len(given) == len(devices) else [*given] * len(devices)
    return [margin * _MIB for margin in each]
