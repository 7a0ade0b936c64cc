"""What was tuned for the models of a command line: found by their files, the library and the machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from localspec.backends.identity import library_folder, machine_fingerprint
from localspec.control import core_count
from localspec.errors import LocalspecError, UsageError
from localspec.hub import HubRef
from localspec.hub.fingerprint import fingerprint
from localspec.hub.resolve import cached
from localspec.hub.shelf import located
from localspec.models.demo import DEMO
from localspec.options import Settings, Values
from localspec.options.commands import Command
from localspec.options.rules import servers_alone
from localspec.options.tuned import MEND, file_of, folder, overlaid, read


def applied(command: Command, settings: Settings) -> Settings:
    """The settings with what was tuned for their models. Unchanged where nothing was, or where a model is not here:
    that is for the command to say."""
    if servers_alone(settings.values):
        return settings
    try:
        file = _file(settings.values)
    except LocalspecError:
        return settings
    try:
        tuned = None if file is None else read(file)
        return settings if tuned is None else overlaid(command.options, settings, tuned)
    except UsageError as error:
        return replace(settings, notes=(*settings.notes, f"{file} is left out: {error.message}. {MEND}"))


def file_for(target: Path, draft: Path | None) -> Path:
    """Where what is tuned for two models is kept, on this machine.

    Raises:
        ModelLoadError: a model cannot be read.
    """
    libraries = library_folder()
    machine = "" if libraries is None else machine_fingerprint(libraries)
    return file_of(machine, str(core_count()), fingerprint(target), "" if draft is None else fingerprint(draft))


def speedup(target: Path, draft: Path | None) -> float | None:
    """What was measured for two models on this machine; ``None`` where nothing was."""
    if not folder().is_dir():
        return None
    try:
        tuned = read(file_for(target, draft))
    except LocalspecError:
        return None
    found = None if tuned is None else tuned.about.get("speedup")
    return float(found) if isinstance(found, int | float) else None


def _file(values: Values) -> Path | None:
    """``None`` where a model would have to be fetched first."""
    named_draft = values["hf_repo_draft"] is not None or values["model_draft"] is not None
    target = _here(values["model"] or DEMO, values["hf_repo"], values["hf_file"])
    draft = _here(values["model_draft"], values["hf_repo_draft"], values["hf_file_draft"]) if named_draft else None
    return None if target is None or (named_draft and draft is None) else file_for(target, draft)


def _here(named: str, repo: str | None, file: str | None) -> Path | None:
    """Raises `LocalspecError` if there is no such file."""
    return located(named) if repo is None else cached(HubRef.parse(repo, file, flag="-hf"))
