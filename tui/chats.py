"""What the app does about saved conversations: their versions, the list of them, and what is typed in each."""

from __future__ import annotations

from textual.widgets import TextArea

from localspec.talk import commands
from localspec.tui.conductor import Job
from localspec.tui.drafts import Drafts
from localspec.tui.handling import Handling
from localspec.tui.sessions import Choice, SessionsScreen


class Chats(Handling):
    """The app, as far as saved conversations go."""

    _drafts: Drafts | None = None
    _waits: tuple[str, ...] = ()  # messages that were sent and have not begun
    _aside = ("", "")  # the session that was chosen, and what was typed when it was

    # -- versions

    def action_version_before(self) -> None:
        self._walk(-1)

    def action_version_after(self) -> None:
        self._walk(1)

    def _walk(self, places: int) -> None:
        self.conductor.stop()
        self.conductor.put(Job("walk", places=places))

    # -- the list

    def action_sessions(self) -> None:
        if self.conductor.book is None:
            self.tell("this conversation is not saved: localspec was started with --no-save-session")
        else:
            self.push_screen(SessionsScreen(self.conductor.book), self._chosen)

    def _chosen(self, choice: Choice | None) -> None:
        if choice is None:
            return
        if choice.command == "session" and self.transcript.kept:
            self._aside = (choice.session, self.composer.message)
        self._instead(f"/{choice.command} {choice.session}")

    # -- what is typed

    def keep_drafts(self) -> None:
        """From now on."""
        if self.conductor.book is not None:
            self._drafts = Drafts(self.conductor.book, self.conductor.tell_news_of_saving)
            self.run_worker(self._drafts.run(), group="drafts")

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        if event.text_area is self.composer:
            self._keep(soon=not event.text_area.text)

    def keep_waiting(self, texts: tuple[str, ...]) -> None:
        """Messages that wait are not sent yet, either."""
        self._waits = tuple(text for text in texts if not commands.is_command(text))
        self._keep(soon=True)

    def opened(self, session: str, draft: str) -> None:
        """Another session is gone on with. What was typed when it was chosen stays with the one before; what was typed
        since, or in a conversation that was left for a new one, goes along."""
        if self._drafts is None:
            return
        chosen, aside = self._aside
        text, self._aside = self.composer.message, ("", "")
        leaves = aside if chosen == session and text.startswith(aside) else ""
        self._drafts.move(session, _unsent(leaves))
        if leaves:
            self.composer.write(text[len(leaves) :])
        if draft:
            self.composer.give_back(draft)
        self._keep()

    def _keep(self, *, soon: bool = False) -> None:
        if self._drafts is not None:
            own = _unsent(self.composer.message)
            self._drafts.keep("\n\n".join(text for text in (*self._waits, own) if text), soon=soon)

    def on_unmount(self) -> None:
        """However the screen ends: what was typed is kept."""
        book = self.conductor.book
        if self._drafts is not None and book is not None:
            self._keep()
            if not book.tree:
                self._drafts.keep("")  # the history has it: no session for a few words alone
            self._drafts.flush()


def _unsent(text: str) -> str:
    """What is worth keeping: no half of a command."""
    return "" if commands.is_command(text) else text
