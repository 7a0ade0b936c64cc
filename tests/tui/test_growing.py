"""An answer that grows: what it is in the end, and what it costs on the way."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.syntax import SyntaxTheme
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Markdown

from localspec.chat.conversation import Conversation
from localspec.text.thinking import Piece
from localspec.tui import app
from localspec.tui.app import LocalspecApp
from localspec.tui.growing import MOST, Drawing, Growing
from localspec.tui.sections import Parser, Sections, references
from localspec.tui.transcript import Transcript
from localspec.tui.turns import Answer, Section, Turn, harmless
from tests.cli.repl.support import engine, messages
from tests.tui.support import on_screen, rests, running, screen_text, until

WORDS = "the river runs by old stone walls under a bridge that nobody crosses in the winter"
PARAGRAPH = f"{WORDS}, *and* **so** `on`: [a link](http://x.y). " * 4
CODE = "".join(f'def f{n}(a):\n    """Text\n\n    of {n}."""\n    return a + {n}\n\n' for n in range(12))
TABLE = "| a | b |\n|---|--:|\n" + "".join(f"| {n} | `{n}` |\n" for n in range(6))
LIST = "".join(f"{n}. **Item {n}**: {WORDS}\n   - nested {n}\n\n     more of it\n" for n in range(1, 9))
TEXTS = {
    "prose": "\n\n".join(f"## Part {n}\n\n{PARAGRAPH}\n\n{PARAGRAPH}" for n in range(5)),
    "code": "\n\n".join(f"{PARAGRAPH}\n\n```python\n{CODE}```\n\n# After {n}" for n in range(3)),
    "lists": f"{LIST}\nbetween\n\n{LIST.replace('1. ', '- ')}\n\n{PARAGRAPH * 3}\n\n* a\n* b\n\n{PARAGRAPH}",
    "tables": f"{PARAGRAPH * 3}\n\n{TABLE}\n\n{PARAGRAPH * 3}\n\n> quoted\n> {WORDS}\n\n---\n\n{TABLE}\n",
    "fences in fences": f"````md\n```py\nx = 1\n```\n\n{PARAGRAPH * 3}\n\nstill code\n````\n\n{PARAGRAPH * 3}\n\n"
    "~~~\n```\n~~~\n",
    "a fence that a list leaves open": f"- item\n\n  ```py\n  x = 1\n\nout\n\n```\ncode\n\n{PARAGRAPH * 4}\n\nhere\n"
    "```\n\nend\n",
    "an open fence": f"{PARAGRAPH * 4}\n\n```\n{CODE}",
    "links by name": f"{PARAGRAPH * 4} [one] and [two][]\n\n{PARAGRAPH * 4}\n\n[one]: http://one\n[two]: http://two\n\n"
    "[one]\n",
    "hostile": f"[red]a[/red] <b>bold</b> \x1b[2J\x07 [/] [@click=app.quit]x[/]\n\n{PARAGRAPH * 4}\n\n"
    f"</script> &amp; \\[x\\] \x9b1m\r\n\n{PARAGRAPH * 4}\n\n<div>\n\nhtml\n\n</div>\n",
}


class Page(App[None]):
    """A widget, styled as on the real screen."""

    CSS_PATH = Path(app.__file__).with_name("app.tcss")
    CSS = "Screen { overflow-y: scroll; }"  # no bar that takes a column when it comes
    AUTO_FOCUS = None

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self._widget = widget

    def compose(self) -> ComposeResult:
        yield self._widget

    def cells(self) -> list[list[tuple[str, str]]]:
        """Every character with its style, by lines."""
        lines = self.screen._compositor.render_strips(self.size)
        return [[(char, str(part.style)) for part in line for char in part.text] for line in lines]


class Whole(Answer):
    """All of it in one widget, parsed at once."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        yield Markdown(harmless(self.text), parser_factory=Parser, open_links=False)

    def on_markdown_table_of_contents_updated(self, event: Markdown.TableOfContentsUpdated) -> None:
        event.prevent_default()  # it has no sections


SIZE = (60, 400)


Act = Callable[[Pilot[None]], Awaitable[object]]


async def picture(
    widget: Widget, act: Act | None = None, *, size: tuple[int, int] = SIZE
) -> list[list[tuple[str, str]]]:
    page = Page(widget)
    async with page.run_test(size=size) as pilot:
        await pilot.pause()
        if act is not None:
            await act(pilot)
        await pilot.pause()
        await pilot.pause()
        return page.cells()


def chunks(text: str, seed: int) -> Iterator[str]:
    sizes = random.Random(seed)
    while text:
        size = sizes.choice((1, 3, 7, 60, 400))
        yield text[:size]
        text = text[size:]


@pytest.mark.parametrize("name", TEXTS)
@on_screen
async def test_what_came_in_chunks_is_in_the_end_what_it_is_at_once(name: str) -> None:
    text = TEXTS[name]
    wanted = await picture(Whole(text))
    assert any(char != " " for line in wanted for char, _ in line)
    answer = Answer()

    async def stream(_: Pilot[None]) -> None:
        for chunk in chunks(text, seed=len(name)):
            await answer.add(chunk)
        await answer.end()
        assert len(text) < 3000 or len(answer.query(Section)) > 1

    assert await picture(answer, stream) == wanted
    at_once = Answer(text)
    assert await picture(at_once, lambda _: at_once.end()) == wanted


@on_screen
async def test_thinking_and_answer_in_chunks_are_what_they_are_at_once() -> None:
    thoughts, text = "let me [b]see[/b]\n\n- *no* markup\n", TEXTS["prose"]
    turn = Turn("q", kept=True)

    async def stream(_: Pilot[None]) -> None:
        for chunk in chunks(thoughts, 3):
            await turn.add(Piece("thinking", chunk))
        for chunk in chunks(text, 3):
            await turn.add(Piece("answer", chunk))
        await turn.end(("done",))
        turn.unfold()

    at_once = Turn("q", text, thoughts, kept=True)

    async def unfold(_: Pilot[None]) -> None:
        await at_once.end(("done",))
        at_once.unfold()

    assert await picture(turn, stream) == await picture(at_once, unfold)


# -- sections

LEAVES = (
    "# head",
    "some words",
    "",
    "",
    "x = 1",
    "a | b",
    "--|--",
    "===",
    "---",
    "[n]: http://n",
    "[n]",
    "\ttab",
    "<div>",
)
NESTING = ("- item", "1. first", "  more of it", "    deep", "```py", "```", "  ```", "````", "~~~", "> q", "> ```")
LINES = st.lists(st.sampled_from((*LEAVES, *NESTING)), max_size=40).map("\n".join)


def tokens(text: str, known: dict[str, Any]) -> list[tuple[object, ...]]:
    return [
        (one.type, one.tag, one.markup, one.info, one.content, one.level, str(one.attrs), str(one.children))
        for one in Parser(known).parse(text)
    ]


@given(LINES, st.integers(10, 60))
def test_sections_mean_what_they_meant_in_the_whole(text: str, enough: int) -> None:
    sections = Sections(enough, len(text), exact=True)
    parts = [part.text for line in text.splitlines(keepends=True) for part in sections.push(line) if part.text]
    cut = Sections(enough, len(text), exact=True).push(text)
    assert "".join(parts) == "".join(part.text for part in cut) == text
    known = references(text)
    assert [one for part in cut for one in tokens(part.text, known)] == tokens(text, {})


# -- work

ENDLESS = {
    "prose": f"{PARAGRAPH}\n\n",
    "a paragraph": f"{WORDS} ",
    "lines of a paragraph": f"{WORDS}\n",
    "code": "    return [x for x in values if x]\n",
    "a line of code": "[1,2,{3:4}],",
    "no blanks": "YWJjZGVm" * 4,
    "a list": f"- {WORDS}\n",
    "a nested list": f"  - {WORDS}\n",
    "a table": f"| {WORDS} | 1 |\n",
    "a quotation": f"> {WORDS}\n",
}
CHUNK = 400
OPENERS = {
    "code": "```py\n",
    "a line of code": "```json\n",
    "a nested list": "- all\n",
    "a table": "| a | b |\n|---|---|\n",
}


@pytest.mark.parametrize("name", ENDLESS)
@on_screen
async def test_an_update_costs_the_same_however_long_the_answer_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    draw = Drawing.__init__

    def counting(self: Drawing, text: str, colours: SyntaxTheme) -> None:
        drawn.append(len(text))
        draw(self, text, colours)

    monkeypatch.setattr(Drawing, "__init__", counting)
    text = OPENERS.get(name, "") + ENDLESS[name] * (9_000 // len(ENDLESS[name]))
    answer = Answer()
    costs: list[int] = []

    async def stream(pilot: Pilot[None]) -> None:
        for at in range(0, len(text), CHUNK):
            drawn.clear()
            await answer.add(text[at : at + CHUNK])
            await pilot.pause()
            costs.append(sum(drawn))

    await picture(answer, stream, size=(60, 20))
    assert min(costs) > 0
    assert max(costs) <= 4 * MOST  # of 9,000 characters


@on_screen
async def test_the_screen_is_laid_out_only_for_new_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    growing = Growing()
    laid_out = 0
    refresh = Growing.refresh

    def counting(self: Growing, *regions: Region, layout: bool = False, **more: Any) -> Growing:
        nonlocal laid_out
        laid_out += layout
        return refresh(self, *regions, layout=layout, **more)

    async def stream(_: Pilot[None]) -> None:
        monkeypatch.setattr(Growing, "refresh", counting)
        for word in WORDS.split() * 4:
            growing.append(f"{word} ")

    cells = await picture(growing, stream)
    lines = ["".join(char for char, _ in line).strip() for line in cells]
    assert " ".join(line for line in lines if line) == " ".join([WORDS] * 4)
    assert laid_out == sum(map(bool, lines))


# -- past answers


ANSWERS = [f"№{n}\n\n{PARAGRAPH}\n\n```py\nx = {n}\n```\n\n- one\n- two\n\nclosing n{n}n\n" for n in range(12)]


@asynccontextmanager
async def reading() -> AsyncIterator[tuple[LocalspecApp, Pilot[None], list[Section]]]:
    """A long conversation, opened again; the end of it is seen, its start rests."""
    past = messages(*(text for n, answer in enumerate(ANSWERS) for text in (f"question {n}", answer)))
    async with running(engine(), conversation=Conversation(None, past)) as (app, pilot):
        await rests(app, pilot)
        sections = list(app.transcript.query(Section))
        assert len(sections) == len(ANSWERS)
        await until(pilot, lambda: bool(sections[-1].blocks) and app.transcript.query(Turn).first().rests)
        assert not any(section.blocks for section in sections[:6])
        yield app, pilot, sections


@on_screen
async def test_past_answers_become_widgets_where_somebody_looks_and_the_view_stays() -> None:
    async with reading() as (app, pilot, sections):
        await _page_up(app, pilot)
        await _page_up(app, pilot)
        first = _first_number(screen_text(app))
        await until(pilot, lambda: all(section.blocks for section in sections[first - 1 : first + 2]))
        await pilot.pause()
        await until(pilot, lambda: _first_number(screen_text(app)) == first)  # a frame may come between
        await pilot.press("ctrl+f", *"n1n", "enter")
        await until(pilot, lambda: "closing n1n" in screen_text(app))


@on_screen
async def test_answers_that_are_come_to_while_others_become_widgets_become_so_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mount = Section.mount

    async def slowly(self: Section, *widgets: Widget) -> None:
        await mount(self, *widgets)
        await asyncio.sleep(0.3)  # in which nothing is laid out

    async with reading() as (app, pilot, sections):
        monkeypatch.setattr(Section, "mount", slowly)
        await _page_up(app, pilot)
        await _page_up(app, pilot)
        first = _first_number(screen_text(app))
        await until(pilot, lambda: all(section.blocks for section in sections[first - 1 : first + 2]))


@pytest.mark.parametrize("out_of_sight", [0, 5, 12])
@on_screen
async def test_the_first_edge_in_view_stays_when_an_answer_that_begins_above_it_becomes_widgets(
    out_of_sight: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reading() as (app, pilot, sections):
        view, section = app.transcript, sections[5]
        with monkeypatch.context() as held:
            held.setattr(Section, "approached", lambda self: None)
            await _look_at(pilot, view, view.query(Turn)[5])
            await _look_at(pilot, view, section, out_of_sight)
            await until(pilot, lambda: _row(screen_text(app), "question 6") >= 0)
            assert not any(one.blocks for one in sections[:8])
            before, height = _row(screen_text(app), "question 6"), section.outer_size.height
        view.settle()
        built = sections[4:7]
        await until(pilot, lambda: all(one.blocks and one.outer_size.height > height for one in built))
        grown = 0 if out_of_sight > 0 else section.outer_size.height - height
        await until(pilot, lambda: _row(screen_text(app), "question 6") == before + grown)


async def _look_at(pilot: Pilot[None], view: Transcript, part: Widget, below: int = 0) -> None:
    """The view begins at a part, or so many rows below its start."""
    await until(pilot, lambda: bool(part.region))  # its turn is awake
    view.scroll_relative(y=part.region.y + below - view.region.y, animate=False, immediate=True)
    await until(pilot, lambda: part.region.y + below == view.region.y)


def _row(shown: str, text: str) -> int:
    return next((row for row, line in enumerate(shown.split("\n")) if text in line), -1)


async def _page_up(app: LocalspecApp, pilot: Pilot[None]) -> None:
    view = app.transcript
    before = view.scroll_y
    await pilot.press("pageup")
    await until(pilot, lambda: view.scroll_y == view.scroll_target_y < before)


def _first_number(shown: str) -> int:
    found = re.search(r"№(\d+)", shown)
    assert found is not None
    return int(found[1])
