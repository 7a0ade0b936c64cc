"""The conversation on the screen: turns, what was said beside them, and where the screen stands in it."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.widget import Widget
from textual.widgets import Static

from localspec.chat.conversation import Turn as PastTurn
from localspec.talk.turn import Asked, LeftOut, TurnEvent
from localspec.text.thinking import Piece
from localspec.tui.place import Place, place_of, within
from localspec.tui.resting import Resting, around, settle
from localspec.tui.turns import Quiet, Section, Turn
from localspec.types import Notice

#: Turns of a conversation that are shown at once; the others when somebody wants to see them.
MOST_TURNS = 16
TO_TRY = (
    "Ask something: type it below, enter sends. Ctrl+j begins a new line.",
    "Give it a file: ask about @FILE; tab completes its name.",
    "See what is guessed ahead: F3, then ask the same once more (ctrl+r).",
)


class Empty(Vertical):
    """What is shown while nothing was said."""

    def compose(self) -> ComposeResult:
        yield Static("localspec", id="name", markup=False)
        yield Static("The same text as the model alone, sooner.", id="claim", markup=False)
        for number, text in enumerate(TO_TRY, start=1):
            yield Static(f"{number}  {text}", classes="try", markup=False)
        yield Static("F1 lists keys and commands.", classes="try", markup=False)


class Earlier(Static):
    """Stands for turns that are not shown."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"{count} earlier exchange{'' if count == 1 else 's'}: click, or go to the start", markup=False
        )

    def on_click(self) -> None:
        transcript = self.parent
        assert isinstance(transcript, Transcript)
        self.run_worker(transcript.show_earlier())


class Transcript(VerticalScroll):
    """Follows what comes until somebody scrolls back, and again from the end on."""

    virtual_size: Reactive[Size] = Reactive(Size(0, 0), layout=False)

    def __init__(self, turns: Sequence[PastTurn] = ()) -> None:
        super().__init__(id="transcript")
        self._earlier: list[tuple[PastTurn, PastTurn | None]] = []
        self._turns: list[Turn] = []  # all on the screen, in order; those that were not kept too
        self._replaced: list[Turn] = []
        self._current: Turn | None = None
        self._places: Sequence[tuple[int, int]] = ()
        self._place: Place | None = None  # of who reads, unless it is the end
        self._width = 0
        self._initial = turns

    def compose(self) -> ComposeResult:
        yield from self._shown(self._initial)

    def on_mount(self) -> None:
        self.anchor()

    # -- what is there

    @property
    def kept(self) -> list[Turn]:
        """Turns on the screen that are part of the conversation."""
        return [turn for turn in self._turns if turn.kept]

    @property
    def last(self) -> Turn | None:
        """The newest turn."""
        return self._turns[-1] if self._turns else None

    # -- a turn

    async def take(self, event: TurnEvent) -> None:
        """An event of the turn that runs."""
        match event:
            case Asked():
                await self._begin(event)
            case Piece() if self._current is not None:
                await self._current.add(event)
            case Notice(text=text) | LeftOut(text=text) if self._current is not None:
                await self._current.note(text)
            case _:
                pass

    async def tell_step(self, text: str) -> None:
        """The newest verify step of the turn that runs."""
        if self._current is not None:
            await self._current.tell_step(text)

    async def _begin(self, asked: Asked) -> None:
        await self._forget_unkept(asked.question)
        while self._earlier and asked.replacing > len(self.kept):
            await self.show_earlier()
        self._replaced = self.kept[len(self.kept) - asked.replacing :] if asked.replacing else []
        for turn in self._replaced:
            turn.display = False
        self._current = Turn(asked.question)
        self._turns.append(self._current)
        await self._put(self._current)

    async def _forget_unkept(self, question: str) -> None:
        """The same question asked again takes the place of what brought nothing."""
        if self._turns and not self._turns[-1].kept and self._turns[-1].question == question:
            await self._turns.pop().remove()

    async def end(self, kept: bool, footer: Sequence[str]) -> None:
        """The turn is over. One that brought nothing and has nothing to say of it was never asked."""
        turn, self._current = self._current, None
        if turn is None:
            return
        turn.kept = kept
        if kept:
            for old in self._replaced:
                self._turns.remove(old)
                await old.remove()
        else:
            for old in self._replaced:
                old.display = True
        self._replaced = []
        if kept or footer:
            await turn.end(footer)
        else:
            self._turns.remove(turn)
            await turn.remove()
        await self._show_emptiness()

    # -- beside turns

    async def say(self, text: str, kind: str = "said") -> None:
        """A block of lines from a command, a notice, or an error."""
        await self._put(Quiet(text, kind=kind))

    async def _put(self, widget: Widget) -> None:
        await self.query(Empty).remove()
        await self.mount(widget)

    # -- another conversation

    async def show(self, turns: Sequence[PastTurn]) -> None:
        """The conversation as it is now. What is on the screen already stays as it is."""
        pairs = exchanges(turns)
        common = self._in_common(pairs)
        if common < len(self._earlier) or (common == len(self._earlier) and pairs[common:]):
            await self._rebuild(pairs)
            return
        for turn in self.kept[common - len(self._earlier) :]:
            self._turns.remove(turn)
            await turn.remove()
        new = [Turn.past(*pair) for pair in pairs[common:]]
        self._turns += new
        await self.mount_all(new)
        await self._show_emptiness()

    async def begin_anew(self, *, clears: bool) -> None:
        """Another conversation, in which nothing was said. What can be found nowhere else stays to be read, as far as
        it is shown, and is part of nothing any more."""
        if clears:
            await self._rebuild(())
            await self._show_emptiness()
            return
        self._turns.clear()
        self._earlier.clear()
        await self.query(Earlier).remove()

    async def number(self, places: Sequence[tuple[int, int]]) -> None:
        """Which of its versions every exchange is, and how many there are."""
        self._places = places
        for turn, place in zip(reversed(self.kept), reversed(places), strict=False):
            await turn.number(*place)

    def _in_common(self, pairs: Sequence[tuple[PastTurn, PastTurn | None]]) -> int:
        """Exchanges at the start that are shown as they are, or were left unshown."""
        for at, (question, answer) in enumerate(self._earlier):
            if at >= len(pairs) or pairs[at][0] is not question or pairs[at][1] is not answer:
                return at
        at = len(self._earlier)
        for turn, (question, answer) in zip(self.kept, pairs[at:], strict=False):
            said = "" if answer is None else answer.message.content
            if turn.question != question.message.content or turn.answer != said:
                break
            at += 1
        return at

    async def _rebuild(self, pairs: Sequence[tuple[PastTurn, PastTurn | None]]) -> None:
        self._turns.clear()
        await self.remove_children()
        await self.mount_all(self._made(pairs))
        self.anchor()

    def _shown(self, turns: Sequence[PastTurn]) -> list[Widget]:
        return self._made(exchanges(turns)) or [Empty()]

    def _made(self, pairs: Sequence[tuple[PastTurn, PastTurn | None]]) -> list[Widget]:
        self._earlier = list(pairs[: max(len(pairs) - MOST_TURNS, 0)])
        self._turns = [Turn.past(*pair) for pair in pairs[len(self._earlier) :]]
        return [*([Earlier(len(self._earlier))] if self._earlier else []), *self._turns]

    async def show_earlier(self) -> None:
        """More of the turns that are not shown yet."""
        if not self._earlier:
            return
        cut = max(len(self._earlier) - MOST_TURNS, 0)
        more = [Turn.past(*pair) for pair in self._earlier[cut:]]
        del self._earlier[cut:]
        await self.query(Earlier).remove()
        self._turns[:0] = more
        await self.mount_all([*([Earlier(cut)] if cut else []), *more], before=0)
        await self.number(self._places)

    async def _show_emptiness(self) -> None:
        if not self.children:
            await self.mount(Empty())

    # -- where the screen stands

    def settle(self) -> None:
        """What is far from here rests."""
        turns = (turn for turn in self._turns if turn is not self._current and turn.display)
        parts = (part for turn in self._turns if not turn.rests for part in turn.parts())
        view = Region(0, round(self.scroll_y), *self.size)
        woken = settle(((turn, within(turn, self)) for turn in turns), view)
        if settle(((part, within(part, self)) for part in parts), view) or woken:
            self.call_after_refresh(self.settle)

    def on_section_built(self, event: Section.Built) -> None:
        """Nothing was laid out in the meantime, so what was woken had no place, and nobody would look at it again."""
        event.stop()
        self.call_after_refresh(self.settle)

    def watch_virtual_size(self) -> None:
        """What somebody looks at stays where it is, though something above it has another height now. A second
        layout, as Textual does it, finds the end again when something folds. Lines that come need none, since the
        place of the bar is kept free."""
        moved = 0 if self._place is None else self._place.moved(self)
        if moved:
            self._move(moved)
        self._remember()
        if self._current is None:
            self.refresh(layout=True)

    def _move(self, rows: int) -> None:
        """So many rows at once; a movement that goes on ends so much farther."""
        left = self.scroll_target_y - self.scroll_y
        self.scroll_relative(y=rows, animate=False, immediate=True)
        if left:
            self.scroll_relative(y=left, immediate=True)

    def _remember(self) -> None:
        self._place = None if self.is_vertical_scroll_end else place_of(self, grows=self._current)

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        self._remember()
        self.call_after_refresh(self.settle)

    def on_resize(self, event: events.Resize) -> None:
        """Heights are others where lines are broken elsewhere."""
        if event.size.width != self._width:
            self._width = event.size.width
            for part in self.query(Resting):
                part.wake()
            self.call_after_refresh(self.settle)

    def reveal(self, widget: Widget) -> None:
        """Scrolls to it, even if it rests."""
        for part in around(widget):
            part.wake()
        self.call_after_refresh(widget.scroll_visible, animate=False, top=True)

    async def to_start(self) -> None:
        await self.show_earlier()
        self.scroll_home(animate=False)

    def to_end(self) -> None:
        self.anchor()
        self.scroll_end(animate=False, immediate=True)


def exchanges(turns: Sequence[PastTurn]) -> list[tuple[PastTurn, PastTurn | None]]:
    """Questions with their answers, where they have one."""
    pairs: list[tuple[PastTurn, PastTurn | None]] = []
    for turn in turns:
        if turn.message.role == "user":
            pairs.append((turn, None))
        elif pairs and pairs[-1][1] is None:
            pairs[-1] = (pairs[-1][0], turn)
    return pairs
