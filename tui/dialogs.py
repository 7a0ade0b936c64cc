"""Screens over the conversation: help, and the text of an earlier question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from localspec.talk.commands import GROUPS
from localspec.text.layout import table
from localspec.tui import actions
from localspec.tui.composer import Complete, Composer, Offers
from localspec.tui.costs import Costs, Weigh

LEFT = 22  # columns of keys and commands

#: What F1 says first, by what has the focus.
ABOUT = {
    "composer": "You are writing a message. Enter sends it; a line that begins with / is a command, and"
    " @file takes a file along: tab completes.",
    "transcript": "You are reading. Arrows and page keys scroll; at the end the screen follows again.",
    "parameters": "You are changing settings: what stands in a field counts from the next answer on. Arrows go up and"
    " down, space goes through choices; ctrl+z resets one, alt+z all, alt+m shows more, alt+p takes or keeps presets.",
    "statistics": "You are looking at what guessing ahead does. Arrows and page keys scroll; escape closes it.",
    "provenance": "You are looking at the tokens of the last answer. Arrows move the cursor, d shows how far ahead each"
    " was guessed; escape closes it.",
    "": "Escape goes back to the conversation.",
}


class Help(ModalScreen[None]):
    """Keys and commands, as they are registered.

    Args:
        place: what had the focus: a key of `ABOUT`.
        keymap: keys that the user changed.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,q", "dismiss", "Back")]

    def __init__(self, place: str, keymap: Mapping[str, str]) -> None:
        super().__init__()
        self._place = place
        self._keymap = keymap

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog"):
            yield Static(ABOUT.get(self._place, ABOUT[""]), classes="about", markup=False)
            yield Static(id="all", markup=False)

    def on_resize(self) -> None:
        width = max(self.query_one("#all").size.width, 30)
        self.query_one("#all", Static).update(Content("\n".join(self.lines(width))))

    def lines(self, width: int) -> list[str]:
        left = LEFT if width > 2 * LEFT else 2  # where it is narrow, what a key does stands below it
        parts = [(name, actions.rows(group, self._keymap)) for name, group in actions.groups()]
        parts += [(f"/ {one.name}", [(command.usage, command.help) for command in one.commands]) for one in GROUPS]
        return [line for name, rows in parts for line in ("", name.upper(), *table(rows, width, left=left))]


class EditQuestion(ModalScreen[str | None]):
    """An earlier question, to be changed and asked again; ``None``: it stays as it was."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back", priority=True)]

    def __init__(self, text: str, complete: Complete, weigh: Weigh, keymap: Mapping[str, str]) -> None:
        super().__init__()
        self._text = text
        self._weigh = weigh
        self._composer = Composer(complete, keymap, id="edited")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static("Change the question; enter asks it again, escape leaves it as it was.", markup=False)
            yield Offers()
            yield Costs(self._weigh)
            yield self._composer

    def on_mount(self) -> None:
        self._composer.write(self._text)
        self.set_focus(self._composer)

    def on_composer_sent(self, event: Composer.Sent) -> None:
        event.stop()
        self.dismiss(event.text)

    def action_leave(self) -> None:
        self.dismiss(None)
