"""The screen looks as it did when somebody looked at it. ``python -m tests.tui.scenes`` writes the files anew."""

from __future__ import annotations

import asyncio
from time import monotonic

import pytest

from tests.tui import scenes
from tests.tui.grid import Grid, difference
from tests.tui.support import on_screen

#: Seconds for what another thread still brings to the screen; every look costs as much as a frame.
PATIENCE, BETWEEN = 10.0, 0.1
SHOTS = [(name, size) for name, scene in scenes.SCENES.items() for size in scene.sizes]


@pytest.mark.parametrize(("name", "size"), SHOTS, ids=[f"{name}-{size[0]}x{size[1]}" for name, size in SHOTS])
@on_screen
async def test_it_looks_as_it_did(name: str, size: tuple[int, int]) -> None:
    wanted = Grid.read(scenes.path(name, size).read_text("utf-8"))
    async with scenes.played(scenes.SCENES[name], size) as (app, _):
        given_up = monotonic() + PATIENCE
        while (found := difference(wanted, Grid.of(app))) and monotonic() < given_up:
            await asyncio.sleep(BETWEEN)
    if found:  # not `assert`, which would tell it twice
        pytest.fail(f"{name} at {size[0]}x{size[1]} (python -m tests.tui.scenes {name} writes it anew):\n{found}")


def test_there_is_a_file_for_every_scene_and_no_other() -> None:
    assert {scenes.path(*shot) for shot in SHOTS} == set(scenes.SCREENS.iterdir())


@on_screen
async def test_a_cell_that_changed_fails() -> None:
    name, size = "empty", scenes.USUAL
    async with scenes.played(scenes.SCENES[name], size) as (app, pilot):
        app.composer.placeholder = "Write a massage, or / for commands"
        await pilot.pause()
        shown = Grid.of(app)
    found = difference(Grid.read(scenes.path(name, size).read_text("utf-8")), shown)
    assert "expected │ Write a message" in found
    assert "shown    │ Write a massage" in found
