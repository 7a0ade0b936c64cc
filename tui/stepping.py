"""What the app does in step mode; `localspec.tui.actions` says which key does which."""

from __future__ import annotations

from localspec.talk.engine_commands import step_mode
from localspec.tui import actions
from localspec.tui.panels import Panels
from localspec.tui.step_words import step_words
from localspec.types import Paced


class Stepping(Panels):
    """The app, as far as an answer waits for keys."""

    async def show_pace(self, event: Paced) -> None:
        """A step was made, or the first is waited for."""
        await self.transcript.tell_step(step_words(self._trace))
        if not event.left:
            one, on = (actions.first_key(name, self.keys) for name in ("step", "run-on"))
            self.show_doing(f"waits for a key: {one} one step, {on} to the end", None)

    async def action_step_mode(self) -> None:
        chat = self.conductor.chat
        if (server := self.conductor.server) is not None:
            self.tell(f"{server} makes its steps by itself")
            return
        chat.running.pace(not chat.running.paced)
        self.clear_notifications()  # the one before is no longer so
        self.tell(step_mode(chat))
        await self.transcript.tell_step("")

    def action_step(self) -> None:
        if not self.conductor.chat.running.step():
            self._tell_why_not()

    async def action_run_on(self) -> None:
        if self.conductor.chat.running.run_on():
            await self.transcript.tell_step("")
        else:
            self._tell_why_not()

    def _tell_why_not(self) -> None:
        off = not self.conductor.chat.running.paced
        turns_on = actions.first_key("step-mode", self.keys)
        self.clear_notifications()
        self.tell(f"step mode is off: {turns_on} turns it on" if off else "no answer waits for a step")
