"""From logits to the request's distribution, and from that to a token."""

from __future__ import annotations

from localspec.sampling.dry import Breakers
from localspec.sampling.law import Law
from localspec.sampling.noise import Stream, gumbel, uniform
from localspec.sampling.residual import ResidualDraw
from localspec.sampling.state import SamplerState

__all__ = [
    "Breakers",
    "Law",
    "ResidualDraw",
    "SamplerState",
    "Stream",
    "gumbel",
    "uniform",
]
