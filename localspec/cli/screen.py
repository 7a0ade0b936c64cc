"""``localspec chat`` at a terminal: puts the full screen together, and says what became of the conversation."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.chat.store import Store
from localspec.cli.diagnostics import has_colour, note
from localspec.cli.downloads import ToldTransfer
from localspec.cli.layout import can_draw
from localspec.cli.repl.typeahead import draft, keys_wait
from localspec.cli.saved import saved_at_the_end, saves, wanted
from localspec.cli.session import Progress, engine_for, model_files
from localspec.cli.source import read_prompt
from localspec.cli.tuned import speedup
from localspec.errors import ExitCode, UsageError
from localspec.hub import HubRef, Patience, resolve
from localspec.options import Values, config
from localspec.options.suggest import did_you_mean
from localspec.talk.catalogue import Catalogue
from localspec.talk.history import History, history_file
from localspec.talk.recent import recent_models
from localspec.text.printable import one_line

if TYPE_CHECKING:
    from localspec.client.engine import RemoteEngine
    from localspec.host import HostedEngine
    from localspec.tui.engines import Listener


def screen(values: Values) -> int:
    """Runs the screen; returns the exit code.

    Raises:
        UsageError: there is no terminal for it, or the first message cannot be read.
    """
    _check_terminal(values)
    given = values["prompt"] is not None or values["file"] is not None
    first = read_prompt(values, more_follows=True) if given else None
    _tell_textual_of_colour(values)
    with keys_wait(sys.stdin.fileno(), sys.stderr) as (typed, line):
        return _run(values, first, typed.decode(errors="replace"), line)


def _run(values: Values, first: str | None, typed: str, line: list[Any]) -> int:
    """``typed`` was typed before, when the terminal's line was set so."""
    from localspec.tui.app import LocalspecApp
    from localspec.tui.driver import Ahead

    store = Store() if saves(values, at_terminal=True) else None
    session = wanted(values, store)
    app = LocalspecApp(
        Models(),
        values,
        history=History(history_file()),
        typed=values["typed"],
        keymap=_keymap(values["config"]),
        first=first,
        store=store,
        session=session,
        ahead=Ahead(draft(typed), typed.endswith("\r"), line),
    )
    book = app.conductor.book
    with nullcontext() if book is None else saved_at_the_end(book):
        try:
            app.run()
        finally:
            app.conductor.close()
    if book is not None and not book.unsaved() and app.conductor.chat.conversation.messages:
        note("the conversation is saved: localspec chat --resume goes on with it")
    return ExitCode.RUNTIME if app.code is None else app.code


def _keymap(named: str | None) -> dict[str, str]:
    """Keys by the ids of their actions, from the configuration files.

    Raises:
        UsageError: there is no such action.
    """
    from localspec.tui.actions import ACTIONS

    known = {action.id for action in ACTIONS}
    chosen = config.keymap(named)
    for name in chosen:
        if name not in known:
            raise UsageError(
                f"[keys] has {one_line(name):.40}, which is no action",
                hint=f"{did_you_mean(name, known)}docs/chat.md lists them.",
            )
    return chosen


def _check_terminal(values: Values) -> None:
    if not can_draw():
        raise UsageError("--tui needs a terminal that can draw", hint="Leave --tui out, or use --simple-io.")
    if values["simple_io"] or values["single_turn"]:
        raise UsageError("--tui goes with neither --simple-io nor --single-turn", hint="Leave one of them out.")


def _tell_textual_of_colour(values: Values) -> None:
    """Textual takes an empty NO_COLOR for one that is set; elsewhere it is not."""
    if has_colour(sys.stdout, values["color"]):
        os.environ.pop("NO_COLOR", None)
    else:
        os.environ["NO_COLOR"] = "1"


class Models:
    """Engines for the screen: a `localspec.tui.engines.Opener`."""

    def find(self, values: Values, listener: Listener) -> None:
        model_files(values, Reported(listener).fetch)

    @contextmanager
    def open(self, values: Values, listener: Listener) -> Iterator[HostedEngine | RemoteEngine]:
        """What could be loaded is remembered."""
        with engine_for(values, Reported(listener)) as engine:
            for file in () if engine.info.server else (engine.info.draft, engine.info.target):
                if file is not None:
                    recent_models().add(Path(file))
            yield engine

    def catalogue(self, used: Sequence[Path]) -> Catalogue:
        return Catalogue(recent=recent_models().paths(), beside=used)

    def measured(self, target: Path, draft: Path | None) -> float | None:
        return speedup(target, draft)


class Reported(Progress):
    """Progress that is told to the screen instead of written to stderr."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(shows=False)
        self._listener = listener
        self._goes_on = True

    def stage(self, stage: str, share: float) -> bool:
        super().stage(stage, share)
        return self._goes_on

    def show(self, what: str, share: float | None = None) -> None:
        self._goes_on = self._listener.doing(what, share)

    def end(self) -> None:
        pass

    def fetch(self, ref: HubRef, values: Values) -> Path:
        told = ToldTransfer(self._listener)
        patience = Patience(sleep=told.sleep)
        return resolve(ref, progress=told, offline=values["offline"], token=values["hf_token"], patience=patience)

    def note(self, text: str) -> None:
        self._listener.note(text)

    def say(self, text: str) -> None:
        self._listener.note(text)
