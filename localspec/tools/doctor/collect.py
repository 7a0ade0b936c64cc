"""Collects the facts: the one part of the doctor that looks at the machine."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from localspec.backends.container import container_limits
from localspec.backends.memory import CacheShape, available_bytes, total_bytes
from localspec.chat.store import sessions_file
from localspec.control.threads import core_count
from localspec.drafters.files import config_type
from localspec.errors import LocalspecError, ModelError
from localspec.hub import cache_folder
from localspec.hub.folder import read_config
from localspec.hub.header import Header as FileHeader
from localspec.hub.header import read_header
from localspec.hub.shelf import facts_in, parts
from localspec.tools.doctor.facts import (
    Build,
    Config,
    Facts,
    Fault,
    Folder,
    Header,
    Machine,
    Model,
    Terminal,
    Wanted,
)
from localspec.tools.doctor.native import Answer, ask

_LIBRARY = "llama-cpp-python"
#: Files that a driver makes → who made the GPU.
_DRIVERS = {"/proc/driver/nvidia/version": "NVIDIA", "/dev/nvidiactl": "NVIDIA", "/dev/kfd": "AMD"}


@dataclass(frozen=True, slots=True)
class Named:
    """A model as the user named it; ``find`` gives its file, or raises `LocalspecError`."""

    text: str
    find: Callable[[], Path]


def gather(
    target: Named | None, draft: Named | None, *, wanted: Wanted, terminal: Terminal, config: Config, history: Path
) -> Facts:
    """Everything there is to know. Reads headers of files and starts one process; loads no weights.

    Args:
        history: the file of the chat's history.
    """
    models = [None if one is None else _model(one) for one in (target, draft)]
    asked = {role: one for role, one in zip(("target", "draft"), models, strict=True) if one and one.header}
    answer = ask([one.path for one in asked.values() if one.path is not None])
    # The process names its first file target, though it be the draft model alone.
    read = dict(zip(asked, ("target", "draft"), strict=False))
    first, second = (
        _judged(one, read.get(role), answer) for role, one in zip(("target", "draft"), models, strict=True)
    )
    return Facts(
        build=_build(answer),
        machine=_machine(),
        terminal=terminal,
        config=config,
        folders=_folders(history),
        target=first,
        draft=second,
        pairing=answer.pairing,
        wanted=wanted,
    )


def _model(named: Named) -> Model:
    try:
        path = named.find()
    except LocalspecError as error:
        return Model(named.text, fault=Fault(error.message, error.hint))
    try:
        if path.is_dir():
            return Model(named.text, path, checkpoint=config_type(read_config(path)))
        return Model(named.text, path, _header(path))
    except LocalspecError as error:
        return Model(named.text, path, fault=Fault(error.message, error.hint))


def _judged(model: Model | None, role: str | None, answer: Answer) -> Model | None:
    """With what llama.cpp says of it under ``role``. If it says nothing and others were read before, it died of it."""
    if model is None or role is None:
        return model
    reading = answer.reading(role)
    before = role == "target" or answer.reading("target") is not None
    died = answer.fault if reading is None and before and answer.library is not None else ""
    return replace(model, reading=reading, died=died)


def _header(path: Path) -> Header:
    headers = [read_header(part) for part in parts(path)]
    found, first = facts_in(path, headers), headers[0]
    return Header(
        size=found["size"],
        name=found["name"],
        architecture=found["architecture"],
        quant=found["quant"],
        parameters=found["parameters"],
        context=found["context"],
        window=found["window"],
        cache=CacheShape.in_header(first),
        template=found["template"],
        template_fault=_template_fault(first),
        fault=found["fault"] or "",
    )


def _template_fault(header: FileHeader) -> str:
    from localspec.chat import ChatTemplate

    source = header.text("tokenizer.chat_template")
    try:
        if source is not None:
            ChatTemplate(source, header.path.name).check()
    except ModelError as error:
        return error.message
    return ""


def _build(answer: Answer) -> Build:
    return Build(
        installed=_version(_LIBRARY),
        wanted=_pinned(),
        library=answer.library,
        fault=answer.fault,
        repacks=not os.environ.get("LOCALSPEC_NO_EXTRA_BUFFERS"),
        torch=_version("torch"),
        gpus=tuple(dict.fromkeys(maker for file, maker in _DRIVERS.items() if os.path.exists(file))),
    )


def _version(package: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def _pinned() -> str | None:
    """The version of llama-cpp-python that localspec asks for."""
    with suppress(metadata.PackageNotFoundError):
        for wish in metadata.requires("localspec") or ():
            name, _, version = wish.partition("==")
            if name.strip() == _LIBRARY:
                return version.strip()
    return None


def _machine() -> Machine:
    limits = container_limits()
    processor, flags = _processor()
    return Machine(
        processor=processor,
        flags=flags,
        cores=core_count(),
        load=_load(),
        quota=limits.cpus,
        memory=total_bytes(),
        free=available_bytes(),
        limit=limits.memory,
    )


def _processor() -> tuple[str, frozenset[str]]:
    """Its name, and what it can: the latter from Linux alone."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        entries = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        flags = entries.get("flags") or entries.get("Features") or ""
        return entries.get("model name") or platform.machine(), frozenset(flags.split())
    return platform.processor() or platform.machine(), frozenset()


def _load() -> float | None:
    with suppress(OSError):
        return os.getloadavg()[0]
    return None


def _folders(history: Path) -> tuple[Folder, ...]:
    from platformdirs import user_cache_path

    return (
        _folder("models", "downloaded models", cache_folder(), "HF_HOME", wants=2_000_000_000),
        _folder("cache", "results of self-tests", user_cache_path("localspec"), "XDG_CACHE_HOME"),
        _folder("history", "lines typed in the chat", history.parent, "XDG_STATE_HOME"),
        _folder("sessions", "saved conversations", sessions_file().parent, "XDG_DATA_HOME"),
    )


def _folder(name: str, use: str, path: Path, variable: str, *, wants: int = 1_000_000) -> Folder:
    """It is made when it is needed: until then what counts is the folder that it will be made in."""
    there = next((one for one in (path, *path.parents) if os.path.exists(one)), path)
    free = None
    with suppress(OSError):
        free = shutil.disk_usage(there).free
    writable = os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)
    return Folder(name, use, path, variable, writable, free, wants)
