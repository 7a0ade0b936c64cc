"""Sessions and their messages: written, listed, found, put aside."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as how
from hypothesis import strategies as st

from localspec.chat.conversation import Turn
from localspec.chat.store import Entry, Session, Store, new_id, now, title_of
from localspec.chat.store.entries import TITLE
from localspec.errors import UsageError
from localspec.types import Message
from tests.chat.stores import chain, connections, told

ANY = st.text(st.characters() | st.characters(categories=["Cs"]))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "sessions.db")


def texts(store: Store, session: Session) -> list[str]:
    found = store.session(session.id)
    assert found is not None
    return [entry.content for entry in store.tree(session.id).path(found.leaf)]


def found(store: Store, text: str) -> list[str]:
    return [f"{hit.session.title}: {hit.snippet.text}" for hit in store.search(text)]


# What was written comes back


def test_a_session_comes_back_as_it_was(store: Store) -> None:
    session = Session(new_id(), "a title", now(), system="Be brief.", settings={"temp": "0.5"}, draft="half a th")
    question = Entry(new_id(), None, Turn(Message("user", "why?")), now())
    answer = Entry(
        new_id(), question.id, Turn(Message("assistant", "so"), "hm", stopped=True), now(), {"seed": 7}, {"tokens": 3}
    )
    store.begin(session)
    store.add(session.id, [question, answer], answer.id)
    again = Store(store.path)
    back = again.session(session.id)
    assert back is not None
    assert back == replace(session, updated=back.updated, leaf=answer.id, questions=1)
    assert back.created.endswith("+00:00")
    assert back.updated >= back.created
    assert list(again.tree(session.id)) == [question, answer]
    assert again.session("nobody") is None


@how(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=ANY, system=ANY, title=ANY)
def test_any_text_survives(store: Store, content: str, system: str, title: str) -> None:
    session = Session(new_id(), title, system=system, settings={"stop": content}, draft=content)
    turn = Turn(Message("user", content), thinking=system)
    store.begin(session)
    store.add(session.id, [entry := Entry(new_id(), None, turn, now(), {"text": content})], entry.id)
    back = store.session(session.id)
    assert back is not None
    assert (back.title, back.system, back.settings["stop"], back.draft) == (title, system, content, content)
    assert list(store.tree(session.id)) == [entry]
    store.search(content)


def test_writing_twice_is_writing_once(store: Store) -> None:
    session, entries = Session(new_id(), "t"), chain("a", "b")
    for _ in range(2):
        store.begin(session)
        store.add(session.id, entries, entries[-1].id)
    assert texts(store, session) == ["a", "b"]
    assert len(found(store, "a")) == 1


def test_a_title_is_filled_in_and_never_replaced(store: Store) -> None:
    session = Session(new_id(), draft="x")
    for title in ("", "first", "second"):
        store.begin(replace(session, title=title))
    back = store.session(session.id)
    assert back is not None
    assert back.title == "first"


@pytest.mark.parametrize(
    ("question", "title"),
    [
        ("why?", "why?"),
        ("\n  two \t words \nmore", "two words"),
        ("", ""),
        ("x" * TITLE, "x" * TITLE),
        ("word " * 99, ("word " * 99)[: TITLE - 1].rstrip() + "…"),
    ],
)
def test_titles_are_made_of_the_first_line(question: str, title: str) -> None:
    assert title_of(question) == title


def test_two_thousand_messages_are_read_by_one_statement_each(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    session = told(store, "long", *map(str, range(2000)))
    asked: list[str] = []
    again = Store(store.path)
    connections(monkeypatch, lambda one: one.set_trace_callback(asked.append))
    again.open()
    asked.clear()
    back = again.session(session.id)
    tree = again.tree(session.id)
    assert back is not None
    path = tree.path(back.leaf)
    assert [entry.content for entry in path] == list(map(str, range(2000)))
    assert tree.siblings(path[1000].id) == (path[1000],)
    assert tree.leaf_below(path[0].id) == back.leaf
    assert len(asked) == 2


# The tree


def test_siblings_stand_in_the_order_they_came(store: Store) -> None:
    session = told(store, "t", "a", "b")
    tree = store.tree(session.id)
    root, first = tree.path(session.leaf)
    other = chain("c", "d", parent=root.id)
    again = Entry(new_id(), root.id, Turn(Message("assistant", "b2")), now())
    store.add(session.id, [again, *other], again.id)
    tree = store.tree(session.id)
    assert [entry.content for entry in tree.siblings(first.id)] == ["b", "b2", "c"]
    assert [entry.content for entry in tree.path(again.id)] == ["a", "b2"]
    assert tree[tree.leaf_below(root.id)].content == "d"
    assert tree[tree.leaf_below(first.id)].content == "b"
    assert tree.path(None) == tree.path("nobody") == ()
    assert len(tree) == 5


def test_what_hangs_on_nothing_begins_a_branch(store: Store) -> None:
    """Another process purged what came before."""
    session = told(store, "t", "a", "b")
    store.purge(session.id)
    assert store.session(session.id) is None
    late = chain("c", "d", parent=session.leaf)
    store.begin(session)
    store.add(session.id, late, late[-1].id)
    assert texts(store, session) == ["c", "d"]
    tree = store.tree(session.id)
    assert tree.siblings(late[0].id) == tree.below(None) == (late[0],)


# Lists and names


def test_the_pinned_come_first_then_the_newest(store: Store) -> None:
    sessions = [told(store, title, "x") for title in ("old", "middle", "new")]
    store.begin(Session(new_id(), "empty"))
    store.begin(draft := Session(new_id(), "only a draft", draft="half"))
    assert [one.title for one in store.sessions()] == ["only a draft", "new", "middle", "old"]
    store.set_draft(draft.id, "")
    store.pin(sessions[0].id)
    assert [one.title for one in store.sessions()] == ["old", "new", "middle"]
    store.add(sessions[1].id, [one := chain("more")[0]], one.id)
    latest = store.latest()
    assert latest is not None
    assert latest.title == "middle"
    assert latest.questions == 2
    store.pin(sessions[0].id, False)
    assert [one.title for one in store.sessions()] == ["middle", "new", "old"]


def test_there_may_be_none(store: Store) -> None:
    assert store.sessions() == ()
    assert store.latest() is None
    assert store.search("x") == ()
    assert len(store.tree("nobody")) == 0


def test_sessions_are_found_by_what_they_begin_with(store: Store) -> None:
    garden, cellar = told(store, "The Garden", "x"), told(store, "The cellar", "x")
    store.rename(cellar.id, "the Cellar")
    assert store.find("the garden").id == garden.id
    assert store.find("THE G").id == garden.id
    assert store.find(garden.id[:10]).id == garden.id
    assert store.find(cellar.id).title == "the Cellar"
    with pytest.raises(UsageError, match="2 conversations are called the: ") as caught:
        store.find("the")
    assert all(word in caught.value.message for word in (garden.id[:8], cellar.id[:8], "The Garden", "the Cellar"))
    for name in ("attic", ""):
        with pytest.raises(UsageError, match="there is no saved conversation"):
            store.find(name)
    told(store, "The", "x")
    assert store.find("the").title == "The"  # a whole title beats the beginning of one


def test_many_of_one_name_are_not_all_named(store: Store) -> None:
    for _ in range(6):
        told(store, "same", "x")
    with pytest.raises(UsageError, match=r"6 conversations are called same: .*, and 2 more"):
        store.find("same")


def test_deleted_sessions_wait_until_they_are_purged(store: Store) -> None:
    kept, gone = told(store, "kept", "apple"), told(store, "gone", "apple pie")
    store.delete(gone.id)
    assert [one.title for one in store.sessions()] == ["kept"]
    assert [one.title for one in store.sessions(deleted=True)] == ["gone"]
    last = store.last_deleted()
    assert last is not None
    assert last.id == gone.id
    assert found(store, "apple") == ["kept: apple"]
    latest = store.latest()
    assert latest is not None
    assert latest.id == kept.id
    store.restore(gone.id)
    assert store.last_deleted() is None
    assert len(found(store, "apple")) == 2
    assert len(store.sessions(most=1)) == 1
    store.purge(gone.id)
    assert store.session(gone.id) is None
    assert len(store.tree(gone.id)) == 0
    assert found(store, "pie") == []


def test_what_goes_on_is_not_deleted(store: Store) -> None:
    session = told(store, "t", "a")
    store.delete(session.id)
    store.add(session.id, [one := chain("b")[0]], one.id)
    assert [one.title for one in store.sessions()] == ["t"]


def test_changes_of_two_processes_do_not_undo_each_other(store: Store) -> None:
    session, other = told(store, "t", "a"), Store(store.path)
    one, two = chain("b"), chain("c")
    other.rename(session.id, "named")
    store.set_system(session.id, "S")
    other.add(session.id, one, one[-1].id)
    store.add(session.id, two, two[-1].id)
    other.set_settings(session.id, {"temp": "1"})
    store.set_leaf(session.id, None)
    back = other.session(session.id)
    assert back is not None
    assert (back.title, back.system, back.leaf, back.settings) == ("named", "S", None, {"temp": "1"})
    assert sorted(entry.content for entry in store.tree(session.id)) == ["a", "b", "c"]


# Search


def test_all_words_count_and_the_last_may_be_unfinished(store: Store) -> None:
    told(store, "one", "The derivative of a polynomial", "An answer about Ableitungen")
    told(store, "two", "A polynomial without more")
    assert found(store, "polynomial deriv") == ["one: The derivative of a polynomial"]
    assert len(found(store, "polynomial")) == 2
    assert found(store, "poly deriv") == []  # only the last
    assert found(store, "ABLEITUNG") == ["one: An answer about Ableitungen"]


def test_the_best_comes_first(store: Store) -> None:
    told(store, "far", "apple " + "and much else that is not asked for " * 9)
    told(store, "near", "apple apple")
    assert [hit.session.title for hit in store.search("apple")] == ["near", "far"]
    assert len(store.search("apple", limit=1)) == 1


def test_hits_are_marked(store: Store) -> None:
    session = told(store, "t", "before " * 30 + "an \x02Apple\x03 and\nan apple" + " after" * 30)
    (hit,) = store.search("apple")
    assert [hit.snippet.text[start:end] for start, end in hit.snippet.marks] == ["Apple", "apple"]
    assert "\n" not in hit.snippet.text
    assert (hit.session.id, hit.entry) == (session.id, session.leaf)
    assert hit.snippet.text.startswith("…")


def test_titles_are_searched_too(store: Store) -> None:
    session = told(store, "x", "nothing of that")
    store.rename(session.id, "100% Garden_plans")
    for text in ("garden_", "100%"):
        (hit,) = store.search(text)
        assert (hit.entry, hit.snippet.text[slice(*hit.snippet.marks[0])].lower()) == (None, text)
    assert store.search("gardenXplans") == ()


@pytest.mark.parametrize("text", ["=>", "中文", "++", "日本"])
def test_signs_and_languages_without_spaces_are_found_as_they_are(store: Store, text: str) -> None:
    told(store, "t", f"before{text}after and 我说中文很好, 日本語")
    (hit,) = store.search(text)
    assert hit.snippet.text[slice(*hit.snippet.marks[0])] == text


OPERATORS = ['"', '"a', "a AND", "OR", "NOT a", "a*", "(", "a)", "content:a", "NEAR(a b)", "^a", "-a", "a + b", "'"]
SIGNS = ["{x}", "", "   ", "%", "_", "\\", "\0", "\ud800", "a\ud800b", "a\0b", "😀"]


@pytest.mark.parametrize("text", [*OPERATORS, *SIGNS])
def test_no_text_is_an_operator(store: Store, text: str) -> None:
    told(store, "t", "plain words", "and others")
    store.search(text)
    told(store, "u", f"before {text} after")
    hits = [hit.session.title for hit in store.search(text)]
    assert ("u" in hits) == bool(re.sub("[\0\ud800]", "", text).strip())


@pytest.mark.parametrize("text", ["x" * 100_000, "word " * 20_000, "a b c d " * 20_000, '" ' * 20_000, "%" * 100_000])
def test_a_page_that_is_pasted_is_looked_for_by_its_beginning(store: Store, text: str) -> None:
    told(store, "t", f"before {text} after")
    assert [hit.session.title for hit in store.search(text)] == ["t"]


def test_the_index_follows_the_messages(store: Store) -> None:
    session = told(store, "t", "apple", "pear")
    store.add(session.id, chain("quince"), session.leaf or "")
    assert found(store, "quince") == ["t: quince"]
    store.purge(session.id)
    assert [found(store, word) for word in ("apple", "pear", "quince")] == [[], [], []]
