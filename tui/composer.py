"""Where messages are written: enter sends, pastes stay one message, up finds what was written before."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static, TextArea

from localspec.talk.completion import Completion
from localspec.talk.pastes import described, is_long
from localspec.text.printable import printable
from localspec.tui import actions
from localspec.tui.costs import Costs
from localspec.tui.turns import plain
from localspec.tui.visible import spelled

Complete = Callable[[str], list[Completion]]
#: Lines of completions that are shown.
MOST_OFFERS = 6
_LABEL = re.compile(r"\[pasted [^\[\]]* #(\d+)\]")


class Pastes:
    """Long texts, each shown as ``[pasted 300 lines #1]`` until the message is sent."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._foreign: set[int] = set()

    def fold(self, text: str, *, foreign: bool = False) -> str:
        """A label for a text that is long, any other text as it is. A ``foreign`` one was not written here."""
        if not is_long(text):
            return text
        self._texts.append(text)
        if foreign:
            self._foreign.add(len(self._texts))
        return f"[{described(text)} #{len(self._texts)}]"

    def unfold(self, text: str, *, foreign: bool = True) -> str:
        """The text with what its labels stand for; a label that was changed is text. Labels of ``foreign`` texts may
        stay."""
        return _LABEL.sub(lambda label: self._text(label, foreign), text)

    def _text(self, label: re.Match[str], foreign: bool) -> str:
        number = int(label[1])
        known = 0 < number <= len(self._texts) and (foreign or number not in self._foreign)
        whole = self._texts[number - 1] if known else ""
        return whole if known and label[0] == f"[{described(whole)} #{number}]" else label[0]


class Past:
    """Earlier messages, walked through from the newest; those that begin as what was written when the walk began."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._entries = [*entries]
        self._at: int | None = None
        self._draft = ""

    def add(self, text: str) -> None:
        if not self._entries or self._entries[-1] != text:
            self._entries.append(text)
        self.forget_place()

    def forget_place(self) -> None:
        """The next walk begins at the newest."""
        self._at = None

    def back(self, text: str) -> str | None:
        """The one before; ``text`` is what stands there now. ``None``: there is none."""
        if self._at is None:
            self._draft = text
        start = len(self._entries) if self._at is None else self._at
        return self._find(range(start - 1, -1, -1))

    def on(self) -> str | None:
        """The next newer one, in the end what was written at first."""
        if self._at is None:
            return None
        found = self._find(range(self._at + 1, len(self._entries)))
        if found is None:
            self._at = None
            return self._draft
        return found

    def _find(self, places: Sequence[int]) -> str | None:
        for at in places:
            if self._entries[at].startswith(self._draft) and self._entries[at] != self._draft:
                self._at = at
                return self._entries[at]
        return None


class Offers(Static):
    """What tab offers."""

    def __init__(self) -> None:
        super().__init__(id="offers", markup=False)
        self.display = False

    def show(self, offers: Sequence[Completion]) -> None:
        if not (offers or self.display):
            return  # this is asked at every key
        lines = [f"{spelled(one.text, keep=' '):<16} {one.note}".rstrip() for one in offers[:MOST_OFFERS]]
        if len(offers) > MOST_OFFERS:
            lines.append(f"… and {len(offers) - MOST_OFFERS} more")
        self.update(plain("\n".join(lines)))
        self.display = bool(offers)


class Composer(TextArea):
    """The editor.

    Args:
        complete: what tab offers for the text before the cursor.
        keymap: keys by the ids of their actions, in place of the defaults.
        past: earlier messages, the oldest first.
    """

    class Sent(Message):
        """A message or a command, to be done. ``typed`` is the text without what was pasted."""

        def __init__(self, text: str, typed: str) -> None:
            super().__init__()
            self.text = text
            self.typed = typed

    def __init__(
        self,
        complete: Complete,
        keymap: Mapping[str, str],
        past: Sequence[str] = (),
        *,
        multiline: bool = False,
        id: str = "composer",
    ) -> None:
        super().__init__(
            id=id,
            compact=True,
            highlight_cursor_line=False,
            placeholder="Write a message, or / for commands",
            tab_behavior="focus",
        )
        self.multiline = multiline
        self._methods = actions.methods("composer", keymap)
        self._complete = complete
        self._past = Past(past)
        self._pastes = Pastes()
        self._walks = False  # the text comes from the past, and was not changed
        self._cycle: tuple[str, list[str], int] | None = None

    # -- the text

    @property
    def message(self) -> str:
        """What is written, with what was pasted."""
        return self._pastes.unfold(self.text)

    @property
    def typed(self) -> str:
        """The same with labels in place of what was pasted: files are mentioned in what was written."""
        return self._pastes.unfold(self.text, foreign=False)

    def get_line(self, line_index: int) -> Text:
        """As it is drawn: a name or an earlier message may hold what would steer the terminal."""
        return Text(printable(self.document.get_line(line_index), keep="\t"), end="", no_wrap=True)

    def write(self, text: str) -> None:
        """Puts a text in place of what is there."""
        self.text = text
        self.move_cursor(self.document.end)

    def give_back(self, text: str) -> None:
        """Puts a text before what is there."""
        self.write("\n\n".join(one for one in (self._pastes.fold(text), self.text) if one))

    def remember(self, text: str) -> None:
        self._past.add(text)

    # -- keys

    async def _on_key(self, event: events.Key) -> None:
        action = self._does(event.aliases)
        if action is None:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        await self.run_action(action)

    def _does(self, keys: Sequence[str]) -> str | None:
        """What keys do. It is done at once: a binding would be looked for in the whole screen first, and letters that
        were typed after ctrl+u would be there before the line is emptied."""
        for key in keys:
            bound = (one.action for one in self._bindings.key_to_bindings.get(key, ()) if not one.priority)
            if (action := self._methods.get(key) or next(bound, None)) is not None:
                return action
        return None

    def action_send(self) -> None:
        """Sends, or begins a new line where more is to come."""
        before = self._before_cursor()
        if self.multiline and not self.text.startswith("/"):
            if not self.text.endswith(("/", "\\")):
                self.action_newline()
                return
            self.write(self.text[:-1])
        elif before.endswith("\\"):
            self.action_delete_left()
            self.action_newline()
            return
        text, typed = self.message, self.typed
        if text.strip():
            self.text = ""
            self._past.forget_place()
            self.post_message(self.Sent(text, typed))

    def action_newline(self) -> None:
        self.insert("\n")
        self.scroll_cursor_visible()

    def action_complete(self) -> None:
        """What all offers have in common; pressed again, one after the other."""
        if self._cycle is not None and self.text == self._cycle[0] + self._cycle[1][self._cycle[2]]:
            head, words, at = self._cycle
            self._cycle = (head, words, (at + 1) % len(words))
            self.write(head + words[self._cycle[2]])
            return
        before = self._before_cursor()
        offers = self._complete(before)
        if not offers:
            self.screen.focus_next()
            return
        words = [one.text for one in offers]
        typed = before[len(before) - offers[0].replaces :]
        head = before[: len(before) - offers[0].replaces]
        common = _common_start(words)
        if len(words) > 1 and len(common) <= len(typed):
            common = typed
            if self.text == before:
                self._cycle = (head, words, 0)
                common = words[0]
        rest = self.text[len(before) :]
        self.write(head + common + rest)
        self.move_cursor(_end_of(head + common))

    def action_cursor_up(self, select: bool = False) -> None:
        if select or not self.navigator.is_first_wrapped_line(self.cursor_location):
            super().action_cursor_up(select)
        else:
            self._walk(self._past.back(self.message))

    def action_cursor_down(self, select: bool = False) -> None:
        if select or not self.navigator.is_last_wrapped_line(self.cursor_location):
            super().action_cursor_down(select)
        else:
            self._walk(self._past.on())

    def action_delete_left(self) -> None:
        """A label of a paste goes as a whole."""
        before = self._before_cursor()
        labels = list(_LABEL.finditer(before))
        if self.selection.is_empty and labels and labels[-1].end() == len(before):
            self.delete(_end_of(before[: labels[-1].start()]), self.cursor_location)
        else:
            super().action_delete_left()

    async def action_delete_or_leave(self) -> None:
        """As a shell has it; a dialogue is left by its own keys."""
        if self.text or self.screen.is_modal:
            self.action_delete_right()
        else:
            await self.run_action("app.leave")

    def _walk(self, text: str | None) -> None:
        if text is not None:
            self.write(self._pastes.fold(text))
            self._walks = True

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        self.insert(self._pastes.fold(text, foreign=True))
        self.scroll_cursor_visible()

    def on_text_area_changed(self) -> None:
        if self._walks:
            self._walks = False
        else:
            self._past.forget_place()
        self.screen.query_one(Offers).show(self._complete(self._before_cursor()))
        self.screen.query_one(Costs).weigh(self.typed)

    def _before_cursor(self) -> str:
        return self.get_text_range((0, 0), self.cursor_location)


def _common_start(words: Sequence[str]) -> str:
    first, last = min(words), max(words)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(char for char, _ in same)


def _end_of(text: str) -> tuple[int, int]:
    """Where a text ends, as row and column."""
    return text.count("\n"), len(text) - text.rfind("\n") - 1
