"""Which way a text goes into the clipboard, with tools that are scripts."""

from __future__ import annotations

import stat
from base64 import b64decode
from pathlib import Path

import pytest

from localspec.talk import clipboard
from localspec.talk.clipboard import put, sequence, tool

DESKTOP = {"DISPLAY": ":0"}


def script(folder: Path, name: str, body: str) -> dict[str, str]:
    """A tool of this name; returns an environment that has it and a desktop."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return {**DESKTOP, "PATH": f"{folder}:/usr/bin:/bin"}


def test_a_tool_of_the_desktop_takes_the_text(tmp_path: Path) -> None:
    env = script(tmp_path, "xclip", f'printf "%s|" "$@" > {tmp_path}/arguments; cat > {tmp_path}/taken')
    text = 'über "$(touch evil)"\n`x`\n'
    way = put(text, "code block 1 of 1", file=tmp_path / "copied", environ=env)
    assert (way.said, way.sequence) == ("copied code block 1 of 1 with xclip", "")
    assert (tmp_path / "taken").read_text() == text
    assert (tmp_path / "arguments").read_text() == "-selection|clipboard|-in|"
    assert not (tmp_path / "copied").exists()


def test_what_a_tool_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    env = script(tmp_path, "xclip", "cat > /dev/null; sleep 30 & echo noise")
    assert put("x", environ=env, file=tmp_path / "copied").said == "copied 1 characters with xclip"


@pytest.mark.parametrize(
    ("present", "more", "chosen"),
    [
        (("wl-copy", "xclip"), {"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}, "wl-copy"),
        (("wl-copy", "xclip"), {"DISPLAY": ":0"}, "xclip"),
        (("xsel",), {"DISPLAY": ":0"}, "xsel"),
        (("wl-copy", "xclip", "xsel"), {}, None),
        (("pbcopy",), {}, "pbcopy"),
        (("clip.exe",), {}, "clip.exe"),
        (("xclip",), {"DISPLAY": ":0", "SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}, None),
        (("pbcopy",), {"SSH_TTY": "/dev/pts/3"}, None),
        ((), {"DISPLAY": ":0"}, None),
    ],
)
def test_the_tool_is_the_one_that_reaches_who_sits_here(
    tmp_path: Path, present: tuple[str, ...], more: dict[str, str], chosen: str | None
) -> None:
    for name in present:
        script(tmp_path, name, "")
    found = tool({"PATH": str(tmp_path), **more})
    assert (None if found is None else found.name) == chosen


def test_windows_gets_what_it_reads(tmp_path: Path) -> None:
    env = script(tmp_path, "clip.exe", f"cat > {tmp_path}/taken")
    put("über", environ=env, file=tmp_path / "copied")
    assert (tmp_path / "taken").read_bytes().decode("utf-16-le") == "über"


def test_a_terminal_is_asked_and_a_file_has_it_too(tmp_path: Path) -> None:
    file = tmp_path / "state" / "copied.txt"
    way = put("über", file=file, environ={"SSH_TTY": "x", "PATH": ""})
    assert way.said == f"copied 4 characters by OSC 52, if this terminal takes it; also in {file}"
    assert way.sequence == sequence("über")
    assert b64decode(way.sequence.removeprefix("\x1b]52;c;").removesuffix("\x07")).decode() == "über"
    assert file.read_text() == "über"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_too_much_for_a_terminal_is_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "copied.txt"
    way = put("x" * 70_001, file=file, environ={"PATH": ""})
    assert (way.said, way.sequence) == (
        f"70001 characters: too much for the clipboard of a terminal; it is in {file}",
        "",
    )
    assert len(file.read_text()) == 70_001


@pytest.mark.parametrize(
    ("body", "why"), [("exit 3", "exit code 3"), ("exec sleep 30", "no answer in 0 s"), ("", "Exec format error")]
)
def test_a_tool_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, why: str) -> None:
    monkeypatch.setattr(clipboard, "PATIENCE", 0.2)
    env = script(tmp_path, "xclip", body)
    if not body:
        (tmp_path / "xclip").write_bytes(b"\x7fELF no")
    way = put("x" * 200_000, file=tmp_path / "copied.txt", environ=env)
    assert way.said.startswith(f"xclip did not work ({why}); 200000 characters")


def test_a_file_that_cannot_be_written_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    way = put("x", file=tmp_path / "file" / "copied.txt", environ={"PATH": ""})
    assert way.said == "copied 1 characters by OSC 52, if this terminal takes it"
    assert way.sequence
