"""The simple terminal: line by line, without a single escape sequence. For pipes, screen readers and dumb terminals."""

from __future__ import annotations

import sys

from localspec.cli.diagnostics import fail, note, say
from localspec.cli.output import Output
from localspec.cli.repl.keyboard import Keyboard
from localspec.cli.repl.typeahead import controls_are_shown
from localspec.talk.front import LineCleared
from localspec.talk.history import History
from localspec.text.printable import printable

QUOTES = '"""'
PROMPT, MORE = "> ", ". "


class PlainTerminal:
    """Reads standard input as it comes; the prompt goes to the terminal and never into a file of answers."""

    def __init__(self, output: Output, keyboard: Keyboard, history: History, *, multiline: bool) -> None:
        self.multiline = multiline
        self.typed = ""
        self._output = output
        self._keyboard = keyboard
        self._history = history
        self._lines: list[str] = []  # typed since the message began

    def read(self, default: str = "") -> str | None:
        if default:
            say(f"{printable(default, keep=chr(10))}\n(write it anew; an empty line changes nothing)")
        with self._keyboard.rests():
            return self._read()

    def _read(self) -> str | None:
        self._lines, self.typed = [], ""
        first = self._line(PROMPT)
        if first is None:
            say("")
            return None
        try:
            text = self._whole(first)
        except BaseException as error:
            self._history.add("\n".join(self._lines))
            if isinstance(error, KeyboardInterrupt):
                raise LineCleared from None
            raise
        self._history.add(text)
        if sys.stdin.isatty():  # else a program writes, and not always what it made up itself
            self.typed = text
        return text

    def withdraw(self) -> None:
        with self._keyboard.rests():
            lines = self._keyboard.take().count(b"\n")
            self._keyboard.forget()
        if lines:
            note(f"what was typed in the meantime is not sent: {lines} line{'' if lines == 1 else 's'}")

    def copy(self, text: str) -> str:
        return "this terminal has no clipboard: /export FILE.md writes the conversation to a file"

    def _whole(self, first: str) -> str:
        """The message that begins with this line."""
        if first.startswith(QUOTES):
            return self._quoted(first[len(QUOTES) :])
        if self.multiline and not first.startswith("/"):
            return self._until_ended(first)
        return self._continued(first)

    def _quoted(self, first: str) -> str:
        lines: list[str] = []
        line: str | None = first
        while line is not None:
            if line.rstrip().endswith(QUOTES):
                lines.append(line.rstrip().removesuffix(QUOTES))
                break
            lines.append(line)
            line = self._line(MORE)
        return "\n".join(lines).strip("\n")

    def _until_ended(self, first: str) -> str:
        lines: list[str] = []
        line: str | None = first
        while line is not None:
            if line.endswith(("/", "\\")):
                lines.append(line[:-1])
                break
            lines.append(line)
            line = self._line(MORE)
        return "\n".join(lines)

    def _continued(self, first: str) -> str:
        lines = [first]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(self._line(MORE) or "")
        return "\n".join(lines)

    def _line(self, prompt: str) -> str | None:
        """One line, ``None`` at the end. Lines that are no text are asked for again.

        Raises:
            KeyboardInterrupt: ctrl-c; what was typed of the line is forgotten.
        """
        while True:
            try:
                with controls_are_shown():
                    self._show(prompt)
                    raw = self._keyboard.readline()
            except KeyboardInterrupt:
                self._keyboard.forget()
                say("")
                raise
            if not raw:
                return None
            try:
                line = raw.decode().removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError:
                fail("that line is not UTF-8 text", "Write it again.")
            else:
                self._lines.append(line)
                return line

    def _show(self, prompt: str) -> None:
        if self._output.terminal:
            self._output.text(prompt)
        else:
            say(prompt, end="")
