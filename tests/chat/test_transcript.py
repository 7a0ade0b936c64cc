from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chat import transcript
from localspec.chat.conversation import Conversation
from localspec.chat.transcript import export, load, save, write
from localspec.errors import ExitCode, UsageError

SETTINGS = {"temp": 0.5, "stop": ["a"], "seed": None}


@pytest.fixture
def conversation() -> Conversation:
    conversation = Conversation("Be brief.")
    conversation.add("user", "Wie heißt du? 😀\r\n\x1b[31m")
    conversation.add("assistant", "Otto", thinking="a name")
    return conversation


def same(one: Conversation, other: Conversation) -> bool:
    return (one.system, one.turns) == (other.system, other.turns)


def test_what_was_saved_comes_back(conversation: Conversation, tmp_path: Path) -> None:
    path = tmp_path / "modell ü" / "talk.json"
    path.parent.mkdir()
    save(path, conversation, SETTINGS)
    saved = load(path)
    assert same(saved.conversation, conversation)
    assert saved.settings == SETTINGS
    value = json.loads(path.read_text(encoding="utf-8"))
    assert list(value) == ["localspec", "system", "messages", "settings"]
    assert value["localspec"] == 1
    assert value["messages"][1] == {"role": "assistant", "content": "Otto", "thinking": "a name"}
    assert "heißt" in path.read_text(encoding="utf-8")
    assert os.listdir(path.parent) == ["talk.json"]


@given(st.lists(st.text(st.characters() | st.characters(categories=["Cs"])), max_size=4), st.none() | st.text())
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, contents: list[str], system: str | None) -> None:
    conversation = Conversation(system)
    for content in contents:
        conversation.add("user", content)
    path = tmp_path_factory.getbasetemp() / "any.json"
    save(path, conversation)
    back = load(path).conversation

    def joined(text: str) -> str:
        """Two lone halves in the right order are a character once they are written."""
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

    assert [message.content for message in back.messages] == list(map(joined, contents))
    assert back.system == system
    for form in ("md", "json"):
        export(conversation, form).encode()


def test_a_lone_surrogate_comes_back_as_it_was(tmp_path: Path) -> None:
    conversation = Conversation()
    conversation.add("user", "a\udc80b")
    save(tmp_path / "t", conversation)
    (tmp_path / "t").read_bytes().decode("utf-8")
    assert load(tmp_path / "t").conversation.messages[0].content == "a\udc80b"


def test_saving_again_replaces_the_older_state(conversation: Conversation, tmp_path: Path) -> None:
    path, link = tmp_path / "talk.json", tmp_path / "link.json"
    save(path, conversation)
    path.chmod(0o600)
    link.symlink_to(path)
    conversation.undo()
    save(link, conversation)
    assert load(path).conversation.messages == ()
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "notes", "[1]", '{"messages": []}', '{"localspec": "x"}', "\xff", "[" * 10**5])
def test_other_files_are_neither_overwritten_nor_read(conversation: Conversation, tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError, match="exists and is not a conversation of ours") as caught:
        save(path, conversation)
    assert caught.value.hint
    with pytest.raises(UsageError, match="is not a saved conversation"):
        load(path)
    assert path.read_bytes() == content.encode("latin-1")
    save(path, conversation, overwrite=True)
    assert same(load(path).conversation, conversation)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text[: len(text) // 2], "damaged: it is cut off"),
        (lambda text: text.replace('"localspec": 1', '"localspec": 2'), "format 2, this localspec reads 1"),
        (lambda text: text.replace('"messages"', '"massages"'), "no list of messages"),
        (lambda text: text.replace('"user"', '"system"'), r"message 1 has no role \(user or assistant\) and text"),
        (lambda text: text.replace('"Otto"', "7"), "message 2 has no role"),
        (lambda text: text.replace('"a name"', "7"), "message 2"),
        (lambda text: text.replace('"Be brief."', "7"), "system message"),
        (lambda text: text.replace('"settings": {}', '"settings": []'), "settings"),
    ],
)
def test_a_damaged_file_is_one_clear_error(conversation: Conversation, tmp_path: Path, change, says: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "talk.json"
    save(path, conversation)
    text = path.read_text(encoding="utf-8")
    assert change(text) != text
    path.write_text(change(text), encoding="utf-8")
    with pytest.raises(UsageError, match=says) as caught:
        load(path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.exit_code is ExitCode.USAGE


def test_a_byte_order_mark_and_unknown_keys_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    path.write_text(
        '\ufeff{"localspec": 1, "messages": [{"role": "user", "content": "a", "time": 1}], "more": 2}', encoding="utf-8"
    )
    saved = load(path)
    assert saved.conversation.prompt()[0].content == "a"
    assert saved.settings == {}


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "MAX_BYTES", 1 << 20)
    path = tmp_path / "talk.json"
    with path.open("wb") as file:
        file.truncate((1 << 20) + 1)
    with pytest.raises(UsageError, match="more than 1 MB"):
        load(path)


def test_places_where_no_file_can_be(conversation: Conversation, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (tmp_path, tmp_path / "none" / "t.json", loop, Path("/dev/null"), tmp_path / ("x" * 300)):
        with pytest.raises(UsageError) as caught:
            save(path, conversation)
        assert str(path) in caught.value.message
        with pytest.raises(UsageError) as caught:
            save(path, conversation, overwrite=True)
        assert "cannot be written" in caught.value.message
    for path in (tmp_path, tmp_path / "none", loop, Path("nul\0")):
        with pytest.raises(UsageError, match="cannot be read"):
            load(path)


def test_nothing_is_left_of_a_save_that_failed(
    conversation: Conversation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "talk.json"
    save(path, conversation)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left"):
        save(path, Conversation("other"))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["talk.json"]


def test_settings_must_be_json(conversation: Conversation, tmp_path: Path) -> None:
    for value in (float("inf"), object()):
        with pytest.raises(UsageError, match="setting"):
            save(tmp_path / "t", conversation, {"a": value})
    assert not (tmp_path / "t").exists()


def test_export_as_markdown(conversation: Conversation) -> None:
    conversation = Conversation("Be brief.")
    conversation.add("user", "Hi\n")
    conversation.add("assistant", "Yo\udc80", thinking="hm")
    assert export(conversation, "md") == (
        "# Conversation\n\n## System\n\nBe brief.\n\n## User\n\nHi\n\n## Assistant\n\n"
        "<details>\n<summary>Thinking</summary>\n\nhm\n\n</details>\n\nYo\ufffd\n"
    )
    assert export(Conversation(), "md", "a *b*\n<c>") == "# a \\*b\\* \\<c\\>\n"


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("so:\n```python\nx = 1", "\n```"),
        ("```\na\n```\nb\n~~~~ c `d`\n```\n~~~", "\n~~~~"),
        ("- in a list:\n  ````\n  ```\n  ```` no end", "\n  ````"),
        ("```\na\n`````\nb", ""),
        ("no fence: ```a``` and\n```b```\n``", ""),
        ("", ""),
    ],
)
def test_code_that_was_broken_off_ends_with_its_message(text: str, end: str) -> None:
    conversation = Conversation()
    conversation.add("user", "ask")
    conversation.add("assistant", text, thinking=text or "hm", stopped=True)
    conversation.add("user", "more")
    answer = export(conversation, "md").partition("## Assistant\n\n")[2].partition("\n\n## User")[0]
    body = f"{text}{end}\n\n" if text else ""
    thinking = f"<details>\n<summary>Thinking</summary>\n\n{text or 'hm'}{end}\n\n</details>"
    assert answer == f"{thinking}\n\n{body}*(stopped)*"


def test_export_as_json_is_a_list_of_messages(conversation: Conversation) -> None:
    assert json.loads(export(conversation, "json")) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Wie heißt du? 😀\r\n\x1b[31m"},
        {"role": "assistant", "content": "Otto"},
    ]
    with pytest.raises(UsageError, match="pdf"):
        export(conversation, "pdf")  # type: ignore[arg-type]


def test_exports_overwrite_nothing_unasked(tmp_path: Path) -> None:
    path = tmp_path / "out.md"
    write(path, "ü")
    assert path.read_bytes() == "ü".encode()
    with pytest.raises(UsageError, match="exists already"):
        write(path, "b")
    write(path, "b", overwrite=True)
    assert path.read_text() == "b"


def test_a_stopped_answer_is_marked_in_files(tmp_path: Path) -> None:
    conversation = Conversation()
    conversation.add("user", "a")
    conversation.add("assistant", "b", stopped=True)
    save(tmp_path / "t", conversation)
    assert [turn.stopped for turn in load(tmp_path / "t").conversation.turns] == [False, True]
    assert export(conversation, "md").endswith("b\n\n*(stopped)*\n")
    text = (tmp_path / "t").read_text().replace('"stopped": true', '"stopped": 1')
    (tmp_path / "t").write_text(text)
    with pytest.raises(UsageError, match="message 2"):
        load(tmp_path / "t")
