"""The output: a line an answer, and what of it a run that goes on can rely on."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from localspec.errors import LocalspecError, UsageError
from localspec.report import finite
from localspec.tools.batch.form import Form, Name, Record, answered_line


def as_line(record: Record) -> bytes:
    """JSON on one line, with its end. Half a character, which UTF-8 cannot hold, stands there as an escape."""
    record = finite(record)
    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        text = json.dumps(record, allow_nan=False).encode()
    return text + b"\n"


class Journal:
    """An output file. Each line is written whole and at once, so that a run which is killed leaves at most its last
    line torn; a later one drops that and goes on behind the others.

    Attributes:
        done: the input lines that are answered, and what they call themselves.
        failed: how many of them have an error.

    Args:
        name: of the file.
        resume: goes on with one that is there.

    Raises:
        UsageError: it cannot be written, another run is writing it, it holds something and ``resume`` is not asked for,
            or what it holds is not of a batch.
    """

    def __init__(self, name: str, *, resume: bool) -> None:
        self._name = name
        self.done: dict[int, Name] = {}
        self.failed = 0
        with _about(name):
            self._new = not os.path.lexists(name)
            self._file = open(name, "a+b", buffering=0)  # noqa: SIM115  (closed in __exit__)
        try:
            self._lock()
            if self._size:
                self._take_up(resume)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A file that was not there before, and got nothing because of an error, goes again."""
        with suppress(OSError):  # not all that can be written is a disk
            os.fsync(self._file.fileno())
        if kind is not None and self._new and not self._size:
            with suppress(OSError):
                os.unlink(self._name)
        self._file.close()

    @property
    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"another run is writing {self._name}", hint="Wait for it, or write elsewhere.") from None

    def _take_up(self, resume: bool) -> None:
        """Finds out what is done, and cuts off what is torn."""
        if not resume:
            raise UsageError(f"{self._name} is there already", hint="Go on with --resume, or write to another file.")
        end = 0
        with _about(self._name), open(self._name, "rb") as file:
            for number, line in enumerate(file, 1):
                found = answered_line(_parsed(line)) if line.endswith(b"\n") else None
                if found is None and file.read(1):  # only the last one may be torn
                    raise UsageError(f"line {number} of {self._name} is not of a batch", hint="Write to another file.")
                if found is not None:
                    at, name, failed = found
                    self.done[at] = name
                    self.failed += failed
                    end += len(line)
            self._file.truncate(end)

    def check(self, form: Form) -> bool:
        """Whether a line is done.

        Raises:
            UsageError: what is done is the answer to another line.
        """
        if form.line not in self.done:
            return False
        if (there := self.done[form.line]) != form.name:
            raise UsageError(
                f"{self._name} was made from another input: its answer to line {form.line} is for {there!r}, the line"
                f" is {form.name!r}",
                hint="Write to another file.",
            )
        return True

    def write(self, record: Record) -> None:
        """Appends a line, whole."""
        data = memoryview(as_line(record))
        with _about(self._name):
            while data:
                data = data[self._file.write(data) :]


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


@contextmanager
def _about(name: str) -> Iterator[None]:
    try:
        yield
    except LocalspecError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{name} cannot be written: {reason}", hint="Check the path given to -o, and the disk."
        ) from None
