"""From logits to the request's distribution, and from that to a token."""

from __future__ import annotations

from localspec.sampling.law import Law
from localspec.sampling.noise import Stream, gumbel, uniform
from localspec.sampling.params import check, parse_samplers
from localspec.sampling.residual import ResidualDraw
from localspec.sampling.state import SamplerState

__all__ = [
    "Law",
    "ResidualDraw",
    "SamplerState",
    "Stream",
    "check",
    "gumbel",
    "parse_samplers",
    "uniform",
]
