"""Texts that hold several values: devices, servers, overrides, shares, adapters."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from localspec.errors import UsageError
from localspec.options.tables.groups import INT_MAX


def layers(flag: str, given: str) -> int | None:
    """``auto`` is ``None``, ``all`` is -1 as llama.cpp takes it."""
    if given in ("auto", "all"):
        return None if given == "auto" else -1
    if not (given.isascii() and given.isdecimal()) or int(given) > INT_MAX:
        raise UsageError(f"{flag} {given} is not a number of layers", hint="Give a number, auto or all.")
    return int(given)


def devices(flag: str, given: str | None) -> tuple[str, ...] | None:
    """Names of devices; ``("none",)`` is the CPU alone."""
    if given is None:
        return None
    names = tuple(name.strip() for name in given.split(","))
    if not all(names) or ("none" in names and len(names) > 1):
        raise UsageError(f"{flag} {given} is no list of devices", hint="Give names with commas between, or none.")
    return names


def servers(given: str | None) -> tuple[str, ...]:
    """HOST:PORT each."""
    names = tuple(name.strip() for name in given.split(",")) if given is not None else ()
    for name in names:
        host, _, port = name.rpartition(":")
        if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:
            raise UsageError(f"--rpc {name} is not a server", hint="Give HOST:PORT, e.g. 127.0.0.1:50052.")
    return names


def overrides(flag: str, given: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Pairs of a pattern for names of tensors and a type of buffer."""
    pairs = []
    for text in (part for value in given for part in value.split(",")):
        pattern, equals, buffer = text.strip().rpartition("=")
        if not (pattern and equals and buffer):
            raise UsageError(f"{flag} {text} cannot be read", hint="Write PATTERN=BUFFER, e.g. exps=CPU.")
        pairs.append((pattern, buffer))
    return tuple(pairs)


def shares(given: str | None) -> tuple[float, ...]:
    """Parts of a whole, in whatever unit."""
    if given is None:
        return ()
    try:
        parts = tuple(float(text) for text in given.replace("/", ",").split(","))
    except ValueError:
        parts = ()
    if not any(parts) or not all(math.isfinite(part) and part >= 0 for part in parts):
        raise UsageError(f"--tensor-split {given} is no list of shares", hint="Give one for each device, e.g. 3,1.")
    return parts


def margins(given: str) -> tuple[int, ...]:
    """MiB each."""
    texts = [text.strip() for text in given.split(",")]
    if not all(text.isascii() and text.isdecimal() and int(text) <= INT_MAX for text in texts):
        raise UsageError(
            f"--fit-target {given} is no list of margins", hint="Give MiB, one for all devices or one for each."
        )
    return tuple(map(int, texts))


def lora(plain: Iterable[str], scaled: Iterable[str]) -> tuple[tuple[Path, float], ...]:
    """Adapters and their scales, those without one first."""
    found = [(Path(name), 1.0) for text in plain for name in _fields("--lora", text)]
    for item in (name for text in scaled for name in _fields("--lora-scaled", text)):
        name, _, scale = item.rpartition(":")
        try:
            number = float(scale)
        except ValueError:
            number = math.nan
        if not name or not math.isfinite(number):
            raise UsageError(f"--lora-scaled {item} cannot be read", hint="Write FILE:SCALE, e.g. adapter.gguf:0.5.")
        found.append((Path(name), number))
    return tuple(found)


def _fields(flag: str, text: str) -> list[str]:
    """A comma list, where a name with commas stands in double quotes."""
    import csv

    names = next(csv.reader([text]), [])
    if not names or not all(names):
        raise UsageError(f"{flag} {text!r} names no file", hint="Give the path of an adapter.")
    return names
