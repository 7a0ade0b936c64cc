"""One question and its answer on the screen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from textwrap import wrap
from typing import Any, TypeVar

from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widgets import Collapsible, Label, Markdown, Static
from textual.widgets.markdown import MarkdownBlock, MarkdownFence

from localspec.chat.conversation import Turn as PastTurn
from localspec.talk.attach import Attachment, parted
from localspec.text.layout import flow
from localspec.text.printable import printable
from localspec.text.thinking import Piece
from localspec.tui.growing import Growing
from localspec.tui.resting import Resting, Tall
from localspec.tui.sections import Parser, Sections, references

#: Characters of a section of an answer, and at most inside a block.
ENOUGH, MOST = 1000, 8000
#: Sections of a chapter.
CHAPTER = 16
#: Lines and characters of a question that are shown.
MOST_LINES, MOST_CHARACTERS = 30, 6000
#: Files that are named of those that came with it.
MOST_FILES = 10
#: Characters of thinking that are shown: more would have to be laid out anew whenever it grows.
MOST_THINKING = 20_000


def harmless(text: str) -> str:
    """Text of models, files and names for the screen; never markup."""
    return printable(text.replace("\r\n", "\n"), keep="\n\t")


def plain(text: str) -> Content:
    return Content(harmless(text))


class Quiet(Static):
    """A line beside the conversation: a notice, what a command says, how an answer went."""

    def __init__(self, text: str, *, kind: str = "") -> None:
        super().__init__(plain(text), markup=False, classes=kind)
        self.text = text

    def say(self, text: str) -> None:
        """Another text in place of this one."""
        self.text = text
        self.update(plain(text))


class Foot(Quiet):
    """How an answer went, in parts; only one that is wider than the screen is broken, between its words."""

    def __init__(self, parts: Sequence[str]) -> None:
        super().__init__(" · ".join(parts), kind="footer")
        self._parts = tuple(map(harmless, parts))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> Content:
        return Content("\n".join(self._lines(self.content_size.width)))

    def _lines(self, width: int) -> list[str]:
        return [part for line in flow("", self._parts, width) for part in wrap(line, max(width, 1)) or [line]]


Line = TypeVar("Line", bound=Quiet)


class Question(Static):
    """What the user wrote."""

    def __init__(self, text: str) -> None:
        super().__init__(plain(text), markup=False)


def _with_names(files: Sequence[Attachment], words: str) -> str:
    """What the user wrote, cut where it is long, and the files that came with it: names and sizes."""
    return "\n".join([_cut(words), *(f"+ {one.name} ({one.size})" for one in files[:MOST_FILES]), *_more(files)])


def _more(files: Sequence[Attachment]) -> list[str]:
    return [f"… and {len(files) - MOST_FILES} more files"] if len(files) > MOST_FILES else []


def _cut(text: str) -> str:
    lines = text.split("\n")
    if len(lines) > MOST_LINES + 5:
        text = "\n".join([*lines[:MOST_LINES], f"… and {len(lines) - MOST_LINES} more lines"])
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


class Section(Resting):
    """A part of an answer. At first it is drawn line by line (`Growing`). When the answer is over it becomes widgets,
    whose text can be selected, as soon as somebody is near it.

    Attributes:
        goes_on: it begins inside a block, the section before has its start.
    """

    class Built(Message):
        """A section has become widgets."""

    def __init__(self, text: str = "", *, goes_on: bool = False, over: bool = False) -> None:
        super().__init__()
        self.text = text
        self.goes_on = goes_on
        self.references: Mapping[str, Any] = {}
        self._growing: Growing | None = Growing(text)
        self._over = over

    def compose(self) -> ComposeResult:
        yield self._growing or self._markdown()

    def append(self, text: str) -> None:
        self.text += text
        if self._growing is not None:
            self._growing.append(text)

    def approached(self) -> None:
        if self._over and self._growing is not None:
            self.call_later(self._become_widgets)

    async def end(self) -> None:
        """The answer is over."""
        self._over = True
        if not self.rests:
            await self._become_widgets()

    async def _become_widgets(self) -> None:
        # Another conversation may be on the screen by the time that this one is asked.
        if self._growing is not None and self.is_attached:
            growing, self._growing = self._growing, None
            with self.app.batch_update():
                await self.mount(self._markdown())
                await growing.remove()
            self.post_message(self.Built())

    def _markdown(self) -> Markdown:
        return Markdown(self.text, parser_factory=partial(Parser, self.references), open_links=False)

    @property
    def blocks(self) -> list[MarkdownBlock]:
        """Its blocks, once they are widgets."""
        return [
            block for one in self.children if isinstance(one, Markdown) for block in one.query_children(MarkdownBlock)
        ]


def seam(upper: MarkdownBlock, lower: MarkdownBlock, *, goes_on: bool) -> None:
    """What would lie between two blocks of one widget lies between them, though they are of two."""
    above, below = upper.styles.margin, lower.styles.margin
    gap = 0 if goes_on else max(above.bottom, below.top)
    bottom = min(above.bottom, gap)
    upper.styles.margin = (above.top, above.right, bottom, above.left)
    lower.styles.margin = (gap - bottom, below.right, below.bottom, below.left)
    if goes_on and isinstance(upper, MarkdownFence) and isinstance(lower, MarkdownFence):
        for code in upper.query_children(Label):
            code.styles.padding = (*code.styles.padding[:2], 0, code.styles.padding.left)
        for code in lower.query_children(Label):
            code.styles.padding = (0, *code.styles.padding[1:])


class Chapter(Resting):
    """Some sections of a long answer: whatever is laid out costs time, be it at rest or not."""


class Answer(Tall):
    """Markdown that grows."""

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self._cutter = Sections(ENOUGH, MOST, exact=True)
        self._sections: list[Section] = []
        self._chapters: list[Chapter] = []
        self._seams: set[Section] = set()  # sections that are joined with the one before
        for part in self._cutter.push(harmless(text)) if text else ():
            self._sections.append(Section(part.opener + part.text, goes_on=part.goes_on, over=True))
        self._over = bool(self._sections)
        self._explain()

    def compose(self) -> ComposeResult:
        for at in range(0, len(self._sections), CHAPTER):
            self._chapters.append(Chapter(*self._sections[at : at + CHAPTER]))
        yield from self._chapters

    async def add(self, text: str) -> None:
        for part in self._cutter.push(harmless(text)):
            if part.begins or not self._sections:
                await self._begin(Section(goes_on=part.goes_on))
            self._sections[-1].append(part.opener + part.text)

    async def _begin(self, section: Section) -> None:
        if len(self._sections) % CHAPTER == 0:
            self._chapters.append(Chapter())
            await self.mount(self._chapters[-1])
        self._sections.append(section)
        await self._chapters[-1].mount(section)

    async def end(self) -> None:
        """Nothing is added to it any more."""
        self._over = True
        self._explain()
        for section in self._sections:
            await section.end()

    def _explain(self) -> None:
        """Any section may tell what links of the others stand for."""
        known = references("".join(section.text for section in self._sections))
        for section in self._sections:
            section.references = known

    def on_markdown_table_of_contents_updated(self, event: Markdown.TableOfContentsUpdated) -> None:
        """A section has become widgets."""
        event.stop()
        at = next(at for at, section in enumerate(self._sections) if section is event.markdown.parent)
        for section, after in pairwise(self._sections[max(at - 1, 0) : at + 2]):
            if section.blocks and after.blocks and after not in self._seams:
                self._seams.add(after)
                seam(section.blocks[-1], after.blocks[0], goes_on=after.goes_on)

    def parts(self) -> Iterator[Resting]:
        """What may rest while others of it are seen: nothing is added to it any more."""
        last = None if self._over or not self._sections else self._sections[-1]
        for at, chapter in enumerate(self._chapters):
            if not chapter.rests:
                yield from (one for one in self._sections[at * CHAPTER : (at + 1) * CHAPTER] if one is not last)
            if last is None or chapter is not self._chapters[-1]:
                yield chapter


class Thinking(Collapsible):
    """What the model thought first, folded; only its size changes while it is."""

    def __init__(self, text: str = "") -> None:
        self._text = text
        self._words = len(text.split())
        self._body = Static(markup=False)
        super().__init__(self._body, title=self._heading(), collapsed=True)

    def add(self, text: str) -> None:
        goes_on = not self._text[-1:].isspace() and not text[:1].isspace()
        self._words += len(text.split()) - (goes_on and bool(self._text and text))
        self._text += text
        self.title = self._heading()
        if not self.collapsed:
            self._show()

    def watch_collapsed(self, collapsed: bool) -> None:
        """Text is there before the layout that shows it, so that all of it is scrolled to."""
        if not collapsed:
            self._show()

    def _show(self) -> None:
        cut = self._text[-MOST_THINKING:]
        self._body.update(plain(cut if cut == self._text else f"…{cut}"))

    def _heading(self) -> str:
        return f"thought: {self._words} word{'' if self._words == 1 else 's'}"


class Turn(Resting):
    """A question, what was thought, the answer, and how it went.

    Attributes:
        question: as it was sent.
        answer: the text of the answer so far.
        kept: whether it is part of the conversation; what runs is not yet.
        footer: how it went, in parts.
    """

    def __init__(self, question: str, answer: str = "", thinking: str = "", *, kept: bool = False) -> None:
        super().__init__()
        self.question = question
        self.answer = answer
        self.kept = kept
        self._thought = Thinking(thinking) if thinking else None
        self._answer = Answer(answer)
        self.footer: tuple[str, ...] = ()
        self._version = ""
        self._foot: Foot | None = None
        self._step: Quiet | None = None

    @classmethod
    def past(cls, question: PastTurn, answer: PastTurn | None) -> Turn:
        turn = cls(
            question.message.content,
            "" if answer is None else answer.message.content,
            "" if answer is None else answer.thinking,
            kept=True,
        )
        if answer is not None and answer.stopped:
            turn.footer = ("stopped",)
        return turn

    def compose(self) -> ComposeResult:
        yield Question(_with_names(*parted(self.question)))
        if self._thought is not None:
            yield self._thought
        yield self._answer
        if self._footing:
            self._foot = Foot(self._footing)
            yield self._foot

    async def add(self, piece: Piece) -> None:
        if piece.kind == "answer":
            self.answer += piece.text
            await self._answer.add(piece.text)
        elif self._thought is None:
            self._thought = Thinking(piece.text)
            await self.mount(self._thought, before=self._answer)
        else:
            self._thought.add(piece.text)

    async def note(self, text: str) -> None:
        """A notice about this turn; below what is there so far."""
        await self.mount(Quiet(text, kind="notice"))

    async def tell_step(self, text: str) -> None:
        """The newest verify step, while steps wait for a key; "" takes it away."""
        self._step = await self._instead(self._step, Quiet(text, kind="step") if text else None)

    async def end(self, footer: Sequence[str]) -> None:
        """The turn is over."""
        await self._answer.end()
        await self.tell_step("")
        self.footer = tuple(footer)
        await self._show_foot()

    async def number(self, current: int, count: int) -> None:
        """Says which of the versions in its place it is, if there are others."""
        version = f"{current}/{count}" if count > 1 else ""
        if version != self._version:
            self._version = version
            await self._show_foot()

    @property
    def _footing(self) -> tuple[str, ...]:
        return (*((self._version,) if self._version else ()), *self.footer)

    async def _show_foot(self) -> None:
        parts = self._footing
        self.wake()  # its height may be another
        self._foot = await self._instead(self._foot, Foot(parts) if parts else None)

    async def _instead(self, old: Line | None, new: Line | None) -> Line | None:
        """A line below all else in place of another; either may be none."""
        if old is not None:
            await old.remove()
        if new is not None:
            await self.mount(new)
        return new

    def parts(self) -> Iterator[Resting]:
        """Parts of the answer that may rest while others of it are seen."""
        return self._answer.parts()

    def unfold(self) -> bool:
        """Shows what was thought, or folds it; returns whether there is anything."""
        if self._thought is None:
            return False
        self._thought.collapsed = not self._thought.collapsed
        return True
