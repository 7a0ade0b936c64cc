"""``localspec top``: a running server, watched."""

from __future__ import annotations

import shutil
import sys
import time

from localspec.cli.output import Output
from localspec.errors import ExitCode
from localspec.options import Values
from localspec.tools.top.board import Board
from localspec.tools.top.source import Mock, Server, Source
from localspec.tools.top.words import lines

#: Columns of a text that no terminal shows.
_WIDTH = 80


def top(values: Values) -> int:
    """Runs the command; returns its exit code.

    Raises:
        UsageError: the URL is none.
        NetworkError: the server does not answer.
    """
    interval = values["interval"]
    source: Source = Mock(step=interval) if values["mock"] else Server(values["url"], api_key=values["api_key"])
    try:
        output = Output()
        if values["once"] or values["json"] or not (output.terminal and sys.stdin is not None and sys.stdin.isatty()):
            return _told(source, values, output)
        from localspec.tui.top import TopApp

        app = TopApp(source, interval=interval, plain=values["ascii"])
        app.run()
        return ExitCode.RUNTIME if app.code is None else app.code
    finally:
        source.close()


def _told(source: Source, values: Values, output: Output) -> int:
    """Without a screen: one look, which takes two readings, or JSON until nobody wants more."""
    board = Board(source.url)
    board.take(source.read())
    while True:
        if not values["mock"]:
            time.sleep(values["interval"])
        view = board.take(source.read())
        if values["json"]:
            output.record(view.record())
        else:
            width = shutil.get_terminal_size((_WIDTH, 24)).columns if output.terminal else _WIDTH
            output.text("\n".join(lines(view, width, plain=values["ascii"])) + "\n")
        if values["once"] or not values["json"]:
            return ExitCode.OK
