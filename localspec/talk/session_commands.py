"""Commands about saved sessions, and about the branches of this one."""

from __future__ import annotations

from pathlib import Path

from localspec.chat.store import Hit, Session, Snippet
from localspec.chat.store.incoming import read_conversations
from localspec.errors import UsageError
from localspec.talk.attach import in_short
from localspec.talk.book import SessionBook, Version
from localspec.talk.front import Front
from localspec.talk.session_list import brought_back, local, sized, titled
from localspec.text.printable import one_line

MOST = 20  # sessions of a list
#: Characters of an id that are shown; as few as tell a hundred thousand sessions apart.
SHORT_ID = 8
UNDO, PURGE = "undo", "purge"


def sessions(front: Front, argument: str) -> None:
    book = _book(front)
    if argument:
        front.say(_found(book.store.search(argument, MOST), argument))
        return
    there = book.store.sessions()
    rows = [_row(one, here=one.id == book.session.id) for one in there[:MOST]]
    more = [f"and {len(there) - MOST} more; /sessions TEXT searches in all"] if len(there) > MOST else []
    front.say("\n".join([*rows, *more]) or "no conversation is saved yet")


def _row(session: Session, *, here: bool) -> str:
    marks = f"{'*' if here else ' '}{'^' if session.pinned else ' '}"
    return f"{marks} {session.id[:SHORT_ID]}  {local(session.updated)}  {titled(session)} ({sized(session)})"


def _found(hits: tuple[Hit, ...], text: str) -> str:
    lines = []
    for number, hit in enumerate(hits):
        if not number or hits[number - 1].session.id != hit.session.id:
            lines.append(f"{hit.session.id[:SHORT_ID]}  {local(hit.session.updated)}  {titled(hit.session)}")
        if hit.entry is not None:
            lines.append(f"    {_marked(hit.snippet)}")
    return "\n".join(lines) or f"nothing is found with {one_line(text)}"


def _marked(snippet: Snippet) -> str:
    """What was looked for stands between stars."""
    text, at = "", 0
    for start, end in snippet.marks:
        text += f"{snippet.text[at:start]}*{snippet.text[start:end]}*"
        at = end
    return one_line(text + snippet.text[at:])


def session(front: Front, argument: str) -> None:
    book = _book(front)
    if not argument:
        front.say(f"this conversation is {titled(book.session)}, saved as {book.session.id[:SHORT_ID]}")
        return
    front.say(going_on(book, book.store.find(argument)))


def going_on(book: SessionBook, session: Session) -> str:
    """Takes up a session; what there is to say of it."""
    lines = book.open(session)
    begin = f"going on with {titled(session)}: {_exchanges(book)}, last on {local(session.updated)}"
    return "\n".join([begin, *lines, *_last(book)])


def _exchanges(book: SessionBook) -> str:
    count = book.exchanges()
    return f"{count} exchange{'' if count == 1 else 's'}"


def _last(book: SessionBook) -> list[str]:
    """How the conversation stands that was taken up."""
    if book.unanswered is not None:
        return [f"the last question has no answer, /regen asks it: {in_short(book.unanswered)}"]
    question = book.last_question()
    return [] if question is None else [f"the last question was: {in_short(question)}"]


def rename(front: Front, argument: str) -> None:
    if not argument:
        raise UsageError("the new name is missing", hint="For example /rename plans for the garden")
    _book(front).rename(argument)
    front.say(f"this conversation is now called {one_line(argument)}")


def siblings(front: Front, argument: str) -> None:
    book = _book(front)
    back = _back(book, argument)
    current, versions = book.versions(back)
    if len(versions) < 2 and current is not None:
        front.say("there is one version of that exchange; /edit and /regen make others" + _elsewhere(book))
        return
    rows = [_version(number, one, here=number == current) for number, one in enumerate(versions)]
    which = f" {back}" if back > 1 else ""
    front.say("\n".join([*rows, f"/sibling M{which} goes on with one of them"]))


def _version(number: int, version: Version, *, here: bool) -> str:
    question, *answers = (in_short(entry.content) for entry in version)
    return f"{'*' if here else ' '} {number + 1}  {question} -> {answers[0] if answers else '(no answer)'}"


def _elsewhere(book: SessionBook) -> str:
    """Which of the other exchanges has several."""
    found = [str(back) for back in range(1, book.exchanges() + 1) if len(book.versions(back)[1]) > 1]
    return f" (there are several of exchange {', '.join(found)}: /siblings {found[0]})" if found else ""


def sibling(front: Front, argument: str) -> None:
    book = _book(front)
    number, _, place = argument.partition(" ")
    _, versions = book.versions(_back(book, place.strip()))
    if not (number.isascii() and number.isdecimal() and 0 < int(number[:9]) <= len(versions)):
        raise UsageError(
            f"there is no version {number or 'without a number'} of that exchange",
            hint=f"There are {len(versions)}: /siblings lists them.",
        )
    book.walk(versions[int(number) - 1][-1].id)
    front.say("\n".join([f"going on there: {_exchanges(book)}", *_last(book)]))


def walked(front: Front, by: int) -> str:
    """Goes on with the version ``by`` places on, in the place of the last exchange or of what was taken back; says
    which it is.

    Raises:
        UsageError: nothing was asked, or the conversation is not saved.
    """
    book = _book(front)
    current, versions = book.versions(_back(book, ""))
    if len(versions) == 1 and current is not None:
        return "there is one version of the last exchange; /regen and /edit make others"
    at = len(versions) if current is None else current  # what was taken back stands before the place
    to = min(max(at + by, 0), len(versions) - 1)
    if to != current:
        book.walk(versions[to][-1].id)
    end = "" if book.unanswered is None else "; it has no answer yet, /regen asks it"
    return f"version {to + 1} of {len(versions)}{end}"


def _back(book: SessionBook, argument: str) -> int:
    """Which exchange is meant. Without a number the one that was taken back last, or else the last."""
    if not argument:
        taken_back = len(book.versions(0)[1])
        if taken_back > (book.unanswered is not None):  # a question that waits for its answer was not taken back
            return 0
        if not book.exchanges():
            raise UsageError("nothing was asked in this conversation", hint="Write a message first.")
        return 1
    if not (argument.isascii() and argument.isdecimal() and 0 < int(argument[:9]) <= book.exchanges()):
        raise UsageError(f"there is no exchange {argument:.20}", hint="1 is the last, 2 the one before.")
    return int(argument)


def delete(front: Front, argument: str) -> None:
    """What is deleted can be brought back until it is purged."""
    book = _book(front)
    if argument == UNDO:
        front.say(f"it is back: {titled(brought_back(book.store))}")
    elif argument == PURGE:
        deleted = book.store.sessions(deleted=True)
        for one in deleted:
            book.store.purge(one.id)
        front.say(f"{len(deleted)} deleted conversation{' is' if len(deleted) == 1 else 's are'} gone for good")
    else:
        _delete(front, book, argument)


def _delete(front: Front, book: SessionBook, name: str) -> None:
    if not name:
        raise UsageError("the name of a conversation is missing", hint="/sessions lists them.")
    session = book.store.find(name)
    book.store.delete(session.id)
    if session.id == book.session.id:
        front.chat.clear()
    front.say(f"deleted: {titled(session)}; /delete {UNDO} brings it back, /delete {PURGE} ends it for good")


def import_(front: Front, argument: str) -> None:
    if not argument:
        raise UsageError("the name of a file is missing", hint="For example /import conversations.json")
    book, found = _book(front), read_conversations(Path(argument).expanduser())
    for one in found:
        book.store.take_in(one.session, one.entries)
    lost = sum(one.lost for one in found)
    rows = [f"{one.session.id[:SHORT_ID]}  {titled(one.session)}" for one in found[:MOST]]
    more = [f"and {len(found) - MOST} more"] if len(found) > MOST else []
    left = [f"images, sounds and results of tools have no place here and are left out: {lost}"] if lost else []
    front.say("\n".join([*rows, *more, *left, "/session NAME goes on with one"]))


def _book(front: Front) -> SessionBook:
    if front.book is None:
        raise UsageError(
            "this conversation is not saved", hint="Start localspec chat at a terminal, without --no-save-session."
        )
    return front.book
