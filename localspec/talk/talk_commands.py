"""Commands about the conversation."""

from __future__ import annotations

import json
import os
from pathlib import Path

from localspec.chat import transcript
from localspec.chat.store import MessageTree, Session, title_of
from localspec.chat.store.outgoing import for_web_ui, of_turns
from localspec.errors import UsageError
from localspec.talk import settings
from localspec.talk.attach import Attachment, in_short, matching, own_words, read_file
from localspec.talk.chat import exchanges
from localspec.talk.far import check_here
from localspec.talk.front import Front, Leave, LineCleared
from localspec.talk.mention import as_typed

WIDTH = 20  # cells of the gauge
#: Watches the trees of a chat.
TRACE = "/trace"


def leave(front: Front, argument: str) -> None:
    raise Leave


def regenerate(front: Front, argument: str) -> None:
    back = _number(argument)
    answered = front.chat.unanswered is None or back > 1
    events = front.chat.regenerate(back)
    if answered and front.chat.values["temp"] <= 0:
        front.say("at temperature 0 the same answer comes again")
    front.turn(events)


def edit(front: Front, argument: str) -> None:
    back = _number(argument)
    questions = [message.content for message in front.chat.conversation.messages if message.role == "user"]
    if back > len(questions):
        raise _too_far(back, len(questions), "asked")
    try:
        text = front.terminal.read(as_typed(questions[-back]))
    except (KeyboardInterrupt, LineCleared):
        text = None
    if not (text or "").strip():
        front.say("nothing was changed")
        return
    assert text is not None
    front.turn(front.chat.ask(text, replacing=back, typed=front.terminal.typed))


def undo(front: Front, argument: str) -> None:
    chat = front.chat
    wanted = _number(argument, "For example /undo 2.")
    if chat.attachments and not argument:
        names = ", ".join(one.name for one in chat.attachments)
        chat.attachments.clear()
        front.say(f"no longer attached: {names}")
        return
    front.say(_taken_back(chat.undo(wanted), wanted))


def _taken_back(questions: list[str], wanted: int) -> str:
    if not questions:
        return "there is nothing to take back"
    fewer = f" (there were no more than {len(questions)})" if len(questions) < wanted else ""
    from_where = f"{len(questions)} exchanges, from " if len(questions) > 1 else ""
    return f"taken back: {from_where}{in_short(questions[0])}{fewer}"


def clear(front: Front, argument: str) -> None:
    front.chat.clear()
    system = front.chat.conversation.system
    front.say("a new conversation" + ("" if system is None else "; the system message stays"))


def read(front: Front, argument: str) -> None:
    if argument:
        _attach(front, [_path(argument)])
    elif front.chat.attachments:
        front.say(_attached(front, front.chat.attachments))
    else:
        front.say("no file is attached")


def globbed(front: Front, argument: str) -> None:
    if not argument:
        raise UsageError("/glob needs a pattern", hint="For example /glob src/**/*.py")
    _attach(front, matching(_path(argument)))


def _attach(front: Front, names: list[str]) -> None:
    n_ctx = front.chat.engine.info.n_ctx
    front.say(_attached(front, front.chat.attach([read_file(name, n_ctx) for name in names])))


def _attached(front: Front, files: list[Attachment]) -> str:
    rows = [f"{one.name}: {one.tokens} tokens" for one in files]
    free = f"{front.chat.free()} of {front.chat.engine.info.n_ctx} tokens stay free"
    return "\n".join([*rows, f"sent with the next message; {free} (/undo takes the files back)"])


def system(front: Front, argument: str) -> None:
    chat = front.chat
    if argument:
        chat.set_system(None if argument == "off" else argument)
        front.say("no system message from the next turn on" if argument == "off" else "used from the next turn on")
    else:
        now = chat.conversation.system
        front.say("there is no system message; /system TEXT sets one" if now is None else now or "(empty)")


def save(front: Front, argument: str) -> None:
    path = _file(argument, "/save evening.json")
    transcript.save(path, front.chat.conversation, settings.differing(front.chat))
    front.say(f"saved {_size(front)} in {path}; /load {path} goes on with it")


def load(front: Front, argument: str) -> None:
    path = _file(argument, "/load evening.json")
    saved = transcript.load(path)
    saved.conversation.system, system = settings.system_taken_over(front.chat, saved.conversation.system)
    front.chat.start(saved.conversation)
    lines = [f"{_size(front)} from {path}", *system, *settings.taken_over(front.chat, saved.settings)]
    if question := saved.conversation.last_question():
        lines.append(f"the last question was: {in_short(question)}")
    front.say("\n".join(lines))


def export_(front: Front, argument: str) -> None:
    path = _file(argument, "/export evening.md")
    form, title = transcript.form_of(path), "" if front.book is None else front.book.session.title
    if form == "jsonl":
        text = for_web_ui(*_with_branches(front))
    else:
        text = transcript.export(front.chat.conversation, form, title or "Conversation")
    transcript.write(path, text)
    front.say(f"wrote {_size(front)} to {path}" + (", for llama.cpp's web UI and /import" if form == "jsonl" else ""))


def _with_branches(front: Front) -> tuple[Session, MessageTree]:
    if front.book is not None:
        return front.book.session, front.book.tree
    conversation = front.chat.conversation
    first = next((own_words(one.content) for one in conversation.messages), "")
    return of_turns(conversation.system, conversation.turns, title_of(first))


def trace(front: Front, argument: str) -> None:
    chat = front.chat
    if argument == "on":
        check_here(chat.engine.info, "/trace on", "What is guessed in a step stays with the server.")
    if argument in ("on", "off"):
        (chat.watchers.add if argument == "on" else chat.watchers.discard)(TRACE)
        front.say("from the next answer on, " + ("with" if chat.watchers else "without") + " the trees of its guesses")
        return
    path, records = _file(argument, "/trace answer.jsonl"), [*chat.trace.records()]
    if not records:
        raise UsageError("there is no answer to write of", hint="Ask something first.")
    transcript.write(path, "".join(f"{json.dumps(record)}\n" for record in records))
    drafted = any(record["draft_n"] for record in records) and not any(record["tree"] for record in records)
    without = "; /trace on keeps the trees of the answers to come, too" if drafted else ""
    front.say(f"wrote {len(records)} step{'' if len(records) == 1 else 's'} to {path}{without}")


def copy(front: Front, argument: str) -> None:
    back = _number(argument)
    answers = [message.content for message in front.chat.conversation.messages if message.role == "assistant"]
    if back > len(answers):
        raise _too_far(back, len(answers), "answered")
    front.say(front.terminal.copy(answers[-back]))


def multiline(front: Front, argument: str) -> None:
    terminal = front.terminal
    terminal.multiline = not terminal.multiline if not argument else settings.switch(argument)
    on = "enter begins a new line; a line that ends in / or \\, or ctrl-d, sends"
    front.say(on if terminal.multiline else "enter sends")


def context(front: Front, argument: str) -> None:
    chat = front.chat
    used, total = chat.used(), chat.engine.info.n_ctx
    files = sum(one.tokens for one in chat.attachments)
    filled = min(WIDTH, round(WIDTH * (used + files) / total))
    gauge = "#" * filled + "-" * (WIDTH - filled)
    waiting = f" ({used} so far, {files} in attached files)" if files else ""
    left = f", {chat.left_out} of them left out" if chat.left_out else ""
    front.say(f"context [{gauge}] {used + files}/{total} tokens{waiting}, {_size(front)}{left}")


def tokens(front: Front, argument: str) -> None:
    front.say(f"{front.chat.count(argument)} tokens")


def _too_far(back: int, there: int, done: str) -> UsageError:
    if there == 0:
        return UsageError(f"nothing was {done} in this conversation", hint="Write a message first.")
    return UsageError(f"{back} is too far back: {there} were {done}", hint="1 is the last.")


def _number(argument: str, hint: str = "1 is the last, 2 the one before.") -> int:
    """How far back; 1 without an argument."""
    if not argument:
        return 1
    if not (argument.isascii() and argument.isdecimal() and len(argument) < 10 and int(argument) > 0):
        raise UsageError(f"{argument:.20} is not a positive number", hint=hint)
    return int(argument)


def _path(argument: str) -> str:
    """A file name may be written in quotes; spaces need none."""
    quoted = len(argument) > 1 and argument[0] == argument[-1] and argument[0] in "\"'"
    return argument[1:-1] if quoted else argument


def _file(argument: str, example: str) -> Path:
    if not argument:
        raise UsageError("the name of a file is missing", hint=f"For example {example}")
    return Path(os.path.expanduser(_path(argument)))


def _size(front: Front) -> str:
    n = exchanges(front.chat.conversation.messages)
    return f"{n} exchange{'' if n == 1 else 's'}"
