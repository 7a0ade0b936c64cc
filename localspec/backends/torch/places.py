"""Where the layers of one model lie, when a card takes a part of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from localspec.backends.options import ModelOptions
from localspec.backends.torch.place import Gpu, Place

_BLOCK = re.compile(r"blk\.(\d+)\.")
TABLE = "token_embd."


@dataclass(frozen=True, slots=True)
class Places:
    """Layers from ``border`` on lie in ``last``, and so does what makes scores of the states behind them; the others
    lie in ``first``, with the table of tokens. Layers compute where they lie, and states move once, at the border.
    (Layers that lie on the CPU and go to the card for each pass would be a third kind of place, between the two.)"""

    first: Place
    last: Place
    border: int = 0

    @classmethod
    def whole(cls, place: Place) -> Self:
        """All in one."""
        return cls(place, place)

    @classmethod
    def of(cls, options: ModelOptions, gpu: Gpu | None, layers: int) -> Self:
        """As llama.cpp counts: of a model with so many ``layers`` the last ones go to the card, and what is behind them
        counts as one more. The table of tokens goes with the first layer."""
        place, wanted = Place.of(options, gpu), options.gpu_layers
        if not place.card or wanted is None or not 0 < wanted <= layers:
            return cls.whole(place)
        return cls(Place(threads=options.threads), place, layers + 1 - wanted)

    @property
    def is_divided(self) -> bool:
        return self.border > 0

    @property
    def each(self) -> tuple[Place, ...]:
        """The places, in their order."""
        return (self.first, self.last) if self.is_divided else (self.last,)

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """For the record of the load."""
        if not self.is_divided:
            return self.last.settings
        both = zip(self.first.settings, self.last.settings, strict=True)
        return tuple((name, f"{here} and {there}") for (name, here), (_, there) in both)

    def of_layer(self, layer: int) -> Place:
        """``layer`` may be one more than there are: what is behind them."""
        return self.first if layer < self.border else self.last

    def of_tensor(self, name: str) -> Place:
        """By its name in a GGUF file."""
        block = block_of(name)
        if block is not None:
            return self.of_layer(block)
        return self.first if name.startswith(TABLE) else self.last

    def layers_in(self, place: Place, layers: int) -> int:
        """How many of so many layers lie there, without what is behind them."""
        return sum(self.of_layer(layer) == place for layer in range(layers))


def block_of(name: str) -> int | None:
    """The layer that a tensor is of; ``None``: of none."""
    found = _BLOCK.match(name)
    return None if found is None else int(found[1])
