"""The saved conversations on a screen of their own: listed, searched, opened, renamed, pinned, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.chat.store import Session, Snippet
from localspec.errors import LocalspecError
from localspec.talk.book import SessionBook
from localspec.talk.session_list import Listed, brought_back, listed, local, renamed, sized, titled
from localspec.text.printable import one_line, printable
from localspec.tui.turns import plain

#: Sessions that are listed: nobody reads further, and typing finds the others.
MOST = 200
#: Seconds after a key before it is searched.
PAUSE = 0.1
KEYS = "enter opens · ctrl+r renames · ctrl+t pins · ctrl+x deletes · ctrl+z brings back · escape leaves"


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be done to a session by the command of this name."""

    command: Literal["session", "delete"]
    session: str


class SessionsScreen(ModalScreen[Choice | None]):
    """Ends with the session to be opened, or with the open one to be deleted; ``None``: all goes on as it was.

    What it does to sessions that are not open it does itself, in another thread: an answer may go on coming.
    """

    DEFAULT_CSS = """
    SessionsScreen { align: center middle; }
    SessionsScreen > Vertical {
        width: 100; max-width: 100%; height: 90%; border: round $primary; background: $surface;
    }
    SessionsScreen OptionList { height: 1fr; border: none; text-wrap: nowrap; text-overflow: ellipsis; }
    SessionsScreen Static { padding: 0 1; height: auto; }
    SessionsScreen .keys { color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", priority=True),
        Binding("down", "move('cursor_down')", "Next", show=False, priority=True),
        Binding("up", "move('cursor_up')", "Previous", show=False, priority=True),
        Binding("pagedown", "move('page_down')", "Next page", show=False, priority=True),
        Binding("pageup", "move('page_up')", "Previous page", show=False, priority=True),
        Binding("ctrl+r", "rename", "Rename", show=False, priority=True),
        Binding("ctrl+t", "pin", "Pin", show=False, priority=True),
        Binding("ctrl+x", "delete", "Delete", show=False, priority=True),
        Binding("ctrl+z", "restore", "Bring back", show=False, priority=True),
    ]

    def __init__(self, book: SessionBook) -> None:
        super().__init__()
        self._book = book
        self._rows: list[Listed] = []
        self._renaming: Session | None = None
        self._looking = self._opens = False  # what is listed is about to change; enter was pressed meanwhile

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Input(placeholder="Find in all saved conversations", id="wanted", compact=True)
            yield Input(placeholder="The new title", id="title", compact=True, select_on_focus=False)
            yield OptionList(markup=False)
            yield Static(id="said", markup=False)
            yield Static(KEYS, classes="keys", markup=False)

    def on_mount(self) -> None:
        self._end_renaming()
        self._look()

    # -- the list

    @on(Input.Changed, "#wanted")
    def _typed(self) -> None:
        self._looking, self._opens = True, False
        self._look(pause=PAUSE, anew=True)

    @work(exclusive=True, group="look")
    async def _look(self, *, pause: float = 0.0, said: str = "", anew: bool = False) -> None:
        """Lists what is there now, in this order: sessions come and go, and an answer may be coming. The same one stays
        highlighted, or ``anew`` the first: what fits best."""
        await asyncio.sleep(pause)
        text = self.query_one("#wanted", Input).value
        try:
            self._rows = await asyncio.to_thread(listed, self._book.store, text, MOST)
        except LocalspecError as error:
            self._rows, said = [], f"{error.message}. {error.hint}"
        self._list(anew)
        self._say(said or self._summary(text))
        self._looking = False
        if self._opens:
            self._open()

    def _list(self, anew: bool) -> None:
        options = self.query_one(OptionList)
        before = None if anew else self._highlighted
        at = 0 if anew else options.highlighted or 0
        options.set_options([Option(self._prompt(row), id=row.session.id) for row in self._rows])
        names = [row.session.id for row in self._rows]
        if before is not None and before.id in names:
            at = names.index(before.id)
        options.highlighted = min(at, len(names) - 1) if names else None

    def _prompt(self, row: Listed) -> Content:
        session = row.session
        here = session.id == self._book.session.id
        marks = f"{'*' if here else ' '}{'^' if session.pinned else ' '} "
        facts = [*(["open"] * here), *(["pinned"] * session.pinned), local(session.updated), sized(session)]
        title = marked(row.title)
        lines = [Content.assemble(marks, title if row.title.marks else title.stylize("bold"))]
        lines.append(Content.styled(f"   {' · '.join(facts)}", "$text-muted"))
        lines += [Content.assemble("   ", marked(place)) for place in row.places]
        return Content("\n").join(lines)

    def _summary(self, text: str) -> str:
        if not self._rows:
            return "nothing is found" if text.strip() else "no conversation is saved yet"
        if len(self._rows) == MOST:
            return f"the first {MOST}; typing finds the others"
        return f"{len(self._rows)} found" if text.strip() else f"{len(self._rows)} saved"

    def _say(self, text: str) -> None:
        self.query_one("#said", Static).update(plain(text))

    @property
    def _highlighted(self) -> Session | None:
        option = self.query_one(OptionList).highlighted_option
        return next((row.session for row in self._rows if option is not None and row.session.id == option.id), None)

    # -- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a title is written, keys are about its text."""
        return self._renaming is None or action not in ("move", "rename", "pin", "delete", "restore")

    def action_move(self, way: str) -> None:
        getattr(self.query_one(OptionList), f"action_{way}")()

    def action_back(self) -> None:
        if self._renaming is None:
            self.dismiss(None)
        else:
            self._end_renaming()

    @on(Input.Submitted, "#wanted")
    def _open(self) -> None:
        """Opens what is found with the text as it is now."""
        self._opens = self._looking
        if not self._looking:
            self.query_one(OptionList).action_select()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        here = event.option.id == self._book.session.id
        self.dismiss(None if here or event.option.id is None else Choice("session", event.option.id))

    def action_rename(self) -> None:
        if (session := self._highlighted) is None:
            return
        self._renaming = session
        title = self.query_one("#title", Input)
        title.value, title.display = session.title, True
        title.cursor_position = len(title.value)
        self.set_focus(title)
        self._say("enter gives it this title, escape leaves it as it is")

    @on(Input.Submitted, "#title")
    def _renamed(self, event: Input.Submitted) -> None:
        title, session = event.value.strip(), self._renaming
        self._end_renaming()
        if session is not None and title:
            self._do(lambda: renamed(self._book, session, title), f"it is now called {one_line(title)}")

    def _end_renaming(self) -> None:
        self._renaming = None
        self.query_one("#title").display = False
        self.set_focus(self.query_one("#wanted"))
        self._say("")

    def action_pin(self) -> None:
        if (session := self._highlighted) is not None:
            pin = not session.pinned
            said = "pinned: it comes first" if pin else "no longer pinned"
            self._do(lambda: self._book.store.pin(session.id, pin), said)

    def action_delete(self) -> None:
        if (session := self._highlighted) is None:
            return
        if session.id == self._book.session.id:
            self.dismiss(Choice("delete", session.id))  # what is said in it ends first
        else:
            said = f"deleted: {titled(session)}; ctrl+z brings it back"
            self._do(lambda: self._book.store.delete(session.id), said)

    def action_restore(self) -> None:
        self._do(lambda: f"it is back: {titled(brought_back(self._book.store))}")

    @work(group="do")
    async def _do(self, change: Callable[[], object], said: str = "") -> None:
        """Changes something in another thread, and says so: ``said``, or else what the change gives."""
        try:
            given = await asyncio.to_thread(change)
        except LocalspecError as error:
            self._say(f"{error.message}. {error.hint}")
        else:
            self._look(said=said or str(given))


def marked(snippet: Snippet) -> Content:
    """What was looked for is bold and stands in brackets."""
    text, at = printable(snippet.text), 0  # as many characters
    parts: list[str | tuple[str, str]] = []
    for start, end in snippet.marks:
        parts += [text[at:start], (f"[{text[start:end]}]", "bold")]
        at = end
    return Content.assemble(*parts, text[at:])
