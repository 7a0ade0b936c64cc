"""What the app's actions do; `localspec.tui.actions` says which key does which."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

from textual.app import SuspendNotSupported
from textual.widgets import TextArea

from localspec.errors import ExitCode, LocalspecError
from localspec.talk import clipboard
from localspec.talk.history import History
from localspec.tui.composer import Composer
from localspec.tui.conductor import Conductor, Job
from localspec.tui.dialogs import Help
from localspec.tui.find import FindBar
from localspec.tui.outside import edited, editor
from localspec.tui.sections import code_blocks
from localspec.tui.terminal import TerminalApp
from localspec.tui.transcript import Transcript

#: Seconds in which a second ctrl-c leaves.
TWICE = 2.0


class Handling(TerminalApp):
    """The app, as far as keys reach it."""

    conductor: Conductor
    transcript: Transcript
    composer: Composer
    find_bar: FindBar
    history: History
    keys: dict[str, str]

    NOTIFICATION_TIMEOUT = 3

    _pressed_at = 0.0
    _block = 0  # the code block that was copied last, counted from the end
    _block_of: object = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._copying = asyncio.Lock()

    def tell(self, text: str) -> None:
        """A line that goes away by itself."""
        self.notify(text, markup=False)

    def on_unmount(self) -> None:
        """However the screen ends: what was written and not sent is found with arrow up the next time."""
        self.history.add(self.composer.message)

    # -- talk

    def action_stop(self) -> None:
        if self.find_bar.display:
            self.find_bar.close()
            self.set_focus(self.composer)
        elif self.conductor.busy:
            self.conductor.stop()
        else:
            self.set_focus(self.composer)

    def action_regenerate(self) -> None:
        self._instead("/regen")

    def action_new(self) -> None:
        self._instead("/clear")

    def action_edit(self) -> None:
        self._instead("/edit")

    def _instead(self, command: str) -> None:
        """A command that makes what runs idle."""
        self.clear_notifications()
        self.conductor.stop()
        self.conductor.put(Job("command", command))

    def action_reload(self) -> None:
        self.conductor.stop()
        self.conductor.put(Job("load"))

    # -- answers

    def action_copy(self) -> None:
        turn = self.transcript.last
        if turn is None or not turn.answer:
            self.tell("there is no answer to copy")
        else:
            self.copy(turn.answer)

    def action_copy_code(self) -> None:
        turn = self.transcript.last
        blocks = [] if turn is None else code_blocks(turn.answer)
        if not blocks:
            self.tell("the last answer has no code block")
            return
        again = self._block_of is turn and monotonic() - self._pressed_at < TWICE
        self._block = self._block % len(blocks) + 1 if again else 1
        self._block_of, self._pressed_at = turn, monotonic()
        self.copy(blocks[-self._block], f"code block {len(blocks) + 1 - self._block} of {len(blocks)}")

    def copy(self, text: str, what: str = "") -> None:
        """Into the clipboard, whatever way there is; a tool may take its time."""
        self._clipboard = text
        self.run_worker(self._copy(text, what), group="copy")

    def copy_to_clipboard(self, text: str) -> None:
        """Textual's widgets call it for what is selected in them."""
        self.copy(text)

    async def _copy(self, text: str, what: str) -> None:
        async with self._copying:  # the last one that was asked for is the last one there
            way = await asyncio.to_thread(clipboard.put, text, what)
        self.take(text, way.sequence)
        self.tell(way.said)

    def take(self, text: str, sequence: str) -> None:
        """For the next paste on this screen; and the terminal is asked to take it, if there is a sequence for that."""
        self._clipboard = text
        if sequence and self._driver is not None:
            self._driver.write(sequence)

    def action_find(self) -> None:
        self.find_bar.open()

    def action_thinking(self) -> None:
        turn = self.transcript.last
        if turn is None or not turn.unfold():
            self.tell("nothing was thought before the last answer")

    # -- writing

    def action_editor(self) -> None:
        self.composer.call_later(self._open_editor)  # after the letters that were typed before

    def _open_editor(self) -> None:
        try:
            command = editor()
            with self.suspend():
                text = edited(self.composer.message, command)
        except SuspendNotSupported:
            self.tell("this terminal cannot be lent to an editor")
        except LocalspecError as error:
            self.tell(f"{error.message}. {error.hint}")
        else:
            self.composer.write(text)
            self.set_focus(self.composer)

    # -- the screen

    def action_page_up(self) -> None:
        self.transcript.scroll_page_up(animate=False)

    def action_page_down(self) -> None:
        self.transcript.scroll_page_down(animate=False)

    async def action_start(self) -> None:
        await self.transcript.to_start()

    def action_end(self) -> None:
        self.transcript.to_end()

    def action_interrupt(self) -> None:
        if selected := self._selected():
            self.copy(selected)
        elif self.conductor.busy and not self.conductor.stopping:
            self.conductor.stop()
            self._pressed_at = monotonic()
        elif monotonic() - self._pressed_at < TWICE:
            self.go(ExitCode.INTERRUPTED)
        else:
            self._pressed_at = monotonic()
            self.tell("ctrl+c again leaves")

    def _selected(self) -> str:
        focused = self.focused
        if isinstance(focused, TextArea) and focused.selected_text:
            return focused.selected_text
        return self.screen.get_selected_text() or ""

    def action_help(self) -> None:
        self.push_screen(Help(self.place, self.keys))

    @property
    def place(self) -> str:
        """What has the focus, for F1."""
        return (self.focused.id if self.focused is not None else "") or ""

    def action_leave(self) -> None:
        self.composer.call_later(self.go, ExitCode.OK)
