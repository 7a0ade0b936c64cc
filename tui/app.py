"""`LocalspecApp`: the conversation on a full screen. It is up before any model is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import thread_time

from textual import events, work
from textual.app import ComposeResult, SystemCommand
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.signal import Signal
from textual.widgets import Footer, Static

from localspec.chat.conversation import Conversation
from localspec.chat.store import Session, Store
from localspec.options import Values
from localspec.talk import commands
from localspec.talk.completion import Completion, completions
from localspec.talk.history import History
from localspec.talk.mention import Scales
from localspec.talk.turn import TurnEvent
from localspec.tui import actions
from localspec.tui.chats import Chats
from localspec.tui.composer import Composer, Offers
from localspec.tui.conductor import Conductor, Job
from localspec.tui.costs import Costs
from localspec.tui.dialogs import EditQuestion
from localspec.tui.driver import Ahead
from localspec.tui.engines import Opener
from localspec.tui.find import FindBar
from localspec.tui.news import (
    Brief,
    Came,
    Compared,
    Conversed,
    Copied,
    Doing,
    Edits,
    Ended,
    Gone,
    Holds,
    Left,
    Multiline,
    News,
    Opened,
    Places,
    Ready,
    Returned,
    Said,
    Trouble,
    Waiting,
)
from localspec.tui.palette import Palette
from localspec.tui.side import Side
from localspec.tui.status import StatusLine
from localspec.tui.stepping import Stepping
from localspec.tui.transcript import Transcript
from localspec.tui.turns import plain
from localspec.types import Paced

#: Seconds between two looks at what came from the engine's thread.
INTERVAL = 0.05
#: What came may take one part in so many of the time: keys come first, and the engine needs the processor too.
PARTS = 24
#: Seconds between two looks even then.
LONGEST = 0.5
#: Seconds that a line stays which a key brought, and the next press overtakes.
GLANCE = 2.0
#: Seconds that drawing may take.
DRAWN = 1.0
#: Lines of what waits that are shown.
MOST_WAITING = 3


class LocalspecApp(Stepping, Chats, inherit_bindings=False):
    """The screen.

    Args:
        opener: where engines come from.
        values: options by name.
        conversation: where it starts; by default anew.
        history: what was written before.
        typed: as `Chat` has it.
        keymap: keys by the ids of their actions, in place of the defaults.
        first: a message that is sent at once; never a command.
        store: where the conversation is saved; ``None``: nowhere.
        session: the saved one that it goes on with.
        ahead: what was typed before.

    Attributes:
        came: hears every event of every turn.
    """

    TITLE = "localspec"
    CSS_PATH = "app.tcss"
    BINDINGS = actions.bindings()
    COMMANDS = {Palette}  # noqa: RUF012 (as Textual declares it)
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (90, "-wide")]  # noqa: RUF012 (Textual declares it of instances)

    def __init__(
        self,
        opener: Opener,
        values: Values,
        *,
        conversation: Conversation | None = None,
        history: History | None = None,
        typed: Collection[str] = (),
        keymap: Mapping[str, str] | None = None,
        first: str | None = None,
        store: Store | None = None,
        session: Session | None = None,
        ahead: Ahead | None = None,
    ) -> None:
        super().__init__(ahead)
        self.keys = dict(keymap or {})
        self.came: Signal[TurnEvent] = Signal(self, "came")
        self.history = history or History(None)
        self.opener = opener
        self.conductor = Conductor(
            opener, values, self._wake, conversation=conversation, typed=typed, store=store, keymap=self.keys
        )
        self.transcript = Transcript(self.conductor.chat.conversation.turns)
        self.find_bar = FindBar(self.transcript)
        self.composer = Composer(self.offers, self.keys, self.history.entries(), multiline=values["multiline_input"])
        self.scales = Scales(self.conductor.chat.count, self.conductor.counting)
        self.status_line = StatusLine()
        self.side = Side()
        self._waiting = Static(id="waiting", markup=False)
        self._woken = asyncio.Event()
        self._ui_loop: asyncio.AbstractEventLoop | None = None
        self._showing = False
        if session is not None:
            self.conductor.put(Job("command", f"/session {session.id}"))
        self.conductor.put(Job("load"))
        if first is not None:
            self.conductor.put(Job("message", commands.as_message(first)))

    def compose(self) -> ComposeResult:
        with Horizontal(id="main"):
            with Vertical(id="talk"):
                yield self.transcript
                yield self.find_bar
                yield Offers()
                yield Costs(self.scales.lines)
                yield self._waiting
                yield self.composer
            yield self.side
        yield self.status_line
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self._ui_loop = asyncio.get_running_loop()
        self.set_keymap(self.keys)
        self.begin_capture_print(self)
        self._waiting.display = False
        self.composer.focus()
        self._woken.set()  # what came before there was a loop to wake
        self._watch()
        self.keep_drafts()
        self.call_after_refresh(self.conductor.start)  # the first frame is there before anything is loaded

    def on_resize(self) -> None:
        self.call_after_refresh(self.measure)

    # -- what the engine's thread says

    def _wake(self) -> None:
        """In any thread."""
        if self._ui_loop is not None:
            with suppress(RuntimeError):  # the screen is gone
                self._ui_loop.call_soon_threadsafe(self._woken.set)

    @work(exclusive=True, group="watch")
    async def _watch(self) -> None:
        """Shows what comes, at most twenty times a second, and less often where that takes much time."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            began, self._showing = thread_time(), True
            for news in self.conductor.mailbox.take():
                await self._show(news)
            self.draw_soon()
            await self._drawn()
            self.transcript.settle()
            self._showing = False
            await asyncio.sleep(max(INTERVAL, min(PARTS * (thread_time() - began), LONGEST)))

    @property
    def settled(self) -> bool:
        """Nothing runs or waits, and the screen shows all that came."""
        return not (self.conductor.busy or self.conductor.mailbox or self._showing)

    async def _drawn(self) -> None:
        """When the screen shows what was changed."""
        done = asyncio.Event()
        if self.call_after_refresh(done.set):
            with suppress(TimeoutError):  # what a dialogue was to call as it went is never called
                await asyncio.wait_for(done.wait(), DRAWN)

    async def _show(self, news: News) -> None:
        match news:
            case Came(event):
                await self.transcript.take(event)
                self.status_line.hear(event)
                self.came.publish(event)
                if isinstance(event, Paced):
                    await self.show_pace(event)
            case Ended(kept, footer):
                await self.transcript.end(kept, footer)
            case Doing(what, share):
                self.show_doing(what, share)
            case Ready(info):
                self.status_line.show(self.status_line.status.running(info))
            case Gone():
                self.status_line.show(self.status_line.status.running(None))
            case Holds(memory):
                self.status_line.show(replace(self.status_line.status, memory=memory))
            case Said(text):
                await self.transcript.say(text)
            case Trouble(message, hint):
                text = message + (f". {hint}" if hint else "")
                await self.transcript.say(f"error: {text}", kind="trouble")
                if self.comparison is not None:
                    self.comparison.tell(text)
            case Compared(step):
                if self.comparison is not None:
                    self.comparison.hear(step)
            case Waiting(texts):
                self._show_waiting(texts)
                self.keep_waiting(texts)
            case Conversed(turns, anew, saved):
                if anew and not turns:
                    await self.transcript.begin_anew(clears=saved)
                else:
                    await self.transcript.show(turns)
                self.forget_trace()
                self.status_line.show(replace(self.status_line.status, used=None))
            case Places(places):
                await self.transcript.number(places)
            case Opened(session, draft):
                self.opened(session, draft)
            case Brief(text):
                self.clear_notifications()  # the one before is old when a key is pressed again
                self.notify(text, markup=False, timeout=GLANCE)
            case Returned(text):
                self.composer.give_back(text)
            case Edits(text):
                self.push_screen(EditQuestion(text, self.offers, self.scales.lines, self.keys), self._edited)
            case Copied(text, sequence):
                self.take(text, sequence)
            case Multiline(on):
                self.composer.multiline = on
            case Left(code):
                self.go(code)

    def _show_waiting(self, texts: tuple[str, ...]) -> None:
        lines = [f"waits: {text.splitlines()[0] if text.strip() else ''}" for text in texts[:MOST_WAITING]]
        if len(texts) > MOST_WAITING:
            lines.append(f"… and {len(texts) - MOST_WAITING} more")
        self._waiting.update(plain("\n".join(lines)))
        self._waiting.display = bool(texts)

    async def on_print(self, event: events.Print) -> None:
        """What would have gone to the terminal: a download that begins, a warning of a library."""
        if text := event.text.strip().removeprefix("localspec: "):
            await self.transcript.say(text)

    # -- what the user does

    def on_composer_sent(self, event: Composer.Sent) -> None:
        self.history.add(event.text)
        self.composer.remember(event.text)
        self.clear_notifications()  # they were about what was before
        self.transcript.to_end()
        if not self.transcript.display:  # on a narrow screen: what is said now is to be seen
            self.call_next(self.close_panel)
        is_command = commands.is_command(event.text)
        self.conductor.put(Job("command" if is_command else "message", event.text, typed=event.typed))

    def _edited(self, text: str | None) -> None:
        if text is not None:
            self.history.add(text)
            self.composer.remember(text)
            self.conductor.front.typed = text
        self.conductor.front.edited(text)

    def offers(self, before: str) -> list[Completion]:
        return completions(before, self.conductor.chat, self.conductor.book)

    # -- keys and palette

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Over a dialogue only what works anywhere: the dialogue has keys of its own."""
        known = actions.by_method(action)
        here = known is None or known.anywhere or len(self.screen_stack) == 1
        return here and super().check_action(action, parameters)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        for action in actions.ACTIONS:
            if action.owner == "app" and action.id != "palette":
                yield SystemCommand(action.title, action.help, partial(self.run_action, f"app.{action.method}"))
        for command in commands.COMMANDS:
            yield SystemCommand(command.usage, command.help, partial(self._write_command, command))

    def _write_command(self, command: commands.Command) -> None:
        self.composer.write(f"/{command.name} " if command.args else f"/{command.name}")
        self.set_focus(self.composer)
