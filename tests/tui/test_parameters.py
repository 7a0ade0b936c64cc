"""The parameters panel and its presets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input, OptionList, Static

from localspec.talk import settings
from localspec.talk.knobs import COMMON, all_knobs
from localspec.talk.presets import Presets
from localspec.tui.parameters import Field, Parameters, Row
from localspec.tui.presets import PresetScreen
from tests.cli.repl.support import chat
from tests.tui.controls import PanelHost, drive, shown

SIZES = [(50, 40), (36, 24)]


def row(pilot: Pilot[Any], name: str) -> Row:
    return next(one for one in pilot.app.query(Row) if one.option.name == name)


async def write(pilot: Pilot[Any], name: str, text: str, *, by_key: bool = False) -> Row:
    """Puts a text into a field, over what stands there."""
    if name not in COMMON:
        pilot.app.query_one(Parameters).action_more()
        await pilot.pause()
    found = row(pilot, name)
    found.field.focus()
    await pilot.pause()
    if by_key:
        await pilot.press("home", "ctrl+k", *text)
    else:
        found.field.value = text
    await pilot.pause()
    return found


@pytest.fixture
def presets(tmp_path: Path) -> Presets:
    return Presets(tmp_path)


def test_a_field_without_a_value_shows_what_counts(presets: Presets) -> None:
    one = chat()

    async def scenario(pilot: Pilot[Any]) -> None:
        assert row(pilot, "draft_n_max").field.placeholder == "3 (default)"
        await write(pilot, "spec", "auto")
        assert row(pilot, "draft_n_max").field.placeholder == "16 (default)"

    drive(PanelHost(Parameters(one, presets)), scenario, size=SIZES[0])


@pytest.mark.parametrize("size", SIZES)
def test_a_value_is_edited_where_it_stands(presets: Presets, size: tuple[int, int]) -> None:
    one = chat(temp=0.8)
    app = PanelHost(Parameters(one, presets))

    async def scenario(pilot: Pilot[Any]) -> str:
        await write(pilot, "temp", "0.25", by_key=True)
        return shown(pilot)

    screen = drive(app, scenario, size=size)
    assert one.values["temp"] == 0.25
    assert "* temp" in screen
    assert "* was 0.8" in screen
    assert "Temperature; 0 or less = greedy." in " ".join(screen.split())
    assert len(app.messages) >= 1
    assert max(map(len, screen.splitlines())) <= size[0]


@pytest.mark.parametrize("size", SIZES)
def test_a_mistake_is_told_as_by_set_and_does_not_count(presets: Presets, size: tuple[int, int]) -> None:
    one = chat(temp=0.8)

    async def scenario(pilot: Pilot[Any]) -> tuple[bool, str, str]:
        found = await write(pilot, "temp", "warm", by_key=True)
        wrong, said = found.wrong, " ".join(shown(pilot).split())
        row(pilot, "seed").field.focus()
        await pilot.pause()
        return wrong, said, found.field.value

    wrong, said, left = drive(PanelHost(Parameters(one, presets)), scenario, size=size)
    assert wrong
    assert "--temp warm is not a number." in said
    assert "It takes a number, such as 0.8." in said
    assert (one.values["temp"], left) == (0.8, "0.8")


def test_what_goes_together_is_checked(presets: Presets) -> None:
    one = chat()

    async def scenario(pilot: Pilot[Any]) -> bool:
        return (await write(pilot, "draft_n_min", "9")).wrong

    assert drive(PanelHost(Parameters(one, presets)), scenario, size=(50, 40))
    assert one.values["draft_n_min"] == 0


def test_text_is_text_and_no_markup(presets: Presets) -> None:
    one = chat()

    async def scenario(pilot: Pilot[Any]) -> str:
        await write(pilot, "stop", "[red]")
        await write(pilot, "temp", "[/bold]")
        return shown(pilot)

    screen = drive(PanelHost(Parameters(one, presets)), scenario, size=(50, 40))
    assert one.values["stop"] == ("[red]",)
    assert "--temp [/bold] is not a number" in " ".join(screen.split())


def test_space_goes_through_choices_and_arrows_through_fields(presets: Presets) -> None:
    one = chat(spec="auto", temp=0.8)

    async def scenario(pilot: Pilot[Any]) -> list[Any]:
        seen: list[Any] = []
        row(pilot, "spec").field.focus()
        await pilot.pause()
        for _ in range(3):
            await pilot.press("space")
            await pilot.pause()
            seen.append(one.values["spec"])
        await pilot.press("down")
        seen.append(pilot.app.focused is row(pilot, "draft_n_max").field)
        await pilot.press("up", "up")
        seen.append(pilot.app.focused is row(pilot, "stop").field)
        return seen

    assert drive(PanelHost(Parameters(one, presets)), scenario, size=(50, 40)) == ["fixed", "off", "auto", True, True]


def test_one_or_all_go_back(presets: Presets) -> None:
    one = chat(temp=0.8)

    async def scenario(pilot: Pilot[Any]) -> list[Any]:
        await write(pilot, "top_k", "7")
        await write(pilot, "temp", "0.1")
        await pilot.press("ctrl+z")
        await pilot.pause()
        after_one = (one.values["temp"], one.values["top_k"])
        await pilot.press("alt+z")
        await pilot.pause()
        return [after_one, one.values["top_k"], row(pilot, "top_k").field.value]

    assert drive(PanelHost(Parameters(one, presets)), scenario, size=(50, 40)) == [(0.8, 7), 40, "40"]


def test_what_others_changed_is_shown_again(presets: Presets) -> None:
    one = chat(temp=0.8)

    async def scenario(pilot: Pilot[Any]) -> str:
        settings.change(one, "temp", "0.3")
        pilot.app.query_one(Parameters).reread()
        await pilot.pause()
        return row(pilot, "temp").field.value

    assert drive(PanelHost(Parameters(one, presets)), scenario, size=(50, 40)) == "0.3"


def test_a_text_of_several_lines_is_not_edited(presets: Presets) -> None:
    one = chat(grammar='root ::= "a"\n')

    async def scenario(pilot: Pilot[Any]) -> bool:
        pilot.app.query_one(Parameters).action_more()
        await pilot.pause()
        return row(pilot, "grammar").field.disabled

    assert drive(PanelHost(Parameters(one, presets)), scenario, size=(50, 40))
    assert one.values["grammar"] == 'root ::= "a"\n'


@pytest.mark.parametrize("size", SIZES)
def test_buttons_do_what_keys_do(presets: Presets, size: tuple[int, int]) -> None:
    one = chat(temp=0.8)

    async def scenario(pilot: Pilot[Any]) -> tuple[float, bool]:
        await write(pilot, "temp", "0.1")
        await pilot.click("#reset")
        await pilot.pause()
        await pilot.click("#presets")
        await pilot.pause()
        return one.values["temp"], isinstance(pilot.app.screen, PresetScreen)

    assert drive(PanelHost(Parameters(one, presets)), scenario, size=size) == (0.8, True)


@pytest.mark.parametrize("size", SIZES)
def test_presets_are_kept_taken_and_deleted(presets: Presets, size: tuple[int, int]) -> None:
    one = chat(temp=0.4)

    async def scenario(pilot: Pilot[Any]) -> str:
        panel = pilot.app.query_one(Parameters)
        panel.action_presets()
        await pilot.pause()
        await pilot.press(*"cool", "enter")
        await pilot.pause()
        assert presets.names() == ("cool",)
        await pilot.press("escape")
        settings.change(one, "temp", "1.5")
        panel.action_presets()
        await pilot.pause()
        pilot.app.screen.query_one(OptionList).focus()
        await pilot.press("home", "enter")
        await pilot.pause()
        value = row(pilot, "temp").field.value
        panel.action_presets()
        await pilot.pause()
        pilot.app.screen.query_one(OptionList).focus()
        await pilot.press("home", "delete")
        await pilot.pause()
        return value

    assert drive(PanelHost(Parameters(one, presets)), scenario, size=size) == "0.4"
    assert one.values["temp"] == 0.4
    assert presets.names() == ()


def test_a_preset_that_cannot_be_used_says_so(presets: Presets) -> None:
    one = chat()
    (presets.folder / "bad.toml").write_text("tmp = 1\n")

    async def scenario(pilot: Pilot[Any]) -> list[str]:
        pilot.app.query_one(Parameters).action_presets()
        await pilot.pause()
        said = pilot.app.screen.query_one(".said", Static)
        pilot.app.screen.query_one(OptionList).focus()
        await pilot.press("home", "enter")
        await pilot.pause()
        texts = [str(said.render())]
        pilot.app.screen.query_one(Input).focus()
        await pilot.press(*"a/b", "enter")
        await pilot.pause()
        return [*texts, str(said.render())]

    first, second = drive(PanelHost(Parameters(one, presets)), scenario, size=(50, 40))
    assert "unknown key tmp in" in first
    assert "a/b is no name for a preset" in second


def test_every_knob_has_a_field(presets: Presets) -> None:
    one = chat()

    async def scenario(pilot: Pilot[Any]) -> tuple[int, int, int]:
        few = len(pilot.app.query(Field))
        await pilot.press("alt+m")
        await pilot.pause()
        return few, len(pilot.app.query(Field)), len([one for one in pilot.app.query(".more") if one.display])

    few, every, buttons = drive(PanelHost(Parameters(one, presets)), scenario, size=(50, 40))
    assert (few, every, buttons) == (len(COMMON), len(all_knobs(one.values)), 0)


def test_what_was_changed_is_among_the_few(presets: Presets) -> None:
    one = chat()

    async def scenario(pilot: Pilot[Any]) -> tuple[str, int]:
        settings.change(one, "mirostat-ent", "4")
        pilot.app.query_one(Parameters).reread()
        await pilot.pause()
        few = len(pilot.app.query(Field))
        button = next(one for one in pilot.app.query(".more").results(Button) if one.display)
        await pilot.click(button)
        await pilot.pause()
        return row(pilot, "mirostat_ent").field.value, len(pilot.app.query(Field)) - few

    value, more = drive(PanelHost(Parameters(one, presets)), scenario, size=(50, 60))
    assert value == "4.0"
    assert more > 0
