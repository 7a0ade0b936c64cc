"""What the app's actions do about panels, models and guesses; `localspec.tui.actions` says which key does which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from textual import work
from textual.signal import Signal
from textual.timer import Timer
from textual.widget import Widget

from localspec.errors import EngineDied, LocalspecError
from localspec.options import Values
from localspec.talk import knobs
from localspec.talk.chat import Chat
from localspec.talk.trace import AnswerTrace
from localspec.talk.turn import Asked, LeftOut, TurnEvent
from localspec.talk.verdicts import Judge
from localspec.text.printable import printable
from localspec.text.thinking import Piece
from localspec.tui.compare import CompareScreen
from localspec.tui.composer import Offers
from localspec.tui.conductor import Job
from localspec.tui.engines import Opener
from localspec.tui.handling import Handling
from localspec.tui.parameters import Parameters
from localspec.tui.pickers import ModelPicker
from localspec.tui.provenance import Provenance, TokenText
from localspec.tui.side import Side
from localspec.tui.stats import StatsPanel
from localspec.tui.status import StatusLine
from localspec.types import Started

#: Seconds between two drawings of a panel.
INTERVAL = 0.1
#: Watches the trees of a chat; the panels that show them.
WATCHER, WATCHING = "screen", ("statistics", "provenance")
#: Actions that a panel has keys of its own for.
SCROLLING = ("page_up", "page_down", "start", "end")


class Panels(Handling):
    """The app, as far as panels, models and guesses are concerned."""

    opener: Opener
    side: Side
    status_line: StatusLine
    came: Signal[TurnEvent]

    _trace: AnswerTrace
    _values: Values | None = None  # as the parameters panel shows them
    _drawing: Timer | None = None

    def on_mount(self) -> None:
        self.forget_trace()
        self.came.subscribe(self, self._hear, immediate=True)

    # -- what is shown

    def _hear(self, event: TurnEvent) -> None:
        if isinstance(event, Started):
            self.forget_trace()
        if not isinstance(event, Asked | Piece | LeftOut):
            self._trace.hear(event)

    def forget_trace(self) -> None:
        """The last answer is another one."""
        self._trace = AnswerTrace()

    def draw_soon(self) -> None:
        """Something came: the open panel shows it, at most ten times a second."""
        if self._drawing is None and self.side.open:
            self._drawing = self.set_timer(INTERVAL, self._draw)

    def _draw(self) -> None:
        self._drawing = None
        if not self.is_running:  # the screen is being taken apart
            return
        chat = self.conductor.chat
        match self.side.panel:
            case StatsPanel() as panel:
                panel.show(self._trace, self._standings(chat))
            case Provenance() as panel:
                panel.show(self._trace)
            case Parameters() as panel if self._values is not chat.values:
                panel.reread()
        self._values = chat.values

    def _standings(self, chat: Chat) -> list[tuple[str, str]]:
        try:
            return chat.standings()
        except EngineDied:  # or another one is being loaded
            return []

    def on_parameters_changed(self) -> None:
        self._values = self.conductor.chat.values
        self.show_doing(self.status_line.status.doing, self.status_line.status.share)

    def show_doing(self, what: str, share: float | None) -> None:
        """What the engine is at, and whether it may guess."""
        status = self.status_line.status
        guesses = status.info is None or self.conductor.chat.values["spec"] != "off"
        self.status_line.show(status.now(what, share, guesses=guesses))

    # -- panels

    async def action_parameters(self) -> None:
        await self._toggle("parameters", lambda: Parameters(self.conductor.chat))

    async def action_statistics(self) -> None:
        await self._toggle("statistics", StatsPanel)

    async def action_provenance(self) -> None:
        await self._toggle("provenance", Provenance)

    async def _toggle(self, name: str, make: Callable[[], Widget]) -> None:
        await self.side.toggle(name, make)
        self.query_one("#main").set_classes(f"-{self.side.open}" if self.side.open else "")
        watchers = self.conductor.chat.watchers
        (watchers.add if self.side.open in WATCHING else watchers.discard)(WATCHER)
        self._values = self.conductor.chat.values
        self._draw()
        self.call_after_refresh(self.measure)
        if isinstance(self.side.panel, StatsPanel | None):  # one writes on, and watches
            self.set_focus(self.composer)
        else:
            self._enter_panel()

    async def close_panel(self) -> None:
        """Closes the one that is open."""
        if self.side.open:
            await self._toggle(self.side.open, Widget)  # none is made

    def measure(self) -> None:
        """How wide lines of the conversation may be."""
        if width := self.transcript.scrollable_content_region.width:
            self.conductor.front.columns = max(width - 2, 20)

    def _enter_panel(self) -> None:
        """At once: `Widget.focus` would come after keys that were pressed meanwhile."""
        match self.side.panel:
            case Provenance() as panel:
                self.set_focus(panel.query_one(TokenText))
            case Parameters() as panel:
                self.set_focus(panel.first)
            case panel:
                self.set_focus(panel)

    def action_other_pane(self) -> None:
        if not self.composer.has_focus:
            self.set_focus(self.composer)
        elif self.side.open:
            self._enter_panel()
        else:
            self.set_focus(self.transcript)

    def action_stop(self) -> None:
        """In a panel, escape closes it, and what runs goes on; elsewhere, it does so when nothing else is to end."""
        offers = self.query_one(Offers)
        rests = not (self.conductor.busy or self.find_bar.display)
        if self.side.has_focus_within or (rests and self.side.open and not offers.display):
            self.call_next(self.close_panel)
        elif rests and offers.display:
            offers.show(())
        else:
            super().action_stop()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A panel scrolls by itself."""
        if action in SCROLLING and self.side.has_focus_within:
            return False
        return super().check_action(action, parameters)

    @property
    def place(self) -> str:
        return self.side.open if self.side.has_focus_within else super().place

    # -- guesses

    def action_speculation(self) -> None:
        self._turn(knobs.next_mode)

    def action_guess_more(self) -> None:
        self._turn(lambda chat: knobs.deeper(chat, 1))

    def action_guess_less(self) -> None:
        self._turn(lambda chat: knobs.deeper(chat, -1))

    def _turn(self, turn: Callable[[Chat], str]) -> None:
        """Says how it stands now."""
        try:
            said = turn(self.conductor.chat)
        except LocalspecError as error:
            said = f"{error.message}. {error.hint}"
        self.clear_notifications()  # the one before is no longer so
        self.tell(printable(said, keep="\n"))
        self.show_doing(self.status_line.status.doing, self.status_line.status.share)
        self.draw_soon()

    async def action_compare(self) -> None:
        if self.conductor.busy:
            self.tell("something runs: wait for its end, or stop it first")
            return
        await self.push_screen(CompareScreen(self.conductor.stop))
        self.conductor.put(Job("compare"))

    @property
    def comparison(self) -> CompareScreen | None:
        """The one that is on the screen, perhaps below another dialogue."""
        return next((one for one in self.screen_stack if isinstance(one, CompareScreen)), None)

    # -- models

    def action_pick_model(self) -> None:
        self._pick("model")

    def action_pick_draft(self) -> None:
        self._pick("draft")

    @work(exclusive=True, group="pick")
    async def _pick(self, command: str) -> None:
        """What was chosen is loaded by the command for it."""
        if (server := self.conductor.server) is not None:
            self.tell(f"{server} has its models: none is loaded here")
            return
        info = self.status_line.status.info
        used = [] if info is None else [Path(file) for file in (info.target, info.draft) if file is not None]
        loaded = None if info is None else info.draft if command == "draft" else info.target
        catalogue = self.opener.catalogue(used)
        target = None
        if command == "draft":
            target = await asyncio.to_thread(catalogue.model, used[0]) if used else None
            if target is None:
                self.tell("a draft model is chosen for a model, and none is loaded")
                return
        judge = Judge.of(self.conductor.chat.values, self.opener.measured)
        chosen = await self.push_screen_wait(
            ModelPicker(catalogue, judge, target, used=Path(loaded) if loaded else None)
        )
        if chosen is not None:
            self.conductor.put(Job("command", f"/{command} {chosen}"))
