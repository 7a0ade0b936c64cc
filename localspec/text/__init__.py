"""From tokens to text: streaming detokenizer, stop strings, end tokens."""

from __future__ import annotations

from localspec.text.stream import Cut, TextStream

__all__ = ["Cut", "TextStream"]
