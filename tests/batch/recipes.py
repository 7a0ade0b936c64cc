"""What an engine's process builds for a batch; its front end imports no more than this."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.engine import Engine
    from localspec.loading import EngineOptions


def fake(options: EngineOptions, *, progress: Callable[[str, float], bool]) -> Engine:
    from tests.batch.factories import engine

    return engine(options)
