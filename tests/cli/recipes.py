"""What an engine's process builds. Its front end knows no more of it than this: what a model takes is imported there,
as it is where models are real, and hundreds of tests start both."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.engine import Engine
    from localspec.loading import EngineOptions


def slow(options: object, *, progress: Callable[[str, float], bool]) -> Engine:
    from tests.cli.factories import engine

    return engine(options, progress=progress)


def by_name(options: EngineOptions, *, progress: Callable[[str, float], bool]) -> Engine:
    from tests.cli.repl.factories import engine

    return engine(options, progress=progress)
