"""Conversations of other programs."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as how
from hypothesis import strategies as st

from localspec.chat import transcript
from localspec.chat.conversation import Conversation
from localspec.chat.store import MessageTree, Store
from localspec.chat.store.incoming import Incoming, read_conversations
from localspec.errors import UsageError
from tests.cli.repl.support import messages

TIME = 1_765_275_434_078


def node(name: str, role: str, content: object, parent: str | None, *children: str, **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "convId": "c1",
        "type": "text",
        "timestamp": TIME,
        "role": role,
        "content": content,
        "parent": parent,
        "children": list(children),
        **more,
    }


#: A question with two answers, the first of which was gone on from; and an edited question.
TREE = [
    node("r", "system", "", None, "s", type="root"),
    node("s", "system", "Be brief.", "r", "q", "q2"),
    node("q", "user", "why?", "s", "a", "b"),
    node("a", "assistant", "first", "q", "n", reasoningContent="hm", model="m.gguf", timings={"predicted_n": 3}),
    node("b", "assistant", "second", "q"),
    node("n", "user", "next", "a"),
    node("q2", "user", "why not?", "s", "c"),
    node("c", "assistant", "third", "q2"),
]
HEAD = {"id": "c1", "name": "A talk", "lastModified": TIME + 1000, "currNode": "b"}


KEYS = (
    *("id", "convId", "type", "timestamp", "role", "content", "parent", "children", "extra", "thinking", "model"),
    *("timings", "currNode", "name", "lastModified", "messages", "conv", "table", "rows", "text", "stopped"),
)


def read(tmp_path: Path, content: object) -> tuple[Incoming, ...]:
    path = tmp_path / "export"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return read_conversations(path)


def lines(*records: object) -> bytes:
    return "\n".join(map(json.dumps, records)).encode()


def session_lines(head: dict[str, Any], nodes: list[dict[str, Any]]) -> bytes:
    return lines(
        {"type": "session", "harness": "llama.app", **head}, *({"type": "message", "message": x} for x in nodes)
    )


def zipped(**files: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("_", "."), content)
    return data.getvalue()


def paths(one: Incoming) -> set[str]:
    """Every branch, as its texts."""
    tree = MessageTree(one.entries)
    ends = [entry for entry in tree if not tree.below(entry.id)]
    return {" / ".join(step.content for step in tree.path(end.id)) for end in ends}


FORMS = {
    "one": {"conv": HEAD, "messages": TREE},
    "several": [{"conv": HEAD, "messages": TREE}],
    "lines": session_lines(HEAD, TREE),
    "archive": zipped(a_jsonl=session_lines(HEAD, TREE), notes_txt=b"\xff"),
    "tables": [{"table": "conversations", "rows": [HEAD]}, {"table": "messages", "rows": TREE}],
}


@pytest.mark.parametrize("form", FORMS)
def test_branches_of_the_web_ui_are_kept(tmp_path: Path, form: str) -> None:
    (one,) = read(tmp_path, FORMS[form])
    assert paths(one) == {"why? / first / next", "why? / second", "why not? / third"}
    assert (one.session.title, one.session.system, one.lost) == ("A talk", "Be brief.", 0)
    assert (one.session.created, one.session.updated) == (
        "2025-12-09T10:17:14.078000+00:00",
        "2025-12-09T10:17:15.078000+00:00",
    )
    entries = {entry.content: entry for entry in one.entries}
    first = entries["first"]
    assert (first.turn.thinking, first.params, first.stats["timings_of_llama_cpp"]) == (
        "hm",
        {"model": "m.gguf"},
        {"predicted_n": 3},
    )
    assert first.created == one.session.created
    assert one.session.leaf == entries["second"].id


def test_lines_end_where_json_lines_do(tmp_path: Path) -> None:
    """A browser leaves other breaks in a text as they are."""
    nodes = [node("q", "user", "a\u2028b\x85c", None)]
    records = [{"type": "session", **HEAD}, {"type": "message", "message": nodes[0]}]
    (one,) = read(tmp_path, "\n".join(json.dumps(x, ensure_ascii=False) for x in records).encode())
    assert [entry.content for entry in one.entries] == ["a\u2028b\x85c"]


def test_read_twice_is_taken_in_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "sessions.db")
    for number in (5, len(TREE)):  # the talk went on between
        (one,) = read(tmp_path, {"conv": HEAD, "messages": TREE[:number]})
        store.take_in(one.session, one.entries)
    (session,) = store.sessions()
    assert (session.updated, session.questions) == (one.session.updated, 3)
    assert {entry.content for entry in store.tree(session.id)} == {entry.content for entry in one.entries}
    assert store.tree(session.id).path(session.leaf)[-1].content == "second"


def test_the_older_form_had_numbers(tmp_path: Path) -> None:
    old = [
        {"id": 1, "convId": "conv-7", "type": "root", "timestamp": 1, "role": "system", "content": "", "parent": -1}
        | {"children": [2]},
        {
            "id": 2,
            "type": "text",
            "timestamp": TIME,
            "role": "user",
            "content": "why?",
            "parent": 1,
            "children": [3, 4],
        },
        {"id": 3, "timestamp": TIME, "role": "assistant", "content": "<think>hm</think>\n\nso", "parent": 2},
        {"id": 4, "timestamp": TIME, "role": "assistant", "content": None, "parent": 2, "children": []},
    ]
    (one,) = read(
        tmp_path, {"conv": {"id": "conv-7", "lastModified": TIME, "currNode": 3, "name": "x"}, "messages": old}
    )
    assert paths(one) == {"why? / so", "why? / "}
    assert [entry.turn.thinking for entry in one.entries] == ["", "hm", ""]
    assert one.session.leaf == one.entries[1].id


def test_the_oldest_form_was_a_line(tmp_path: Path) -> None:
    said = [{"id": TIME, "role": "user", "content": "why?"}, {"id": TIME + 1, "role": "assistant", "content": "so"}]
    (one,) = read(tmp_path, {"id": "conv-1", "lastModified": TIME, "messages": said})
    assert paths(one) == {"why? / so"}
    assert one.session.title == "why?"


@pytest.mark.parametrize("wrap", [lambda said: said, lambda said: {"model": "x", "messages": said}])
def test_lists_of_messages(tmp_path: Path, wrap: Any) -> None:
    said = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": [{"type": "text", "text": "what"}, {"type": "image_url", "image_url": {}}]},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "content": "42"},
        {"role": "assistant", "content": "that", "reasoning_content": "hm"},
    ]
    (one,) = read(tmp_path, wrap(said))
    assert paths(one) == {"what /  / that"}
    assert (one.session.system, one.session.title, one.lost) == ("S", "what", 2)
    assert one.entries[-1].turn.thinking == "hm"
    assert one.session.leaf == one.entries[-1].id


def test_our_own_transcripts(tmp_path: Path) -> None:
    conversation = Conversation("S", messages("a\ud800", "b"))
    conversation.add("user", "c")
    conversation.add("assistant", "d", thinking="hm", stopped=True)
    transcript.save(tmp_path / "t", conversation, {"temp": "1"})
    (one,) = read_conversations(tmp_path / "t")
    assert Conversation.of_turns(one.session.system, (entry.turn for entry in one.entries)).turns == conversation.turns
    assert one.session.system == "S"


def test_files_beside_a_message_go_along(tmp_path: Path) -> None:
    extra = [{"type": "TEXT", "name": "a.txt", "content": "hello"}, {"type": "IMAGE", "name": "b", "base64Url": "x"}]
    (one,) = read(tmp_path, {"conv": HEAD, "messages": [node("q", "user", "what is it?", None, extra=extra)]})
    assert one.entries[0].content == "a.txt:\nhello\n\nwhat is it?"
    assert one.lost == 1


def test_trees_that_are_none(tmp_path: Path) -> None:
    """Rings, parents that are not there, parents of themselves: everything said is kept."""
    odd = [
        node("a", "user", "a", "b", "b"),
        node("b", "assistant", "b", "a", "a"),
        node("c", "user", "c", "nobody"),
        node("d", "user", "d", "d"),
    ]
    (one,) = read(tmp_path, {"conv": HEAD | {"currNode": "nobody", "lastModified": 1e99}, "messages": odd})
    assert {entry.content for entry in one.entries} == set("abcd")
    assert MessageTree(one.entries).path(one.session.leaf)


def test_messages_of_one_name_are_all_kept(tmp_path: Path) -> None:
    (one,) = read(
        tmp_path, {"conv": HEAD, "messages": [node("q", "user", "a", None), node("q", "assistant", "b", "q")]}
    )
    assert paths(one) == {"a / b"}


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "user", "assistant", "q", "r", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=12,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": ODD},
    optional={key: ODD for key in KEYS if key not in ("role", "content")},
)


@how(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(head=ODD, messages=st.lists(MESSAGE | ODD, max_size=4), form=st.integers(0, 4))
def test_whatever_a_file_holds_it_is_read_or_refused(
    tmp_path: Path, head: object, messages: list[object], form: int
) -> None:
    forms: list[object] = [{"conv": head, "messages": messages}, messages, {"messages": messages, "id": head}, head]
    forms.append([{"table": "conversations", "rows": [head]}, {"table": "messages", "rows": messages}])
    with suppress(UsageError):
        for one in read(tmp_path, forms[form]):
            tree = MessageTree(one.entries)
            assert len(tree) == len(one.entries) > 0
            assert tree.path(one.session.leaf)
            assert all(entry.parent is None or entry.parent in tree for entry in one.entries)


def test_a_deep_tree_is_read(tmp_path: Path) -> None:
    long = [node(str(n), ("user", "assistant")[n % 2], str(n), str(n - 1) if n else None) for n in range(5000)]
    (one,) = read(tmp_path, {"conv": HEAD, "messages": long[::-1]})
    assert len(MessageTree(one.entries).path(one.session.leaf)) == 5000


@pytest.mark.parametrize(
    "content",
    [
        *([], {}, [1], [[]], "text", None, {"messages": []}, {"messages": [1]}, {"messages": [{"role": "user"}, None]}),
        *([{"role": 1}], {"conv": {}, "messages": {}}, [{"table": "conversations", "rows": [{}]}], [{"x": 1}]),
        *(b"", b"\xff\xfe", b"PK\x03\x04", zipped(a_txt=b"{}"), b"[" * 10**5, b"no json", b"{}\n{}"),
        *(lines({"type": "message", "message": TREE[0]}), session_lines(HEAD, []), {"messages": [{"content": "x"}]}),
    ],
)
def test_other_files_are_refused_in_a_sentence(tmp_path: Path, content: object) -> None:
    with pytest.raises(UsageError, match="holds no conversation that can be read") as caught:
        read(tmp_path, content)
    assert "llama.cpp" in caught.value.hint


def test_archives_that_unfold_into_too_much(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no conversation"):
        read(tmp_path, zipped(a_json=b"[" + b" " * transcript.MAX_BYTES, b_json=b"[]"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_conversations(tmp_path / "none")
    with pytest.raises(UsageError, match="Is a directory"):
        read_conversations(tmp_path)
