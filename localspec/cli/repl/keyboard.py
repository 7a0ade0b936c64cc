"""What is typed or pasted while no prompt is open: read at once and kept.

A terminal's own queue holds 4 kB; once it is full, the terminal takes no ctrl-c either.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from localspec.cli.diagnostics import note

#: Bytes that are kept; what comes after them is dropped.
MOST = 1 << 20
#: What a terminal puts around a paste, where it was asked to.
BEGIN, END = b"\x1b[200~", b"\x1b[201~"
_READ = 65536
_PATIENCE = 0.2  # seconds between two pieces of one paste


class Kept:
    """Bytes in order, at most ``most``. What is given out never breaks off in a paste that ends in what was dropped."""

    def __init__(self, most: int = MOST) -> None:
        self.lost = 0
        self.in_paste = False  # where the newest byte lies, dropped or not
        self._most = most
        self._bytes = bytearray()
        self._cut_in_paste = False
        self._tail = b""

    def add(self, data: bytes) -> None:
        room = self._most - len(self._bytes)
        if kept := data[:room]:
            self._follow(kept)
            self._bytes += kept
            self._cut_in_paste = self.in_paste
        if dropped := data[room:]:
            self._follow(dropped)
            self.lost += len(dropped)

    def take(self) -> bytes:
        """All of it, and what is needed to go on with what comes next."""
        seam = (BEGIN if self.in_paste else END) if self.in_paste != self._cut_in_paste else b""
        whole = bytes(self._bytes) + seam
        self._bytes.clear()
        self.lost, self._cut_in_paste = 0, self.in_paste
        return whole

    def take_line(self) -> bytes:
        """The first line with its end; less, where no end has come."""
        end = self._bytes.find(b"\n") + 1 or len(self._bytes)
        line = bytes(self._bytes[:end])
        del self._bytes[:end]
        return line

    def _follow(self, data: bytes) -> None:
        seen = self._tail + data
        begun, ended = seen.rfind(BEGIN), seen.rfind(END)
        if begun != ended:
            self.in_paste = begun > ended
        self._tail = seen[-(len(END) - 1) :]


class Keyboard:
    """Standard input, read by a thread of its own while no prompt does it.

    Args:
        line: the terminal's descriptor; ``None``: standard input is no terminal, and is left alone.
        typed: what was read from it before.
    """

    def __init__(self, line: int | None, typed: bytes = b"") -> None:
        self._line = line
        self._kept = Kept()
        self._kept.add(typed)
        self._ended = False  # ctrl-d on an empty line, or the terminal is gone
        self._resting = False
        self._closed = False
        self._lock = threading.Lock()  # held while a read runs
        if line is not None:
            self._woken, self._wakes = os.pipe()
            self._thread = threading.Thread(target=self._run, args=(line,), name="keyboard", daemon=True)
            self._thread.start()

    @contextmanager
    def rests(self) -> Iterator[None]:
        """Somebody else reads the terminal."""
        self._resting = True
        self._wake()
        try:
            with self._lock:
                pass
            yield
        finally:
            self._resting = False
            self._wake()

    # -- while it rests

    def take(self) -> bytes:
        """What was kept, and what has come since; says so if that is not all there was."""
        if self._line is not None:
            self._drain(self._line, 0)
        self._ended = False
        if self._kept.lost:
            note(f"more than {MOST >> 20} MB came in the meantime: {self._kept.lost} bytes of it are dropped")
        return self._kept.take()

    def readline(self) -> bytes:
        """The next line of a terminal that edits lines by itself, or of a pipe; empty at the end."""
        line = self._kept.take_line()
        if line.endswith(b"\n"):
            return line
        if self._ended:
            self._ended = False
            return line
        return line + sys.stdin.buffer.readline()

    def forget(self) -> None:
        """What was typed and not read is given up, half a line too."""
        if self._line is not None:
            termios.tcflush(self._line, termios.TCIFLUSH)

    def close(self) -> None:
        """For good. What was typed and not read reaches nobody else, nor does the rest of a paste that still comes."""
        if self._line is None:
            return
        self._closed = True
        self._wake()
        self._thread.join(1)
        with suppress(OSError, termios.error):  # the terminal may be gone
            self._drain(self._line, _PATIENCE)
            self.forget()
        if not self._thread.is_alive():
            os.close(self._woken)
            os.close(self._wakes)

    # -- the thread

    def _wake(self) -> None:
        if self._line is not None:
            os.write(self._wakes, b".")

    def _run(self, line: int) -> None:
        while not self._closed:
            reads = not self._resting and not self._ended
            ready, _, _ = select.select([self._woken, line] if reads else [self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, _READ)
            elif not _in_front(line):
                select.select([self._woken], [], [], _PATIENCE)
            else:
                with self._lock:
                    if not self._resting and not self._closed:
                        self._read(line)

    def _read(self, line: int) -> None:
        try:
            data = os.read(line, _READ)
        except OSError:
            data = b""
        self._ended = not data
        self._kept.add(data)

    def _drain(self, line: int, patience: float) -> None:
        """Reads what is there; in the middle of a paste, waits so long for more."""
        while not self._ended and _in_front(line):
            if not select.select([line], [], [], patience if self._kept.in_paste else 0)[0]:
                break
            self._read(line)


def read_what_is_there(line: int) -> bytes:
    """All that waits in a terminal's queue; nothing while the terminal is another's."""
    read = b""
    while _in_front(line) and select.select([line], [], [], 0)[0]:
        piece = os.read(line, _READ)
        if not piece:
            break
        read += piece
    return read


def _in_front(line: int) -> bool:
    """Whether the terminal is ours: a job in the background would be stopped for reading."""
    try:
        return os.tcgetpgrp(line) == os.getpgrp()
    except OSError:
        return True
