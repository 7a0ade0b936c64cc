"""Finding text in the conversation."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static

from localspec.tui.transcript import Transcript
from localspec.tui.turns import Question, Section, Turn


class FindBar(Horizontal):
    """What is looked for; enter finds the place before, from the end on; escape closes."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(id="find")
        self.display = False
        self._transcript = transcript
        self._text = ""
        self._at = 0

    def compose(self) -> ComposeResult:
        yield Input(placeholder="Find in this conversation", compact=True)
        yield Static(id="found", markup=False)

    def open(self) -> None:
        self.display = True
        self.screen.set_focus(self.query_one(Input))  # at once: `Widget.focus` comes after keys that follow

    def close(self) -> None:
        self.display = False
        self._mark(None)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.next(event.value)

    def on_key(self, event: events.Key) -> None:
        if event.key == "up":
            event.stop()
            self.next(self.query_one(Input).value)

    def next(self, text: str) -> None:
        """The newest place that has the text, then the one before it."""
        found = places(self._transcript, text) if text else []
        self._at = self._at + 1 if text == self._text else 0
        self._text = text
        if not found:
            self._say("nothing found" if text else "")
            self._mark(None)
            return
        at = self._at % len(found)
        place = found[len(found) - 1 - at]
        self._say(f"{len(found) - at} of {len(found)}")
        self._mark(place)
        self._transcript.reveal(place)

    def _say(self, text: str) -> None:
        self.query_one("#found", Static).update(text)

    def _mark(self, place: Widget | None) -> None:
        for one in self._transcript.query(".-found"):
            one.remove_class("-found")
        if place is not None:
            place.add_class("-found")


def places(transcript: Transcript, text: str) -> list[Widget]:
    """Questions and blocks of answers that have the text, upper and lower case alike, in their order."""
    wanted = text.casefold()
    found: list[Widget] = []
    for turn in transcript.query(Turn):
        if wanted in turn.question.casefold():
            found += turn.query(Question)
        if wanted in turn.answer.casefold():
            for section in turn.query(Section):
                found += _places(section, wanted)
    return found


def _places(section: Section, wanted: str) -> list[Widget]:
    """Of a section that is no widgets yet, all of it."""
    if section.blocks:
        return [block for block in section.blocks if wanted in (block.source or "").casefold()]
    return [section] if wanted in section.text.casefold() else []
