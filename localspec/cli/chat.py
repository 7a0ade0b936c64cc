"""``localspec chat``: at a terminal a conversation, without one a single answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

from localspec.chat.conversation import Conversation
from localspec.chat.store import Store
from localspec.cli.diagnostics import tell
from localspec.cli.layout import can_draw, is_dumb
from localspec.cli.output import Output
from localspec.cli.repl.engines import LoadedEngines
from localspec.cli.repl.keyboard import Keyboard
from localspec.cli.repl.loop import Repl
from localspec.cli.repl.plain import PlainTerminal
from localspec.cli.repl.typeahead import keys_are_kept
from localspec.cli.repl.view import View
from localspec.cli.saved import saved_at_the_end, saves, wanted
from localspec.cli.session import Progress, files_here
from localspec.cli.source import read_prompt
from localspec.errors import UsageError
from localspec.options import Values
from localspec.talk.book import SessionBook
from localspec.talk.chat import Chat
from localspec.talk.completion import completions
from localspec.talk.front import Terminal
from localspec.talk.history import History, history_file
from localspec.talk.session_commands import going_on
from localspec.talk.standing import guessers
from localspec.text.printable import one_line
from localspec.types import EngineInfo


def chat(values: Values) -> int:
    """Runs the command; returns its exit code.

    Raises:
        LocalspecError: what `errors_end_the_command` reports.
    """
    files_here(values)  # a path that leads nowhere is refused before there is a screen, or a message to wait for
    if values["tui"] or (values["tui"] is None and _has_screen(values)):
        from localspec.cli.screen import screen

        return screen(values)
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    # Asked for by name, simple input is a conversation over pipes too; else what is piped in is one message.
    converses = at_terminal or (values["simple_io"] and sys.stdin is not None)
    given = values["prompt"] is not None or values["file"] is not None
    first = read_prompt(values, more_follows=converses) if given or not converses else None
    if not converses and not (first or "").strip():
        raise UsageError(
            f"there is no terminal to chat at and {_what_is_missing(values)}", hint="Use -p TEXT, or pipe a message in."
        )
    goes_on = converses and not values["single_turn"]
    store = Store() if goes_on and saves(values, at_terminal=at_terminal) else None
    session = wanted(values, store)
    output = Output()
    dumb = values["simple_io"] or is_dumb()
    drawn_on = _screen() if at_terminal and not dumb else None
    with keys_are_kept(drawn_on) as keyboard, LoadedEngines(values, Progress(shows=not dumb)) as engines:
        talk = Chat(engines, values, Conversation(values["system"]), typed=values["typed"])
        book = None if store is None else SessionBook(talk, store)
        terminal = _terminal(output, drawn_on, keyboard, talk, book, History(history_file() if at_terminal else None))
        repl = Repl(talk, terminal, View(output, values, plain=dumb), book)
        if not goes_on:
            return repl.once(first)
        tell(banner(engines.current.info))
        if book is None:
            return repl.run(first)
        if session is not None:
            repl.say(going_on(book, session))
        with saved_at_the_end(book):
            return repl.run(first)


def _has_screen(values: Values) -> bool:
    """Whether there is a full screen for a conversation."""
    return can_draw() and not (values["simple_io"] or values["single_turn"])


def _what_is_missing(values: Values) -> str:
    """For whoever piped something in that came to nothing."""
    sources = {values["prompt"], values["file"]}
    piped = sys.stdin is not None and sources in ({None}, {None, "-"})
    return "standard input is empty" if piped else "no message"


def _screen() -> TextIO | None:
    """The terminal to draw a prompt on: standard output, or standard error where answers go to a file."""
    return next((stream for stream in (sys.stdout, sys.stderr) if stream is not None and stream.isatty()), None)


def _terminal(
    output: Output, screen: TextIO | None, keyboard: Keyboard, talk: Chat, book: SessionBook | None, history: History
) -> Terminal:
    """Editing where the terminal can, lines where it cannot."""
    multiline = talk.values["multiline_input"]
    if screen is None:
        return PlainTerminal(output, keyboard, history, multiline=multiline)
    from localspec.cli.repl.prompt import PromptTerminal

    return PromptTerminal(
        output, screen, keyboard, history, lambda text: completions(text, talk, book), multiline=multiline
    )


def _maker(info: EngineInfo) -> str:
    """Who makes the answers."""
    return f"guesses from {guessers(info)}" if info.server is None else f"answers from {info.server}"


def banner(info: EngineInfo) -> str:
    """Lines of at most 80 columns, but for long names."""
    return "\n".join(
        [
            one_line(Path(info.target).name),
            one_line(f"{_maker(info)} · context {info.n_ctx}"),
            "ctrl-c stops, ctrl-d leaves, /help lists commands",
        ]
    )
