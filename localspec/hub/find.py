"""The model that a path on this machine means: a file, any part of a split one, a folder with one model in it, or one
that is a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.errors import ModelError, ModelLoadError, UsageError
from localspec.hub.folder import is_checkpoint
from localspec.hub.names import Split, is_model, models, parts_of
from localspec.hub.ref import is_repo


def find(path: Path) -> Path:
    """The (first) file of a model, or the folder that is a checkpoint. Links are kept as they are: the parts of a split
    model lie beside each other there.

    Raises:
        ModelError: no such file, a folder with no or with several models, or parts that are missing.
    """
    path = _home(path)
    try:
        if path.is_dir():
            return _in_folder(path)
        exists = path.exists()
    except (OSError, ValueError) as error:  # a name that is too long, or holds a zero byte
        raise ModelLoadError(f"{path} cannot be read: {error}", hint="Check the path.") from None
    if exists and path.is_symlink() and Split.of(path.name) is None and Split.of(path.resolve().name) is not None:
        path = path.resolve()  # the link has a name of its own: the other parts are where it leads
    first, *others = names = parts_of(path.name)
    if not exists and not (others and any((path.parent / name).exists() for name in names)):
        raise _missing(path)
    if missing := [name for name in names if not (path.parent / name).exists()]:
        raise ModelError(
            f"{path} is a part of a split model, and {len(missing)} of {len(names)} parts are missing:"
            f" {_some(missing)}",
            hint=f"Put all parts into {path.parent}.",
        )
    return path.parent / first


def _home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # no such user: take the name as it is
        return path


def _in_folder(folder: Path) -> Path:
    try:
        names = sorted(path.name for path in folder.iterdir() if path.name.lower().endswith(".gguf"))
    except OSError as error:
        raise ModelLoadError(f"{folder} cannot be read: {error.strerror}", hint="Check its permissions.") from None
    found = dict.fromkeys(parts_of(name)[0] for name in names if is_model(name))
    if len(found) == 1:
        return find(folder / next(iter(found)))
    if not found and is_checkpoint(folder):
        return folder
    if not found:
        raise ModelError(f"{folder} is a folder without a GGUF model", hint="Name a .gguf file, or its folder.")
    raise ModelError(f"{folder} holds {len(found)} models", hint=f"Name one of them: {_some(list(found))}.")


def models_in(folder: Path) -> list[Path]:
    """The (first) files of all models below a folder, by path; folders in it that cannot be read count as empty.

    Raises:
        UsageError: it is no folder.
    """
    folder = _home(folder)
    if not os.path.isdir(folder):
        what = "is no folder" if os.path.exists(folder) else "does not exist"
        raise UsageError(f"the folder of models {folder} {what}", hint="Check --models-dir.")
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() == ".gguf" and path.is_file())
    return [path for path in files if models([path.name])]


def _missing(path: Path) -> ModelError:
    hint = "Check the path."
    text = str(path)
    if is_repo(text.partition(":")[0]) and not text.lower().endswith(".gguf") and not path.parent.exists():
        hint = f"If it is a repository on the hub, write -hf {text}."
    return ModelLoadError(f"{path} does not exist", hint=hint)


def _some(names: list[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
