"""Settings that can be turned between two turns: those of drawing, guessing and cutting that need no loading.

The default of a knob is what the chat was started with, as for ``/set NAME default``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.options import Option, Values, depth, engine_options
from localspec.options.tables.groups import grouped
from localspec.talk import settings
from localspec.talk.chat import Chat

#: What most people turn.
COMMON = (
    *("n_predict", "stop", "spec", "draft_n_max", "draft_p_min", "tree_width"),
    *("seed", "temp", "top_k", "top_p", "min_p", "repeat_penalty"),
)
#: What a knob of ``on`` and ``off`` goes through.
SWITCH = ("on", "off")
NONE = "(none)"


class _Reads(Mapping[str, Any]):
    """Values, and the names of those that were looked at."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def knobs(values: Values) -> dict[str, tuple[Option, ...]]:
    """Heading → its knobs, in the order of the help."""
    reads, somewhere = _Reads(values), Path("-")
    engine_options(reads, somewhere, somewhere)  # what it looks at would need an engine of its own
    free = [one for one in settings.settable(values) if one.group in settings.OFTEN and one.name not in reads.names]
    return {heading: tuple(options) for heading, options in grouped(free).items()}


def all_knobs(values: Values) -> tuple[Option, ...]:
    """The same without headings."""
    return tuple(option for options in knobs(values).values() for option in options)


def shown_first(chat: Chat, option: Option) -> bool:
    """Whether it is common, or not at its default."""
    return option.name in COMMON or Knob.of(chat, option).changed


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting as it stands. ``value`` and ``default`` are as `turn` takes them, ``""`` where there is none;
    ``choices`` are all there are, if they can be counted."""

    label: str
    value: str
    default: str
    choices: tuple[str, ...] = ()
    unset: str = NONE  # what counts where there is no value, in words

    @classmethod
    def of(cls, chat: Chat, option: Option) -> Knob:
        now, given = (_text(values[option.name]) for values in (chat.values, chat.given))
        choices = SWITCH if option.kind is bool else option.choices
        return cls(settings.short(option), now, given, choices, _unset(chat, option))

    @property
    def changed(self) -> bool:
        return self.value != self.default

    @property
    def note(self) -> str:
        """What differs from the default, in words; nothing if nothing does."""
        return f"* was {self.default or NONE}" if self.changed else ""

    @property
    def editable(self) -> bool:
        """Whether its text fits on one line: a grammar may not."""
        return self.value.isprintable()

    def after(self, text: str) -> str:
        """The choice that follows ``text``; the first one after what is none."""
        at = self.choices.index(text) + 1 if text in self.choices else 0
        return self.choices[at % len(self.choices)]


def _unset(chat: Chat, option: Option) -> str:
    """How many guesses there are at most is left to the mode."""
    return f"{depth({**chat.values, option.name: None})} (default)" if option.name == "draft_n_max" else NONE


def _text(value: Any) -> str:
    return "" if value in (None, ()) else settings.shown(value)


def turn(chat: Chat, option: Option, text: str) -> tuple[str, ...]:
    """Sets it for the turns to come; returns a line for each option that does nothing any more.

    Raises:
        LocalspecError: as `localspec.talk.settings.change`.
    """
    _, *notes = settings.change_option(chat, option, text.strip()).splitlines()
    return tuple(notes)


def next_mode(chat: Chat) -> str:
    """Speculation goes on to the next of its modes; says which. Raises as `turn`."""
    option = _option(chat, "spec")
    knob = Knob.of(chat, option)
    return settings.change_option(chat, option, knob.after(knob.value))


def deeper(chat: Chat, by: int) -> str:
    """So many guesses more on a path at most, or less, within bounds; says how many. Raises as `turn`."""
    option = _option(chat, "draft_n_max")
    most = int(option.most or 0)
    wanted = min(max(depth(chat.values) + by, 0), most)
    return settings.change_option(chat, option, str(wanted), called=settings.short(option))


def _option(chat: Chat, name: str) -> Option:
    return next(one for one in settings.settable(chat.values) if one.name == name)


def reset(chat: Chat, options: Iterable[Option]) -> None:
    """All of them as the chat was started."""
    settings.apply(chat, {option.name: chat.given[option.name] for option in options})
