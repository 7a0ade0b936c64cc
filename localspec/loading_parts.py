"""What the two ways to load an engine have in common: `localspec.llamacpp_loading` and `localspec.torch_loading`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from localspec.backends.base import Target
from localspec.drafter_making import Made
from localspec.engine_options import EngineOptions
from localspec.torch_drafters import ForTarget
from localspec.types import Exact, ModelLoad

#: Called with what is being loaded and the share that is done, 0…1; returning False gives up.
Progress = Callable[[str, float], bool]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be loaded, and who is told of it.

    Args:
        kind: the drafter that the file or folder of ``options.draft`` is.
        carries: whether layers for multi-token prediction are the target's own, not those of a file beside it.
        warn: takes a line for the user.
    """

    options: EngineOptions
    kind: str | None
    carries: bool
    progress: Progress
    warn: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LoadedTarget:
    """A target, how it was loaded, and the chat template in its file."""

    target: Target
    load: ModelLoad
    about: ForTarget
    template: str | None
    exact: Exact | None = None


class Side(Protocol):
    """A backend, as far as loading goes: the target first."""

    name: str

    def target(self) -> LoadedTarget:
        """Raises as `localspec.load`."""
        ...

    def drafter(self, kind: str) -> Made:
        """The drafter that the target's own layers or the file of ``-md`` are. Raises as `localspec.load`."""
        ...
