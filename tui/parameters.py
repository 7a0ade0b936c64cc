"""The parameters panel: settings for the turns to come, edited where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widgets import Button, Input, Label, Static

from localspec.errors import LocalspecError
from localspec.options import Option
from localspec.talk import knobs
from localspec.talk.chat import Chat
from localspec.talk.knobs import Knob
from localspec.talk.presets import Presets, user_presets
from localspec.text.printable import one_line, printable
from localspec.tui.presets import PresetScreen


class Field(Input):
    """The text of one setting. Space goes on to the next choice where the choices are few."""

    def __init__(self, knob: Knob) -> None:
        super().__init__(
            one_line(knob.value),
            placeholder=knob.unset,
            suggester=SuggestFromList(knob.choices, case_sensitive=False) if knob.choices else None,
            compact=True,
            disabled=not knob.editable,
        )
        self._knob = knob

    def on_key(self, event: events.Key) -> None:
        if event.key == "space" and self._knob.choices:
            event.stop()
            event.prevent_default()
            self.value = self._knob.after(self.value)


class Row(Vertical):
    """A setting's name, its field, and below them what differs from the default or is wrong."""

    DEFAULT_CSS = """
    Row { layout: grid; grid-size: 2; grid-columns: 22 1fr; grid-rows: auto; height: auto; }
    Row .name.changed { text-style: bold; }
    Row .note { column-span: 2; padding-left: 2; color: $text-muted; display: none; }
    Row .note.told { display: block; }
    Row.wrong .note { color: $text-error; }
    """

    def __init__(self, chat: Chat, option: Option) -> None:
        super().__init__(classes="row")
        self.option = option
        self._chat = chat
        #: What `turn` had to say beyond the change itself.
        self.told: tuple[str, ...] = ()
        self._marked: tuple[bool, str] | None = None

    @property
    def knob(self) -> Knob:
        return Knob.of(self._chat, self.option)

    @property
    def field(self) -> Field:
        return self.query_one(Field)

    @property
    def wrong(self) -> bool:
        """What stands in the field is not what counts."""
        return self.has_class("wrong")

    def compose(self) -> ComposeResult:
        yield Label(classes="name", markup=False)
        yield Field(self.knob)
        yield Static(classes="note", markup=False)

    def on_mount(self) -> None:
        self.show()

    def show(self) -> None:
        """The value that counts, in place of whatever stands there."""
        with self.prevent(Input.Changed):
            self.field.value = one_line(self.knob.value)
        self.hint()
        self._mark("")

    def hint(self) -> None:
        """What counts where nothing stands; another setting may have changed it."""
        self.field.placeholder = self.knob.unset

    def turn(self, text: str) -> bool:
        """Sets what was typed, if it is another value and possible; says if it is not. Returns whether it was set."""
        if text == one_line(self.knob.value):
            self._mark("")
            return False
        try:
            self.told = knobs.turn(self._chat, self.option, text)
        except LocalspecError as error:
            self.told = ()
            self._mark(printable(" ".join(filter(None, (f"{error.message}.", error.hint)))))
            return False
        self._mark("")
        return True

    def _mark(self, fault: str) -> None:
        knob = self.knob
        note = fault or printable(knob.note)
        if (knob.changed, note) == self._marked:  # another layout of the panel is dear
            return
        self._marked = knob.changed, note
        self.set_class(bool(fault), "wrong")
        name, below = self.query_one(".name", Label), self.query_one(".note", Static)
        name.update(f"{'*' if knob.changed else ' '} {knob.label}", layout=False)
        name.set_class(knob.changed, "changed")
        below.update(note)
        below.set_class(bool(note), "told")


class Section(Vertical):
    """The knobs of one heading: the common ones and those that were changed, on demand all. Fields are dear to make."""

    DEFAULT_CSS = """
    Section { height: auto; }
    Section > .heading { text-style: bold underline; padding: 1 0 0 1; }
    Section > Button { margin-left: 2; }
    """

    def __init__(self, chat: Chat, heading: str, options: Sequence[Option]) -> None:
        super().__init__()
        self._chat = chat
        self._heading = heading
        self._hidden = list(options)

    def compose(self) -> ComposeResult:
        yield Label(self._heading, classes="heading", markup=False)
        yield from self._taken(all_of_them=False)
        yield Button(self._more, classes="more", compact=True)

    def on_mount(self) -> None:
        self._label()

    def reread(self) -> None:
        """What was changed is among what is shown, as it stands now."""
        for row in self.query(Row):
            row.show()
        self._mount(all_of_them=False)

    def show_all(self) -> None:
        """Shows all."""
        self._mount(all_of_them=True)

    def _mount(self, *, all_of_them: bool) -> None:
        if rows := self._taken(all_of_them=all_of_them):
            self.mount(*rows, before=self.query_one(Button))
            self._label()

    def _taken(self, *, all_of_them: bool) -> list[Row]:
        """Rows for what is no longer hidden."""
        taken = [one for one in self._hidden if all_of_them or knobs.shown_first(self._chat, one)]
        self._hidden = [one for one in self._hidden if one not in taken]
        return [Row(self._chat, option) for option in taken]

    @property
    def _more(self) -> str:
        return f"{len(self._hidden)} more"

    def _label(self) -> None:
        button = self.query_one(Button)
        button.label, button.display = self._more, bool(self._hidden)


class _Rows(VerticalScroll, can_focus=False, inherit_bindings=False):
    """Arrows are for going from field to field."""


class Parameters(Vertical):
    """All settings that need no loading. What stands in a field counts from the next turn on, as soon as it is
    possible; a field that is left with something else in it goes back to what counts."""

    DEFAULT_CSS = """
    Parameters { width: 100%; min-width: 36; height: 100%; }
    Parameters > .title { text-style: bold; padding: 0 1; }
    Parameters > #knobs { height: 1fr; }
    Parameters > #about { height: auto; max-height: 5; padding: 0 1; border-top: solid $border; }
    Parameters > #buttons { height: 1; }
    Parameters > #buttons Button { min-width: 7; margin-right: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Setting above", show=False, id="parameters.up"),
        Binding("down", "move(1)", "Setting below", show=False, id="parameters.down"),
        Binding("ctrl+z", "reset", "Reset", id="parameters.reset"),
        # Before the field, which would take the letter.
        Binding("alt+z", "reset_all", "Reset all", show=False, priority=True, id="parameters.reset-all"),
        Binding("alt+p", "presets", "Presets", priority=True, id="parameters.presets"),
        Binding("alt+m", "more", "All settings", show=False, priority=True, id="parameters.more"),
    ]
    HELP = """\
    Settings of the chat. Type a value: it counts from the next turn on. Space goes through choices.
    `*` marks what differs from how the chat was started.
    """

    class Changed(Message):
        """Settings of the chat are others now."""

    def __init__(self, chat: Chat, presets: Presets | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._chat = chat
        self._presets = presets or user_presets()
        self._about = ""

    def compose(self) -> ComposeResult:
        yield Label("Parameters of the next turn", classes="title", markup=False)
        with _Rows(id="knobs"):
            for heading, options in knobs.knobs(self._chat.values).items():
                yield Section(self._chat, heading, options)
        yield Static(id="about", markup=False)
        with Horizontal(id="buttons"):
            yield Button("Reset", id="reset", compact=True, tooltip="The setting that the cursor is in")
            yield Button("Reset all", id="reset-all", compact=True)
            yield Button("Presets", id="presets", compact=True)

    def reread(self) -> None:
        """Shows the chat's settings as they are: something else may have changed them."""
        for section in self.query(Section):
            section.reread()

    @property
    def first(self) -> Field | None:
        """The field that is entered first."""
        return next((field for field in self.query(Field) if not field.disabled), None)

    @property
    def current(self) -> Row | None:
        """The setting that the cursor is in, or was in last."""
        rows = self.query(Row)
        return next((row for row in rows if row.has_class("current")), None)

    # -- editing

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        row = _row(event.input)
        if row is not None and row.turn(event.value):
            for one in self.query(Row):
                one.hint()
            self.post_message(self.Changed())
            self._tell(row)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        row = _row(event.input)
        if row is not None and not row.wrong:
            self.action_move(1)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        row = _row(event.widget)
        if row is not None:
            for one in self.query(Row):
                one.set_class(one is row, "current")
            self._tell(row)

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        row = _row(event.widget)
        if row is not None and (row.wrong or row.field.value != one_line(row.knob.value)):
            row.show()

    def _tell(self, row: Row) -> None:
        """What the setting is for, and what became idle by it."""
        choices = f" Space: {' → '.join(row.knob.choices)}." if row.knob.choices else ""
        about = printable("\n".join([f"{row.option.help}{choices}", *row.told]), keep="\n")
        if about != self._about:
            self._about = about
            self.query_one("#about", Static).update(about)

    # -- actions

    def action_move(self, by: int) -> None:
        """To the field so many below."""
        fields = [field for field in self.query(Field) if not field.disabled]
        at = next((i for i, field in enumerate(fields) if field.has_focus), None)
        if fields:
            fields[0 if at is None else (at + by) % len(fields)].focus()

    def action_reset(self) -> None:
        if (row := self.current) is not None:
            self._reset([row.option])

    def action_reset_all(self) -> None:
        self._reset(knobs.all_knobs(self._chat.values))

    def action_more(self) -> None:
        """Shows the settings that few people turn, too."""
        for section in self.query(Section):
            section.show_all()

    def _reset(self, options: Sequence[Option]) -> None:
        try:
            knobs.reset(self._chat, options)
        except LocalspecError as error:  # one of two that go together
            self.notify(printable(f"{error.message}. {error.hint}"), severity="error", markup=False)
        for row in self.query(Row):
            row.told = ()
        self.reread()
        self.post_message(self.Changed())

    def action_presets(self) -> None:
        self.app.push_screen(PresetScreen(self._chat, self._presets), self._loaded)

    def _loaded(self, lines: list[str] | None) -> None:
        if lines is None:
            return
        self.reread()
        self.post_message(self.Changed())
        self.notify(printable(", ".join(lines) or "that changes nothing"), markup=False)

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if isinstance(section := event.button.parent, Section):
            section.show_all()
            return
        actions = {"reset": self.action_reset, "reset-all": self.action_reset_all, "presets": self.action_presets}
        actions[event.button.id or ""]()


def _row(widget: object) -> Row | None:
    """The row that a field is in."""
    return next((one for one in widget.ancestors if isinstance(one, Row)), None) if isinstance(widget, Field) else None
