"""Conversations for llama.cpp's web UI, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chat.conversation import Turn
from localspec.chat.store import Entry, MessageTree, Session
from localspec.chat.store.incoming import Incoming, read_conversations
from localspec.chat.store.outgoing import for_web_ui, of_turns
from localspec.types import Message

TIME = "2026-01-02T03:04:05.000000+00:00"
OURS = {"prompt_n": 10, "cache_n": 4, "prompt_s": 0.5, "ttft_s": 0.6, "predicted_n": 3, "predicted_s": 0.25}


def entry(name: str, parent: str | None, role: str, text: str, **more: Any) -> Entry:
    turn = Turn(Message(role, text), more.pop("thinking", ""), stopped=more.pop("stopped", False))
    return Entry(name, parent, turn, TIME, **more)


#: A question with two answers, the first of which was gone on from; and an edited question.
TREE = (
    entry("q", None, "user", "why?\u2028@a\x85"),
    entry("a", "q", "assistant", "first", thinking="hm", params={"model": "/models/m.gguf"}, stats={"timings": OURS}),
    entry("b", "q", "assistant", "second", stopped=True, stats={"timings_of_llama_cpp": {"predicted_n": 3}}),
    entry("n", "a", "user", "next"),
    entry("q2", None, "user", "why not?"),
)
SESSION = Session("s1", "A talk", TIME, TIME, system="Be brief.", leaf="b")


def back(tmp_path: Path, text: str) -> Incoming:
    path = tmp_path / "talk.jsonl"
    path.write_text(text, encoding="utf-8")
    (one,) = read_conversations(path)
    return one


def branches(entries: tuple[Entry, ...]) -> set[tuple[str, ...]]:
    tree = MessageTree(entries)
    return {tuple(step.content for step in tree.path(one.id)) for one in tree}


def test_all_of_it_comes_back(tmp_path: Path) -> None:
    one = back(tmp_path, for_web_ui(SESSION, MessageTree(TREE)))
    assert branches(one.entries) == branches(TREE)
    assert (one.session.title, one.session.system, one.lost) == ("A talk", "Be brief.", 0)
    entries = {found.content: found for found in one.entries}
    assert one.session.leaf == entries["second"].id
    assert entries["second"].turn.stopped
    assert entries["second"].stats == {"timings_of_llama_cpp": {"predicted_n": 3}}
    assert (entries["first"].turn.thinking, entries["first"].params) == ("hm", {"model": "m.gguf"})
    assert entries["first"].stats["timings_of_llama_cpp"] == {
        "cache_n": 4,
        "prompt_n": 6,
        "prompt_ms": 500.0,
        "predicted_n": 3,
        "predicted_ms": 250.0,
    }


def test_it_has_what_the_web_ui_needs() -> None:
    """A root that is not shown, the system message below it, children in order, and times that grow along a branch."""
    lines = for_web_ui(SESSION, MessageTree(TREE)).splitlines()
    head, *records = map(json.loads, lines)
    assert {"type", "id", "name", "lastModified", "currNode"} <= set(head)
    assert (head["type"], head["currNode"]) == ("session", "b")
    nodes = {one["message"]["id"]: one["message"] for one in records}
    (root,) = (one for one in nodes.values() if one["type"] == "root")
    (system,) = (one for one in nodes.values() if one["type"] == "system")
    assert (root["parent"], root["children"], system["parent"]) == (None, [system["id"]], root["id"])
    assert system["children"] == ["q", "q2"]
    assert nodes["q"]["children"] == ["a", "b"]
    for one in nodes.values():
        assert one["convId"] == head["id"]
        for child in one["children"]:
            assert nodes[child]["parent"] == one["id"]
            assert nodes[child]["timestamp"] > one["timestamp"]


def test_without_a_system_message_questions_hang_on_the_root(tmp_path: Path) -> None:
    session = Session("s1", created=TIME, leaf="q2")
    head, root, *_ = map(json.loads, for_web_ui(session, MessageTree(TREE)).splitlines())
    assert (head["name"], root["message"]["children"]) == ("why?", ["q", "q2"])
    assert back(tmp_path, for_web_ui(session, MessageTree(TREE))).session.system is None


def test_nothing_said_is_a_conversation_too() -> None:
    head, root = map(json.loads, for_web_ui(Session("s1", created=TIME), MessageTree()).splitlines())
    assert head["currNode"] == root["message"]["id"]


@given(texts=st.lists(st.text(), min_size=1, max_size=6), system=st.none() | st.text(min_size=1))
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, texts: list[str], system: str | None) -> None:
    turns = [Turn(Message(("user", "assistant")[at % 2], text)) for at, text in enumerate(texts)]
    one = back(tmp_path_factory.mktemp("any"), for_web_ui(*of_turns(system, turns)))
    assert [found.role for found in one.entries] == [turn.message.role for turn in turns]
    users = [found.content for found in one.entries if found.role == "user"]
    assert users == [turn.message.content for turn in turns if turn.message.role == "user"]
    assert one.session.system == system
