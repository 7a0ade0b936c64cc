"""What the checks look at: facts of this machine, of its llama.cpp and of the models named, gathered once.

Sizes are bytes. ``None`` stands for what is not known, where nothing else is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localspec.backends.memory import CacheShape


@dataclass(frozen=True, slots=True)
class Fault:
    """An error somebody else raised: what and why, and what to do."""

    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """Something beside the CPU that layers can go to. ``shared``: its memory is the CPU's."""

    name: str
    description: str
    free: int
    total: int
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Library:
    """llama.cpp as it loads here. ``features``: what it was compiled for, as it calls it; ``extra_buffers``: what the
    self-test found, ``None`` if it has not run."""

    path: str
    features: frozenset[str]
    backends: tuple[str, ...]
    devices: tuple[Device, ...]
    extra_buffers: bool | None


@dataclass(frozen=True, slots=True)
class Build:
    """``installed`` and ``wanted`` are versions of llama-cpp-python. ``library`` is ``None`` if it does not load, and
    ``fault`` says why. ``repacks``: the user has not switched repacking off. ``torch`` is a version, ``gpus`` are
    makers of GPUs whose driver is there."""

    installed: str | None
    wanted: str | None
    library: Library | None
    fault: str = ""
    repacks: bool = True
    torch: str | None = None
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Machine:
    """``flags``: what the CPU can, as Linux calls it, empty if not known. ``load``: programs that want a core, the mean
    of a minute. ``quota``: cores' worth of time that a container may use, ``limit``: its memory."""

    processor: str
    flags: frozenset[str]
    cores: int
    load: float | None = None
    quota: float | None = None
    memory: int | None = None
    free: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """What the file of a model says of itself. ``template``: of the chat; ``template_fault``: why it is none."""

    size: int
    name: str | None
    architecture: str | None
    quant: str | None
    parameters: int
    context: int | None
    window: int | None
    cache: CacheShape | None
    template: bool
    template_fault: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """What llama.cpp makes of the file, without its weights."""

    recurrent: bool = False
    tokens: int = 0
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """``given`` is what the user wrote. Without ``header`` the file is missing or no model, and ``fault`` says why.
    ``reading`` is ``None`` where llama.cpp could not be asked, ``died`` how it ended if it did not survive it.
    ``checkpoint``: it is a folder of the hub, a drafter of this type (``--spec-type``)."""

    given: str
    path: Path | None = None
    header: Header | None = None
    fault: Fault | None = None
    reading: Reading | None = None
    died: str = ""
    checkpoint: str = ""


@dataclass(frozen=True, slots=True)
class Pairing:
    """``common`` ids mean the same in both vocabularies, but for ``barred`` of them; or the vocabularies differ, and
    ``translated`` tokens are spelt alike; or ``fault``."""

    common: int = 0
    barred: int = 0
    translated: int = 0
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The contexts to make room for: ``n_ctx`` tokens (0 = as the target was trained), and types of their caches, keys
    and values."""

    n_ctx: int = 0
    target: tuple[str, str] = ("f16", "f16")
    draft: tuple[str, str] = ("f16", "f16")


@dataclass(frozen=True, slots=True)
class Terminal:
    """``columns`` is ``None`` where stdout is none; ``encoding`` is that of stdout."""

    term: str
    stdin: bool
    stdout: bool
    colour: bool
    no_colour: bool
    encoding: str
    columns: int | None = None


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder we write to. ``use`` says what for, ``variable`` moves it; ``free`` is the space on its disk, and
    less than ``wants`` is little."""

    name: str
    use: str
    path: Path
    variable: str
    writable: bool
    free: int | None
    wants: int = 0


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration files that are there; ``usual`` is where the user's would be; ``fault``: why they cannot be
    used."""

    files: tuple[Path, ...]
    usual: Path
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """All of it. ``target`` and ``draft`` are ``None`` where no model is named."""

    build: Build
    machine: Machine
    terminal: Terminal
    config: Config
    folders: tuple[Folder, ...] = ()
    target: Model | None = None
    draft: Model | None = None
    pairing: Pairing | None = None
    wanted: Wanted = Wanted()
