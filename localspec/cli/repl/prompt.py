"""The prompt of a real terminal: editing, history, completion, messages of several lines, pasted text as one message.

The one module that knows prompt_toolkit.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from types import FrameType
from typing import TextIO

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer
from prompt_toolkit.completion import Completion as Offer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.history import History as Past
from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output

from localspec.cli.diagnostics import fail, note, say
from localspec.cli.output import Output
from localspec.cli.repl.keyboard import Keyboard
from localspec.cli.repl.plain import PROMPT, QUOTES
from localspec.cli.repl.typeahead import draft, mark_pastes
from localspec.talk import clipboard
from localspec.talk.completion import Completion
from localspec.talk.front import LineCleared
from localspec.talk.history import History
from localspec.talk.pastes import Pastes

#: Where prompt_toolkit looks for an editor if the environment names none.
EDITORS = ("/usr/bin/editor", "/usr/bin/nano", "/usr/bin/pico", "/usr/bin/vi", "/usr/bin/emacs")
_PASTE = Keys.BracketedPaste
#: What ends a program from outside; SIGHUP says that its terminal is gone.
ENDING = (signal.SIGTERM, signal.SIGHUP)


class PromptTerminal:
    """Reads messages at a terminal.

    Args:
        output: standard output; the clipboard is reached through it if it is a terminal.
        screen: the terminal that the prompt is drawn on.
        keyboard: what keeps the keys between prompts.
        complete: what tab offers for the text before the cursor.
    """

    def __init__(
        self,
        output: Output,
        screen: TextIO,
        keyboard: Keyboard,
        history: History,
        complete: Callable[[str], list[Completion]],
        *,
        multiline: bool,
    ) -> None:
        self.multiline = multiline
        self.typed = ""
        self._output = output
        self._screen = screen
        self._keyboard = keyboard
        self._keys = _Keys(keyboard)
        self._quoted = False
        self._draft = ""
        self._pastes = Pastes()
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation="  ",
            history=_Past(history, self._pastes),
            completer=_Completer(complete),
            complete_while_typing=False,
            enable_open_in_editor=True,
            enable_suspend=True,
            tempfile_suffix=".md",
            key_bindings=self._bindings(),
            input_processors=[_Folded(self._pastes)],
            input=self._keys,
            output=_drawn_on(screen),
            color_depth=ColorDepth.DEPTH_1_BIT,
        )

    def read(self, default: str = "") -> str | None:
        if self._draft:
            note("what was typed in the meantime is not sent: it waits at the prompt")
        default, self._draft = default or self._draft, ""
        with self._keyboard.rests():
            store_typeahead(self._keys, self._keys.kept())
            try:
                return self._read(default)
            finally:
                mark_pastes(self._screen, on=True)  # the prompt has switched it off

    def _read(self, default: str) -> str | None:
        while True:
            self._quoted = False
            try:
                with _ended_by_signals(self._session.app) as check:
                    self.typed = self._session.prompt(default=default, pre_run=check)
                text = self._pastes.unfold(self.typed)
            except EOFError:
                self._session.default_buffer.append_to_history()  # the terminal may have gone away
                return None
            try:
                text.encode()  # bytes that are no UTF-8 come as lone surrogates
            except UnicodeEncodeError:
                fail("that line is not UTF-8 text", "Write it again.")
                continue
            if self._quoted:
                return text.strip().removeprefix(QUOTES).removesuffix(QUOTES).strip("\n")
            return text

    def withdraw(self) -> None:
        with self._keyboard.rests():
            keys = [*get_typeahead(self._keys), *self._keys.kept()]
        self._draft = draft("".join(self._folded(key.data) if key.key is _PASTE else key.data for key in keys))

    def copy(self, text: str) -> str:
        way = clipboard.put(text)
        if self._output.terminal:
            self._output.sequence(way.sequence)
        else:  # answers go to a file
            say(way.sequence, end="")
        return way.said

    # -- keys

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()
        multiline = Condition(lambda: self.multiline)

        @keys.add("enter", filter=~is_searching)
        def _enter(event: KeyPressEvent) -> None:
            self._enter(event.current_buffer)

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def _newline(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        def _interrupt(event: KeyPressEvent) -> None:
            text = event.current_buffer.text
            event.current_buffer.append_to_history()
            event.app.exit(exception=LineCleared() if text else KeyboardInterrupt(), style="class:aborting")

        @keys.add("c-d", filter=multiline & Condition(lambda: bool(self._session.default_buffer.text)))
        def _send(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @keys.add(_PASTE, filter=~is_searching)
        def _paste(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(self._folded(event.data))

        @keys.add(Keys.Vt100MouseEvent)
        def _mouse(event: KeyPressEvent) -> None:
            """Nobody asked for the mouse. Pasted colours look like it, and prompt_toolkit stumbles over them."""

        @keys.add("c-g", filter=~is_searching)
        @keys.add("c-x", "c-e", filter=~is_searching)  # prompt_toolkit's own would send the message unseen
        def _editor(event: KeyPressEvent) -> None:
            if not _editor_is_there():
                event.app.create_background_task(_say_no_editor())
            else:
                event.current_buffer.document = Document(self._pastes.unfold(event.current_buffer.text))
                event.current_buffer.open_in_editor()

        return keys

    def _folded(self, pasted: str) -> str:
        return self._pastes.fold(pasted.replace("\r\n", "\n").replace("\r", "\n"))

    def _enter(self, buffer: Buffer) -> None:
        """Sends, or begins a new line where more is to come."""
        text = buffer.text
        if self._in_quotes(self._pastes.unfold(text)):
            buffer.insert_text("\n")
        elif self.multiline and not text.startswith("/"):
            if text.endswith(("/", "\\")):
                buffer.document = Document(text[:-1])
                buffer.validate_and_handle()
            else:
                buffer.insert_text("\n")
        elif buffer.document.text_before_cursor.endswith("\\") and not self._quoted:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    def _in_quotes(self, text: str) -> bool:
        """Whether a block of several lines is open. Only a typed first line opens one: pasted text may begin alike."""
        if not text.startswith(QUOTES):
            self._quoted = False
            return False
        if "\n" not in text:
            self._quoted = True
        return self._quoted and not text.removeprefix(QUOTES).rstrip().endswith(QUOTES)


class _Keys(Vt100Input):
    """Standard input, and what the keyboard read of it. A paste that is not all there goes on where it stopped."""

    def __init__(self, keyboard: Keyboard) -> None:
        super().__init__(sys.stdin)
        self._keyboard = keyboard
        self._reader = self.stdin_reader = _Reader(self.fileno(), encoding=sys.stdin.encoding)

    def kept(self) -> list[KeyPress]:
        """Keys pressed since the last prompt. The end of a paste that still comes is none yet."""
        self._reader.first = first = self._keyboard.take()
        keys = self.read_keys()
        return keys + self.flush_keys() if first.endswith(b"\x1b") else keys


class _Reader(PosixStdinReader):
    """Reads ``first`` before the terminal."""

    first = b""

    def read(self, count: int = 1024) -> str:
        first, self.first = self.first, b""
        return self._stdin_decoder.decode(first) + super().read(count)


@contextmanager
def _ended_by_signals(app: Application[str]) -> Iterator[Callable[[], None]]:
    """SIGTERM and SIGHUP end the prompt, keep what was typed, and then do what they do elsewhere. Raised in the middle
    of the event loop, an exception could be taken for a fault of one of the loop's callbacks. Gives a function to be
    called when the loop runs, for a signal that comes before.
    """
    before = {number: handler for number in ENDING if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    came: int | None = None

    def leave() -> None:
        if came is not None and app.future is not None and not app.future.done():
            app.current_buffer.append_to_history()
            app.exit(exception=EOFError())

    def terminate(number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = number
        if app.loop is not None:
            app.loop.call_soon_threadsafe(leave)

    for number in before:
        signal.signal(number, terminate)
    try:
        yield leave
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came is not None:
            os.kill(os.getpid(), came)


def _drawn_on(stream: TextIO) -> Vt100_Output:
    """A terminal that is never asked where its cursor is: an answer that comes late would look like typed text."""

    def size() -> Size:
        try:
            columns, rows = os.get_terminal_size(stream.fileno())
        except OSError:
            rows, columns = 0, 0
        # A prompt that fills the screen would be cleared as a whole, and some terminals keep what is cleared so.
        return Size(rows=max((rows or 24) - 1, 1), columns=columns or 80)

    return Vt100_Output(stream, size, term=os.environ.get("TERM"), enable_cpr=False)


def _editor_is_there() -> bool:
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    return bool(named) or any(shutil.which(one) for one in EDITORS)


async def _say_no_editor() -> None:
    await run_in_terminal(lambda: fail("there is no editor", "Set EDITOR."))


class _Past(Past):
    """Our file as prompt_toolkit's history."""

    def __init__(self, history: History, pastes: Pastes) -> None:
        super().__init__()
        self._history = history
        self._pastes = pastes

    def load_history_strings(self) -> Iterable[str]:
        return reversed(self._history.entries())

    def store_string(self, string: str) -> None:
        self._history.add(self._pastes.unfold(string))


class _Folded(Processor):
    """Shows what stands for a paste in words."""

    def __init__(self, pastes: Pastes) -> None:
        self._pastes = pastes

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        shown = [
            (style, self._pastes.shown(char)) for style, text, *_ in transformation_input.fragments for char in text
        ]
        starts = [0, *accumulate(len(text) for _, text in shown)]
        return Transformation(
            [*shown],
            source_to_display=lambda at: starts[min(at, len(shown))] + max(at - len(shown), 0),
            display_to_source=lambda at: bisect_right(starts, at) - 1,
        )


class _Completer(Completer):
    def __init__(self, complete: Callable[[str], list[Completion]]) -> None:
        self._complete = complete

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Offer]:
        for one in self._complete(document.text_before_cursor):
            yield Offer(one.text, start_position=-one.replaces, display_meta=one.note)
