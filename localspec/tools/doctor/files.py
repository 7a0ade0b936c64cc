"""Can settings be read, and can what is kept be written?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from localspec.hub.sizes import human
from localspec.tools.doctor.facts import Config, Folder
from localspec.tools.doctor.findings import Finding, Level


def check(folders: Sequence[Folder], config: Config) -> Iterator[Finding]:
    """Findings of the group ``files``."""
    yield _config(config)
    for folder in folders:
        yield _folder(folder)


def _config(config: Config) -> Finding:
    if config.fault is not None:
        what = f"settings of files are left out here, and stop other commands: {config.fault.message}"
        return Finding("files.config", Level.PROBLEM, what, config.fault.hint)
    if config.files:
        return Finding("files.config", Level.OK, f"settings come from {', '.join(map(str, config.files))}")
    return Finding("files.config", Level.OK, f"there is no configuration file; {config.usual} would be read")


def _folder(folder: Folder) -> Finding:
    name = f"files.{folder.name}"
    if not folder.writable:
        what = f"{folder.path} cannot be written: {folder.use} cannot be kept"
        return Finding(name, Level.WARNING, what, f"chmod u+rwx {folder.path}, or set {folder.variable}")
    said = f"{folder.use} are kept in {folder.path}"
    if folder.free is None:
        return Finding(name, Level.OK, said)
    said = f"{said}, {human(folder.free)} free"
    if folder.free < folder.wants:
        what = f"{said}: that is little"
        return Finding(name, Level.WARNING, what, f"free some with localspec models rm, or set {folder.variable}")
    return Finding(name, Level.OK, said)
