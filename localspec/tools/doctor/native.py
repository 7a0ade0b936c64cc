"""Asks llama.cpp, in a process of its own: where it is missing or broken, that is a finding and not the end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec.tools.doctor.facts import Device, Fault, Library, Pairing, Reading

_PROBE = "localspec.backends.llamacpp.probe"
_TIMEOUT = 60  # seconds


@dataclass(frozen=True, slots=True)
class Answer:
    """What the process found out before it ended; ``fault`` says why it ended too early, "" if it did not."""

    records: Mapping[str, Any]
    fault: str = ""

    @property
    def library(self) -> Library | None:
        found = self.records.get("library")
        if found is None:
            return None
        return Library(
            path=found["path"],
            features=frozenset(re.findall(r"(\w+) = 1", found["system"])),
            backends=tuple(found["backends"]),
            devices=tuple(Device(**device) for device in found["devices"]),
            extra_buffers=found["extra_buffers"],
        )

    def reading(self, role: str) -> Reading | None:
        found = self.records.get(role)
        if found is None:
            return None
        return (
            Reading(fault=Fault(*found["error"])) if "error" in found else Reading(found["recurrent"], found["tokens"])
        )

    @property
    def pairing(self) -> Pairing | None:
        found = self.records.get("pairing")
        if found is None:
            return None
        return Pairing(fault=Fault(*found["error"])) if "error" in found else Pairing(**found)


def ask(paths: Sequence[Path]) -> Answer:
    """What llama.cpp says of itself and of the files, target first."""
    try:
        child = subprocess.run(
            [sys.executable, "-m", _PROBE, *map(str, paths)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GGML_NO_BACKTRACE": "1"},
        )
    except subprocess.TimeoutExpired as error:
        return Answer(_records(error.stdout or b""), f"it gives no answer within {_TIMEOUT} s")
    return Answer(_records(child.stdout), _fault(child.returncode, child.stderr))


def _records(output: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith(b"{") and line.endswith(b"}"):
            found |= json.loads(line)
    return found


def _fault(returncode: int, said: bytes) -> str:
    """How it ended, in one line: the signal, or the last line of a traceback."""
    if returncode == 0:
        return ""
    if returncode < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"it dies of {names.get(-returncode, f'signal {-returncode}')}"
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"it ends with code {returncode}"
