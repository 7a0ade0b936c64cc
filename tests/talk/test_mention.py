"""What of a message names a file, what it costs, and what becomes of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localspec.errors import EngineDied, UsageError
from localspec.talk.attach import own_words, parted
from localspec.talk.completion import completions
from localspec.talk.mention import Scales, as_typed, mentioned, not_there
from localspec.talk.turn import Turn
from localspec.types import Notice
from tests.cli.repl.support import chat, contents, engine, repl, typed


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where these tests are."""
    (tmp_path / "a.py").write_text("print(1)\n")
    (tmp_path / "my notes.md").write_text("milk\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "b.py").write_text("x")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@a.py", ["a.py"]),
        ("what does @a.py do?", ["a.py"]),
        ("two\n@a.py\n\t@src/b.py", ["a.py", "src/b.py"]),
        ("(see) @a.py, @a.py; and @a.py.", ["a.py"]),
        ('read @"my notes.md".', ["my notes.md"]),
        ("@src is a folder", ["src"]),
        ("write to me@a.py or to me @host", []),
        ("mail a@a.py", []),
        ("@none.py, @alice and @types/node", []),
        ('@"none.py"', ["none.py"]),
        ("@./none.py!", ["./none.py"]),
        ("`@a.py` and ``x ` @a.py`` are code", []),
        ("```\n@a.py\n```\n", []),
        ("~~~sh\n@a.py\n", []),
        ("```\ncode\n```\n@a.py", ["a.py"]),
        ("a ` alone\n@a.py ` too", ["a.py"]),
        ("@", []),
        ("@ a.py", []),
        ("@@a.py", []),
        ('@""', []),
        ("@\0", []),
        ("@" + "x" * 5000, []),
    ],
)
def test_a_mention_begins_a_word_and_names_what_is_there(text: str, names: list[str]) -> None:
    assert list(mentioned(text)) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@nope.txt", ["nope.txt"]),
        ("see @nope.txt, @nope.txt and (not) @src/c.", ["nope.txt", "src/c"]),
        ("@a.py, @src/b.py and @src", []),
        ("@anna, @anna. and @v1.5", []),
        ('@./none.py and @"none.py"', []),  # plainly files: refused as such
        ("`@nope.txt`", []),
        ("@no\x1bpe.txt", ["no�pe.txt"]),
    ],
)
def test_what_looks_like_a_file_and_is_none_is_said(text: str, names: list[str]) -> None:
    lines = [f"@{name}: no such file, it is sent as typed" for name in names]
    assert not_there(text) == lines
    assert Scales(len, lambda: None).lines(text)[len(mentioned(text)) :] == lines


def test_a_file_that_is_not_there_is_said_when_it_is_sent() -> None:
    one = chat()
    told = [event.text for event in one.ask("see @nope.txt", typed="see @nope.txt") if isinstance(event, Notice)]
    assert told == ["@nope.txt: no such file, it is sent as typed"]
    assert contents(one)[0] == "see @nope.txt"


def test_home_is_written_with_a_tilde(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert mentioned("@~/a.py") == ("~/a.py",)
    one = chat()
    list(one.ask("@~/a.py", typed="@~/a.py"))
    assert "print(1)" in contents(one)[0]


def test_the_files_go_along_and_what_was_typed_stays() -> None:
    one = chat()
    told = [event.text for event in one.ask("explain @a.py", typed="explain @a.py") if isinstance(event, Notice)]
    assert contents(one)[0] == "a.py:\n```\nprint(1)\n```\n\nexplain @a.py"
    cost = one.count("a.py:\n```\nprint(1)\n```\n\n")
    assert told == [f"a.py: {cost} tokens"]
    assert (as_typed(contents(one)[0]), own_words(contents(one)[0])) == ("explain @a.py", "explain @a.py")
    assert one.attachments == []


def test_nothing_is_mentioned_in_what_was_not_typed() -> None:
    one = chat()
    list(one.ask("explain @a.py"))
    assert contents(one)[0] == "explain @a.py"


def test_a_file_that_waits_already_comes_once() -> None:
    one = chat()
    one.attach([("a.py", "other")])
    list(one.ask("explain @a.py", typed="explain @a.py"))
    assert contents(one)[0] == "a.py:\n```\nother\n```\n\nexplain @a.py"


def test_an_edited_question_reads_the_file_anew(folder: Path) -> None:
    one = chat()
    prompt = repl(one, "explain @a.py in French")
    prompt.take("explain @a.py", "explain @a.py")
    (folder / "a.py").write_text("print(2)\n")
    prompt.take("/edit")
    assert typed(prompt).defaults == ["explain @a.py"]
    assert contents(one)[0] == "a.py:\n```\nprint(2)\n```\n\nexplain @a.py in French"


def test_an_edited_question_keeps_files_that_it_does_not_mention() -> None:
    one = chat()
    one.attach([("log", "boom")])
    list(one.ask("why @a.py?", typed="why @a.py?"))
    assert as_typed(contents(one)[0]) == "log:\n```\nboom\n```\n\nwhy @a.py?"


def test_files_and_words_are_told_apart() -> None:
    code = "```\ncode\n```\n\nwhat is it?"
    assert parted(code) == ([], code)
    files, words = parted("a:\n```\n```\n\nb:\n````\n```\n````\n\nwords")
    assert ([(one.name, one.text) for one in files], words) == ([("a", ""), ("b", "```\n")], "words")
    assert parted("a:\n```\nnever ends") == ([], "a:\n```\nnever ends")


def _refused(turn: Turn) -> UsageError:
    with pytest.raises(UsageError) as caught:
        list(turn)
    return caught.value


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("@./none.py", "@./none.py cannot be read: No such file"),
        ('@"no such.md"', "@no such.md cannot be read: No such file"),
        ("@src", "@src is not a file"),
        ("@binary", "@binary is not UTF-8 text (byte 0 is 0xff)"),
        ("@wide", "@wide is not UTF-8 text (byte 1 is 0x00)"),
        ("@large", "@large has 200,000 bytes, which cannot fit in a context of 512 tokens"),
        ("@long", "long: "),
        ("@pipe", "@pipe is not a file"),
        ("@gone", "@gone cannot be read: No such file"),
    ],
)
def test_a_file_that_cannot_go_along_sends_nothing(folder: Path, text: str, what: str) -> None:
    (folder / "binary").write_bytes(b"\xff\x00")
    (folder / "wide").write_bytes("abc".encode("utf-16-le"))
    (folder / "large").write_bytes(b"x" * 200_000)
    (folder / "long").write_text("x" * 600)
    (folder / "gone").symlink_to("nowhere")
    os.mkfifo(folder / "pipe")
    one = chat()
    error = _refused(one.ask(f"see {text}", typed=f"see {text}"))
    assert error.message.startswith(what)
    assert error.hint
    assert (contents(one), one.attachments, one.unanswered) == ([], [], None)


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(folder: Path) -> None:
    (folder / "a.py").chmod(0)
    assert "Permission denied" in _refused(chat().ask("@a.py", typed="@a.py")).message


def test_an_edit_has_the_room_of_what_it_replaces(folder: Path) -> None:
    (folder / "half").write_text("x" * 300)
    one = chat(n_predict=2)
    list(one.ask("@half", typed="@half"))
    _refused(one.ask("@half again", typed="@half again"))
    list(one.ask("@half again", typed="@half again", replacing=1))
    assert as_typed(contents(one)[0]) == "@half again"


# What it costs


def test_scales_count_once(folder: Path) -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return 7

    scales = Scales(count, lambda: ("fake", 100))
    assert scales.lines("@a.py") == ["@a.py: 7 tokens"]
    assert scales.lines("and @a.py") == ["@a.py: 7 tokens"]
    assert len(counted) == 1
    (folder / "a.py").write_text("print(12)\n")
    assert scales.lines("@a.py @src/b.py @alice") == [
        "@a.py: 7 tokens",
        "@src/b.py: 7 tokens",
        "together 14 tokens of a context of 100",
    ]
    assert len(counted) == 3
    assert scales.lines("none") == []


def test_scales_say_what_is_wrong(folder: Path) -> None:
    (folder / "big").write_text("x" * 600)
    one = chat()
    info = engine().info
    lines = Scales(one.count, lambda: (info.target, info.n_ctx)).lines("@src @big @./none")
    assert lines[0].startswith("@src is not a file. Use /glob")
    assert "512" in lines[1]
    assert lines[2] == "@./none cannot be read: No such file or directory"


def test_scales_give_bytes_where_nothing_is_loaded() -> None:
    def dead(text: str) -> int:
        raise EngineDied("gone", hint="")

    said = "@a.py: 9 B (tokens are counted when a model is loaded)"
    assert Scales(dead, lambda: None).lines("@a.py") == [said]
    assert Scales(dead, lambda: ("fake", 100)).lines("@a.py") == [said]
    assert Scales(dead, lambda: None).lines("@src")[0].startswith("@src is not a file")


# What tab offers


@pytest.mark.parametrize(
    ("before", "offers", "replaced"),
    [
        ("see @a", ["@a.py"], "@a"),
        ("one line\n@src/", ["@src/b.py"], "@src/"),
        ("@s", ["@src/"], "@s"),
        ("@m", ['@"my notes.md"'], "@m"),
        ('@"my n', ['@"my notes.md"'], '@"my n'),
        ('@"s', ['@"src/'], '@"s'),
        ("me@a", [], ""),
        ("@a.py ", [], ""),
        ('@"my notes.md"', [], ""),
        ("/set @a", [], ""),
        ("//etc @a", ["@a.py"], "@a"),
        ("@no/such", [], ""),
    ],
)
def test_mentions_are_completed(before: str, offers: list[str], replaced: str) -> None:
    found = completions(before, chat())
    assert [one.text for one in found] == offers
    assert {one.replaces for one in found} <= {len(replaced)}


def test_names_that_no_mention_can_hold_are_not_offered(folder: Path) -> None:
    (folder / 'x"y').touch()
    (folder / "x\ny").touch()
    (folder / "x\x1b[31my").touch()  # shown without its control character
    assert [one.text for one in completions("@x", chat())] == ["@x\x1b[31my"]
