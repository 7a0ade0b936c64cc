"""Choosing a model from a list."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import OptionList

from localspec.backends.memory import CacheShape
from localspec.hub.vocabulary import Vocabulary
from localspec.talk.catalogue import Model
from localspec.talk.verdicts import Judge
from localspec.tui.pickers import IN_USE, OFF, ModelPicker
from tests.tui.controls import ScreenHost, drive, shown, until
from tests.tui.support import Listed

SIZES = [(50, 30), (36, 30)]
ONE = Vocabulary("gpt2", "default", 100, "x")
BIG = Model(
    "big.gguf", Path("big.gguf"), 2_000_000, "F16", 1_000_000, "llama", 64, CacheShape(1, 8, 8), ONE, chats=True
)
SMALL = replace(BIG, name="[red]small[/].gguf", path=Path("s"), size=150_000, quant="Q8_0")
OTHER = replace(SMALL, name="other\x1b[2J.gguf", path=Path("o"), vocabulary=replace(ONE, count=999))
BROKEN = replace(SMALL, name="broken.gguf", path=Path("b"), fault="it is empty")
JUDGE = Judge(free=10**9)


def names(pilot: Pilot[Any]) -> list[str | None]:
    return [option.id for option in pilot.app.screen.query_one(OptionList).options]


@pytest.mark.parametrize("size", SIZES)
def test_a_target_is_found_by_typing(size: tuple[int, int]) -> None:
    app = ScreenHost(ModelPicker(Listed(BROKEN, BIG, SMALL), JUDGE))

    async def scenario(pilot: Pilot[Any]) -> tuple[list[str | None], str]:
        await until(pilot, lambda: len(names(pilot)) == 3)
        listed, screen = names(pilot), shown(pilot)
        await pilot.press(*"q8 fits")
        await until(pilot, lambda: names(pilot) == [SMALL.name])
        await pilot.press("enter")
        await pilot.pause()
        return listed, screen

    listed, screen = drive(app, scenario, size=size)
    assert listed == [BIG.name, SMALL.name, BROKEN.name]  # what cannot be used comes last
    assert app.results == [SMALL.name]
    assert "[red]small[/].gguf" in screen
    assert "- damaged: it is empty" in screen
    assert "+ fits: " in screen


@pytest.mark.parametrize("size", SIZES)
def test_a_draft_model_comes_with_the_reason(size: tuple[int, int]) -> None:
    app = ScreenHost(ModelPicker(Listed(BIG, OTHER, SMALL), JUDGE, target=BIG))

    async def scenario(pilot: Pilot[Any]) -> str:
        await until(pilot, lambda: len(names(pilot)) == 4)
        assert names(pilot) == [OFF, SMALL.name, OTHER.name, BIG.name]
        screen = shown(pilot)
        await pilot.press("down", "enter")
        await pilot.pause()
        return screen

    screen = drive(app, scenario, size=size)
    said = " ".join(re.sub("[│▊▎]", " ", screen).split())
    assert "+ same vocabulary, 13× smaller" in said
    assert "~ another vocabulary (999 tokens for 100)" in said
    assert "\x1b" not in screen
    assert app.results == [SMALL.name]


def test_no_draft_model_is_a_choice_and_escape_is_none() -> None:
    app = ScreenHost(ModelPicker(Listed(SMALL), JUDGE, target=BIG, used=SMALL.path))

    async def scenario(pilot: Pilot[Any]) -> None:
        await until(pilot, lambda: len(names(pilot)) == 2)
        await pilot.press("up", "enter")
        await pilot.pause()

    drive(app, scenario, size=(50, 30))
    assert app.results == [OFF]
    app = ScreenHost(ModelPicker(Listed(BIG), JUDGE))

    async def leave(pilot: Pilot[Any]) -> None:
        await pilot.press("escape")
        await pilot.pause()

    drive(app, leave, size=(50, 30))
    assert app.results == [None]


def test_what_is_highlighted_stays_while_more_is_found() -> None:
    screen = ModelPicker(Listed(SMALL, BROKEN), JUDGE)

    async def scenario(pilot: Pilot[Any]) -> str | None:
        await until(pilot, lambda: len(names(pilot)) == 2)
        await pilot.press("down")
        better = replace(BIG, name="better.gguf")
        screen._add([screen._entry(better)], over=True)
        await pilot.pause()
        chosen = pilot.app.screen.query_one(OptionList).highlighted_option
        return None if chosen is None else chosen.id

    assert drive(ScreenHost(screen), scenario, size=(50, 30)) == BROKEN.name


@pytest.mark.parametrize("target", [None, BIG])
@pytest.mark.parametrize("used", [SMALL, OTHER])
def test_what_is_in_use_is_marked_and_highlighted_and_enter_changes_nothing(target: Model | None, used: Model) -> None:
    app = ScreenHost(ModelPicker(Listed(SMALL, BIG, OTHER), JUDGE, target, used=used.path))

    async def scenario(pilot: Pilot[Any]) -> None:
        await until(pilot, lambda: len(names(pilot)) == (3 if target is None else 4))
        listed = pilot.app.screen.query_one(OptionList)
        chosen = listed.highlighted_option
        assert chosen is not None
        assert chosen.id == used.name
        assert IN_USE in str(chosen.prompt)
        assert shown(pilot).count(IN_USE) == 1
        await pilot.press("enter")
        await pilot.pause()

    drive(app, scenario, size=(60, 30))
    assert app.results == [None]


def test_where_no_draft_model_is_loaded_that_is_marked() -> None:
    app = ScreenHost(ModelPicker(Listed(SMALL), JUDGE, target=BIG))

    async def scenario(pilot: Pilot[Any]) -> None:
        await until(pilot, lambda: len(names(pilot)) == 2)
        assert f"no draft model  {IN_USE}" in shown(pilot)
        await pilot.press("enter")
        await pilot.pause()

    drive(app, scenario, size=(60, 30))
    assert app.results == [None]
