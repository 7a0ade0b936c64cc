"""Where each token of an answer came from: who guessed it and how far ahead, and what else might have stood there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from textwrap import wrap
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.geometry import Region
from textual.message import Message
from textual.widgets import Static

from localspec.talk.trace import AnswerTrace, Refused
from localspec.text.layout import flow
from localspec.text.printable import one_line
from localspec.tui.lines import RowsView
from localspec.tui.marks import colours_of, marks_of
from localspec.tui.step_words import step_words
from localspec.tui.token_lines import Shown, TokenLines
from localspec.tui.tree_view import REJECTED
from localspec.tui.visible import visible
from localspec.types import TokenInfo

#: There is no trace.
NOTHING = "no answer was made since this conversation was opened: nothing is known of its tokens"
#: What stands for the guesses of a token where nobody knows them.
UNTRACED = "its tree was not asked for (F3 or F4 was closed)"
JOINED = "its step came together with others: what was guessed here is not known"
_RIVAL = 16  # cells of a token that might have stood there
_LEAST_STRENGTH, _FADE = 40, 15  # per cent: of the palest colour, and what each depth takes from it


class TokenText(RowsView):
    """The tokens of one answer. Guessed ones are underlined, in their drafter's colour, paler the deeper they were
    guessed; a sign tells the drafter where its guesses begin, another one where a guess was refused. A cursor stands on
    one token."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", "Token before", show=False),
        Binding("right", "move(1)", "Next token", show=False),
        Binding("up", "move_line(-1)", "Line above", show=False),
        Binding("down", "move_line(1)", "Line below", show=False),
        Binding("home", "first", "First token", show=False),
        Binding("end", "last", "Last token", show=False),
        Binding("pageup", "move_page(-1)", "Page up", show=False),
        Binding("pagedown", "move_page(1)", "Page down", show=False),
        Binding("d", "depths", "Depths"),
    ]

    class Moved(Message):
        """The cursor stands on another token, or on the first one that came."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.cursor = 0
        self._trace = AnswerTrace()
        self._laid = TokenLines(1)
        self._depths = False
        self._follows = True  # the cursor goes along with the end
        self._colours: dict[str, str] = {}

    def show(self, trace: AnswerTrace) -> None:
        """An answer as far as it has come; if it is the same one, grown, only what is new is laid out."""
        if trace is not self._trace:
            self._trace, self.cursor, self._follows = trace, 0, trace.finished is None
            self._lay_out()
        else:
            self._grow()

    @property
    def token(self) -> TokenInfo | None:
        """The one under the cursor."""
        return self._trace.tokens[self.cursor] if self.cursor < len(self._trace.tokens) else None

    # -- layout

    def on_resize(self) -> None:
        if self.columns != self._laid.width:
            self._lay_out()
        else:
            self._reveal()

    def _lay_out(self) -> None:
        self._laid = TokenLines(self.columns, depths=self._depths)
        self.refresh_all()
        self._grow()

    def _grow(self) -> None:
        if not self.columns:
            return
        known = len(self._laid.tokens)
        fresh = self._trace.tokens[known:]
        self._colours = colours_of(self._trace.drafters)
        first = len(self._laid) - 1
        places = range(known, len(self._trace.tokens))
        refused = {place for place in places if self._trace.refused(place)}
        self._laid.add(fresh, marks_of(self._trace.drafters), refused)
        if fresh:
            self.refresh_lines(first, len(self._laid) - first)
        self.set_row_count(len(self._laid))
        if self._follows or not known:
            self._put_cursor(len(self._laid.tokens) - 1 if self._follows else self.cursor)

    # -- rows

    def row(self, at: int) -> Content:
        parts: list[tuple[str, str]] = []
        for place in self._laid.line(at):
            shown = self._laid.tokens[place]
            under = " reverse" if place == self.cursor else ""
            style = self._style(shown, 100 if under else _LEAST_STRENGTH) + under
            parts += [(shown.blank, style), (shown.mark, "dim" + under), (shown.text, style)]
        return Content.assemble(*parts)

    def _style(self, shown: Shown, least: int) -> str:
        if not shown.source:
            return ""
        strength = max(100 - _FADE * (shown.depth - 1), least)
        return f"{self._colours[shown.source]} {strength}% underline"

    # -- the cursor

    def _put_cursor(self, place: int) -> None:
        before, last = self.cursor, len(self._trace.tokens) - 1
        self.cursor = min(max(place, 0), max(last, 0))
        if self.cursor < len(self._laid.tokens):  # else it is shown as soon as there is room to lay anything out
            for line in {self._laid.line_of(before), self._laid.line_of(self.cursor)}:
                self.refresh_lines(line)
            self._reveal()
        self.post_message(self.Moved())

    def _reveal(self) -> None:
        line = self._laid.line_of(self.cursor)
        # By force: that there is something to scroll is known only after the next layout.
        self.scroll_to_region(Region(0, line, 1, 1), animate=False, immediate=True, force=True)

    def _go(self, place: int) -> None:
        """Somebody moves the cursor: it stays there, unless that is the end of what has come."""
        self._put_cursor(place)
        self._follows = self._trace.finished is None and self.cursor == len(self._trace.tokens) - 1

    def action_move(self, by: int) -> None:
        self._go(self.cursor + by)

    def action_move_line(self, by: int) -> None:
        """To the token in another line that stands about where the cursor stood."""
        line = min(max(self._laid.line_of(self.cursor) + by, 0), len(self._laid) - 1)
        place = self._laid.token_at(line, self._laid.column_of(self.cursor))
        if place is not None:
            self._go(place)

    def action_move_page(self, by: int) -> None:
        self.action_move_line(by * max(self.visible_rows - 1, 1))

    def action_first(self) -> None:
        self._go(0)

    def action_last(self) -> None:
        self._go(len(self._trace.tokens) - 1)

    def action_depths(self) -> None:
        """Depths of all guesses, or none."""
        self._depths = not self._depths
        self._lay_out()
        self._put_cursor(self.cursor)

    def on_click(self, event: Click) -> None:
        place = self._laid.token_at(event.y + self.scroll_offset.y, event.x)
        if place is not None:
            self._go(place)


class Provenance(Vertical):
    """An answer by its tokens: a legend above, the token under the cursor below."""

    BORDER_TITLE = "Where the tokens came from"
    DEFAULT_CSS = """
    Provenance {
        #token {
            border-top: solid $border-blurred;
        }
        TokenText {
            height: 1fr;
        }
    }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._trace = AnswerTrace()

    def compose(self) -> ComposeResult:
        yield _Lines(id="legend")
        yield TokenText()
        yield _Lines(id="token")

    def show(self, trace: AnswerTrace) -> None:
        self._trace = trace
        self.query_one(TokenText).show(trace)
        self._describe()

    def on_resize(self) -> None:
        self._describe()

    def on_token_text_moved(self) -> None:
        self._describe()

    def _describe(self) -> None:
        if width := self.scrollable_content_region.width:
            text = self.query_one(TokenText)
            self.query_one("#legend", _Lines).show(legend(self._trace, width), width)
            told = detail(self._trace, text.cursor, width)
            if self._trace.started is None:
                told = Content("\n".join(wrap(NOTHING, width)))
            elif self._trace.paced and self._trace.steps:
                told = Content("\n".join((*wrap(step_words(self._trace), width), ""))) + told
            self.query_one("#token", _Lines).show(told, width)


class _Lines(Static):
    """Lines of text. It grows with them and stays as high as it was, since another height lays out the screen."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, markup=False)
        self._shown = Content.empty()
        self._least = (0, 0)  # for this width, this height

    def show(self, content: Content, width: int) -> None:
        """Lines that are ``width`` cells wide at most."""
        least = self._least[1] if self._least[0] == width else 1
        height = max(content.get_height({}, width), least)
        if self._least != (width, height):
            self._least = (width, height)
            self.styles.height = height + self.gutter.height
        if not content.is_same(self._shown):
            self._shown = content
            self.update(content, layout=False)


def legend(trace: AnswerTrace, width: int) -> Content:
    """Who guessed how many of the tokens, with signs and colours."""
    counts = Counter(token.source for token in trace.tokens)
    marks, colours = marks_of(trace.drafters), colours_of(trace.drafters)
    parts = [f"{marks[name]} {one_line(name)} {counts[name]}" for name in trace.drafters]
    others = [f"the target's own {counts['']}"]
    if trace.refusals:
        others.append(f"{REJECTED} guesses refused {trace.refusals}")
    content = Content("\n".join(flow("", [*parts, *others], width)))
    for name, part in zip(trace.drafters, parts, strict=True):
        at = content.plain.find(part)
        if at >= 0:
            content = content.stylize(f"{colours[name]} underline", at, at + len(part))
    return content


def detail(trace: AnswerTrace, place: int, width: int) -> Content:
    """All that is known of the token at a place: who guessed it, or what was guessed there and refused,
    probabilities, and what else might have stood there."""
    count = len(trace.tokens)
    if place >= count:
        return Content("no token yet")
    token = trace.tokens[place]
    refused = () if token.source else trace.refused(place)
    parts = [visible(token.piece, width), f"{place + 1} of {count}", _guess(token, refused), *_probabilities(token)]
    lines = flow("", parts, width)
    if refused is None:
        lines += wrap(JOINED if trace.traced else UNTRACED, width)
    elif refused:
        lines += wrap("guessed here and not drawn:", width)
        marks = marks_of(trace.drafters)
        lines += flow("  ", [_refusal(one, marks.get(one.source, "")) for one in refused], width)
    if token.top:
        rivals = [f"{visible(one.piece, _RIVAL)} {math.exp(one.logprob):.3f}" for one in token.top]
        lines += flow("likeliest: ", rivals, width)
    content = Content("\n".join(lines))
    return content.stylize("bold", 0, len(parts[0]))


def _guess(token: TokenInfo, refused: Sequence[Refused] | None) -> str:
    if token.source:
        return f"guessed by {one_line(token.source)} at depth {token.depth}"
    return "not guessed" if refused == () else "the target's own"


def _refusal(guess: Refused, mark: str) -> str:
    """``ᵃ␣is (draft 0.50, target 0.02)``."""
    text = visible(guess.piece, _RIVAL) if guess.piece else f"token {guess.token}"
    target = "" if guess.target_p is None else f", target {guess.target_p:.2f}"
    return f"{mark}{text} (draft {guess.draft_p:.2f}{target})"


def _probabilities(token: TokenInfo) -> Sequence[str]:
    both = {"draft": token.draft_p, "target": token.target_p}
    return [f"{name} p {p:.3f}" for name, p in both.items() if p is not None]
