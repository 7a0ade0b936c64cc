"""An engine for a command: in a process of its own or at a server, with what it has to say on stderr."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.cli.diagnostics import note, say
from localspec.cli.layout import at_terminal, columns
from localspec.errors import LocalspecError, ModelError, UsageError
from localspec.host import HostedEngine
from localspec.hub import HubRef, find
from localspec.hub.shelf import beside, by_name, named
from localspec.options import Values, engine_options
from localspec.options.remote import is_remote
from localspec.options.suggest import closest, did_you_mean
from localspec.report import load_lines
from localspec.text.printable import one_line, printable
from localspec.types import EngineInfo

if TYPE_CHECKING:
    from localspec.client.engine import RemoteEngine
    from localspec.engine import Engine


Fetch = Callable[[HubRef, Values], Path]


@contextmanager
def engine_for(values: Values, progress: Progress) -> Iterator[HostedEngine | RemoteEngine]:
    """Finds or downloads the models and loads them, or asks the server that has one; warnings are said.

    Raises:
        LocalspecError: as `localspec.load` and `localspec.hub.resolve`, or as `localspec.client.engine.RemoteEngine`.
    """
    with (_remote if is_remote(values) else _hosted)(values, progress) as engine:
        tell(engine.info, values, progress)
        yield engine


@contextmanager
def _remote(values: Values, progress: Progress) -> Iterator[RemoteEngine]:
    url, *others = values["server"]
    if others:
        raise UsageError("one server answers, and several are given", hint="Give --server once.")
    with progress.doing() as show:
        show(f"asking {url} …", None)
        engine = remote_engine(url, values)
    with engine:
        yield engine


def remote_engine(url: str, values: Values) -> RemoteEngine:
    """The engine behind a URL; raises as its class."""
    from localspec.client.engine import RemoteEngine

    return RemoteEngine(url, model=values["server_model"], api_key=values["api_key"], n_ctx=values["ctx_size"])


@contextmanager
def _hosted(values: Values, progress: Progress) -> Iterator[HostedEngine]:
    target, draft = model_files(values, progress.fetch)
    with progress.loading(target, draft):
        loaded = HostedEngine(engine_options(values, target, draft), on_progress=progress.stage)
    with loaded as engine:
        yield engine


@contextmanager
def engine_here(values: Values, target: Path | None, draft: Path | None, **changes: Any) -> Iterator[Engine]:
    """As `engine_for`, in this process, for tools that look into its target; with files that `model_files` found.
    ``changes`` are fields of `EngineOptions`."""
    from localspec import loading

    options, progress = replace(engine_options(values, target, draft), **changes), Progress()
    with progress.loading(target, draft):
        loaded = loading.load(options, progress=progress.stage)
    with loaded as engine:
        tell(engine.info, values, progress)
        yield engine


def tell(info: EngineInfo, values: Values, progress: Progress) -> None:
    for warning in info.warnings:
        progress.note(warning)
    if values["dump"]:
        for line in load_lines(info):
            progress.say(line)


def fetch(ref: HubRef, values: Values) -> Path:
    """As `localspec.cli.transfer.fetch`, which is needed where something is to be fetched."""
    from localspec.cli.transfer import fetch

    return fetch(ref, values)


def model_files(values: Values, fetch: Fetch = fetch) -> tuple[Path | None, Path | None]:
    """The files of target and draft model; ``None`` where none is named.

    Args:
        fetch: gets the file of a model on a hub.

    Raises:
        LocalspecError: as `localspec.hub.find` and `localspec.hub.resolve`; ``demo`` is not installed.
    """
    target, draft = files_here(values)
    # Only now: a wrong path is known at once, a download takes its time.
    if values["hf_repo"] is not None:
        target = fetch(HubRef.parse(values["hf_repo"], values["hf_file"], flag="-hf"), values)
    if values["hf_repo_draft"] is not None:
        with _of_the_draft_model():
            draft = fetch(
                HubRef.parse(values["hf_repo_draft"], values["hf_file_draft"], flag="-hfd", checkpoint=True), values
            )
    return target, draft


def files_here(values: Values) -> tuple[Path | None, Path | None]:
    """The same of what is on this machine, without a look at any hub.

    Raises:
        LocalspecError: as `localspec.hub.find`; ``demo`` is not installed.
    """
    target = _named(values["model"])
    with _of_the_draft_model():
        return target, _named(values["model_draft"], checkpoint=True)


@contextmanager
def _of_the_draft_model() -> Iterator[None]:
    """Errors say which model they are about."""
    try:
        yield
    except LocalspecError as error:
        raise type(error)(f"the draft model: {error.message}", hint=error.hint) from error


def _named(path: str | None, *, checkpoint: bool = False) -> Path | None:
    """``demo`` and the names of the cache stand for files, unless there is a file of that name. ``checkpoint`` as in
    `HubRef`."""
    if path is None:
        return None
    with names_nearby(path):
        return by_name(path, checkpoint=checkpoint) or find(Path(path))


@contextmanager
def names_nearby(text: str) -> Iterator[None]:
    """Errors about a model that is not here ask whether another one was meant: one that has a name, or a file in the
    same folder."""
    try:
        yield
    except ModelError as error:
        if not os.path.lexists(text):
            error.hint = _meant(text) + error.hint
        raise


def _meant(text: str) -> str:
    """A question, or nothing. Of paths only the names are compared: the folder, which is right, makes any two alike."""
    if question := did_you_mean(text, (name for name, _ in named() if name != text)):
        return question
    with suppress(OSError, ValueError):
        files = {path.stem: path for path in beside(Path(text))}
        if best := closest(Path(text).stem, files, alike=0.7):
            return f"Did you mean {files[best]}? "
    return ""


#: Columns that progress needs; in fewer its line would be broken, and not be written anew in its place.
_NARROWEST_LINE = 10


class Progress:
    """A line on stderr, written anew where it changes and gone when all is done; where stderr is no terminal, nothing.

    The cursor waits at its start.
    """

    def __init__(self, *, shows: bool = True) -> None:
        self._shows = shows and at_terminal()
        self._shown = ""
        self._models: dict[str, str] = {}

    @contextmanager
    def loading(self, target: Path | None, draft: Path | None) -> Iterator[None]:
        """While an engine with these models starts; `stage` says how far it is."""
        self._models = {stage: path.name for stage, path in (("target", target), ("draft", draft)) if path is not None}
        self.show(f"loading {self._models.get('target', 'the model')} …")
        try:
            yield
        finally:
            self.end()

    def stage(self, stage: str, share: float) -> bool:
        """Progress of loading; what follows the weights (buffers, measuring) tells no share."""
        name = self._models.get(stage, f"the {stage} model")
        if share < 1:
            self.show(f"loading {name} …", share)
        else:
            self.show(f"getting {name} ready …")
        return True

    @contextmanager
    def doing(self) -> Iterator[Callable[[str, float | None], None]]:
        """While something else takes its time: `show`, and the line is gone after it."""
        try:
            yield self.show
        finally:
            self.end()

    def fetch(self, ref: HubRef, values: Values) -> Path:
        """The file of a model on a hub; raises as `localspec.hub.resolve`."""
        return fetch(ref, values)

    def note(self, text: str) -> None:
        """A line that stays."""
        note(text)

    def say(self, text: str) -> None:
        """A line of what was asked for."""
        say(printable(text))

    def show(self, what: str, share: float | None = None) -> None:
        if not self._shows:
            return
        end = "" if share is None else f" {100 * share:2.0f} %"
        line = one_line(what)[: columns(least=_NARROWEST_LINE) - len(end) - 1] + end
        if line != self._shown:
            say(line.ljust(len(self._shown)), end="\r")
            self._shown = line

    def end(self) -> None:
        """Wipes the line."""
        if self._shown:
            say(" " * len(self._shown), end="\r")
            self._shown = ""
