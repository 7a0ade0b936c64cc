"""What a chat tells whoever keeps it."""

from __future__ import annotations

from typing import Protocol

from localspec.types import Finished, GenerationRequest


class Listener(Protocol):
    """Whoever keeps what is said. Nothing may be raised: a turn goes on whatever becomes of its copy."""

    def asked(self, kept: int, question: str) -> None:
        """``question`` is being answered after the first ``kept`` turns of the conversation."""

    def answered(self, request: GenerationRequest, finished: Finished | None) -> None:
        """The last two turns of the conversation are that question and its answer. ``finished`` is ``None`` if it broke
        off without an end."""

    def changed(self) -> None:
        """The conversation is another one, or shorter, or has another system message; or the question asked last
        brought nothing."""
