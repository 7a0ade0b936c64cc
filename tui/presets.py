"""The list of presets: take one, keep the settings of now under a name, delete one."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Label, OptionList, Static
from textual.widgets.option_list import Option

from localspec.errors import LocalspecError
from localspec.talk.chat import Chat
from localspec.talk.presets import Presets
from localspec.text.printable import printable


class PresetScreen(ModalScreen[list[str] | None]):
    """Ends with what a preset changed, or ``None`` if none was taken."""

    DEFAULT_CSS = """
    PresetScreen { align: center middle; }
    PresetScreen > Vertical { width: 48; max-width: 100%; height: auto; max-height: 90%; border: round $border; }
    PresetScreen OptionList { height: auto; max-height: 12; }
    PresetScreen .said { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Close", id="presets.close"),
        Binding("delete", "delete", "Delete", id="presets.delete"),
    ]

    def __init__(self, chat: Chat, presets: Presets) -> None:
        super().__init__()
        self._chat = chat
        self._presets = presets

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Label("Presets", markup=False)
            yield OptionList(markup=False)
            yield Input(placeholder="a name keeps the settings of now", compact=True)
            yield Static(classes="said", markup=False)

    def on_mount(self) -> None:
        self._list()
        if not self._presets.names():
            self.query_one(Input).focus()

    def _list(self) -> None:
        names = self._presets.names()
        self.query_one(OptionList).set_options([Option(Content(name), id=name) for name in names])
        self._say("enter takes one, delete removes it" if names else "there are none yet")

    def _say(self, text: str) -> None:
        self.query_one(".said", Static).update(printable(text))

    def _fail(self, error: LocalspecError) -> None:
        self._say(f"{error.message}. {error.hint}")

    @on(OptionList.OptionSelected)
    def _taken(self, event: OptionList.OptionSelected) -> None:
        try:
            self.dismiss(self._presets.load(self._chat, event.option.id or ""))
        except LocalspecError as error:
            self._fail(error)

    @on(Input.Submitted)
    def _named(self, event: Input.Submitted) -> None:
        try:
            self._presets.save(self._chat, event.value.strip())
        except LocalspecError as error:
            self._fail(error)
            return
        event.input.clear()
        self._list()
        self._say(f"kept as {event.value.strip()}")

    def action_delete(self) -> None:
        chosen = self.query_one(OptionList).highlighted_option
        if chosen is None or chosen.id is None:
            return
        try:
            self._presets.delete(chosen.id)
        except LocalspecError as error:
            self._fail(error)
            return
        self._list()
