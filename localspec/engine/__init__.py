"""Sequences, the loop of verify steps, and what comes out of it."""

from __future__ import annotations

from localspec.engine.engine import Engine
from localspec.engine.handle import Handle

__all__ = ["Engine", "Handle"]
