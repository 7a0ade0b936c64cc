"""How to compile llama.cpp on this machine: which compiler, which flags, and a key for the result.

The rule that matters: gcc before 13 miscompiles the set-up of Intel's AMX tiles, and the result dies with an
illegal instruction at the first pass. Such a machine gets clang 16 or newer if there is one, else a build
without AMX.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BASE_FLAGS = ("-DLLAVA_BUILD=OFF", "-DLLAMA_BUILD_COMMON=OFF", "-DGGML_RPC=ON")
# ggml compiles its AMX kernels where the compiler announces AMX. Taking the announcement back works with any
# compiler; -mno-amx-int8 is unknown to older ones.
NO_AMX_FLAGS = ("-DCMAKE_C_FLAGS=-U__AMX_INT8__", "-DCMAKE_CXX_FLAGS=-U__AMX_INT8__")
CLANGS = ("clang", *(f"clang-{version}" for version in range(22, 15, -1)))
# The oldest that set up the tiles right.
SOUND_AMX = {"gcc": 13, "clang": 16}


@dataclass(frozen=True)
class Compiler:
    """A C compiler with its C++ twin. ``kind`` is ``gcc`` or ``clang``."""

    cc: str
    cxx: str
    kind: str
    version: str

    @property
    def sound_amx(self) -> bool:
        return int(self.version.split(".")[0]) >= SOUND_AMX[self.kind]


@dataclass(frozen=True)
class Host:
    """What the build depends on. ``compilers``: the default one first. ``libc`` as in ``glibc-2.36``."""

    cpu_flags: frozenset[str]
    compilers: tuple[Compiler, ...]
    cuda: bool
    python: str
    libc: str
    user_flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """How to build. ``why`` is a line for the user where the choice is not the obvious one."""

    compiler: str
    compiler_version: str
    cc: str
    cxx: str
    flags: tuple[str, ...]
    host: Host
    why: str = ""

    def environment(self) -> dict[str, str]:
        """Variables that make pip build this way."""
        return {"CC": self.cc, "CXX": self.cxx, "CMAKE_ARGS": shlex.join(self.flags)}

    def key(self, library_version: str) -> str:
        """Name of the result: version first, for people; the digest covers the rest.

        The wheel itself works with any Python 3; Python is part of the key because its platform tag is.
        """
        parts = (*self.flags, self.compiler, self.compiler_version, *sorted(self.host.cpu_flags))
        digest = hashlib.sha256("\n".join((*parts, self.host.python, self.host.libc)).encode()).hexdigest()
        return f"{library_version}-{self.compiler or 'none'}-{digest[:16]}"


def choose_recipe(host: Host) -> Recipe:
    """The fastest build that is known to be right on ``host``."""
    flags, why = list(BASE_FLAGS), ""
    compiler = host.compilers[0] if host.compilers else None
    if compiler and "amx_tile" in host.cpu_flags and not compiler.sound_amx:
        better = next((c for c in host.compilers if c.sound_amx), None)
        trouble = f"this processor has AMX, which {compiler.kind} {compiler.version} miscompiles"
        if better:
            compiler, why = better, f"{trouble}: using {better.kind} {better.version}"
        else:
            flags += NO_AMX_FLAGS
            why = f"{trouble}: building without it (install clang 16 or newer for a faster build)"
    if host.cuda:
        flags.append("-DGGML_CUDA=ON")
    flags += host.user_flags
    if compiler is None:
        return Recipe("", "", "", "", tuple(flags), host)
    return Recipe(compiler.kind, compiler.version, compiler.cc, compiler.cxx, tuple(flags), host, why)


def host_facts(env: Mapping[str, str]) -> Host:
    """Looks at this machine.

    In ``env``, ``CC`` and ``CXX`` name the default compiler and ``LOCALSPEC_CMAKE_ARGS`` adds flags.
    """
    wanted = (env.get("CC") or "cc", env.get("CXX") or "c++")
    pairs = [wanted, ("gcc", "g++"), *((cc, cc.replace("clang", "clang++")) for cc in CLANGS)]
    compilers = [c for cc, cxx in pairs if (c := probe(cc, cxx))]
    return Host(
        cpu_flags=cpu_flags(),
        compilers=tuple(compilers),
        cuda=bool(shutil.which("nvcc")) and succeeds(["nvidia-smi", "-L"]),
        python=f"{sys.implementation.cache_tag}-{platform.system()}-{platform.machine()}",
        libc="-".join(platform.libc_ver()),
        user_flags=tuple(shlex.split(env.get("LOCALSPEC_CMAKE_ARGS", ""))),
    )


def probe(cc: str, cxx: str) -> Compiler | None:
    """The compiler behind these names, ``None`` if it is not there or is another than gcc and clang."""
    if not (shutil.which(cc) and shutil.which(cxx)):
        return None
    # Asking the preprocessor works for every name that a compiler goes by; --version would need parsing.
    macros = "__clang_major__ __clang_minor__ __GNUC__ __GNUC_MINOR__"
    done = subprocess.run([cc, "-E", "-P", "-x", "c", "-"], input=macros, capture_output=True, text=True, check=False)
    words = done.stdout.split()
    if done.returncode or len(words) != 4 or not words[2].isdigit():
        return None
    kind, version = ("clang", words[:2]) if words[0].isdigit() else ("gcc", words[2:])
    return Compiler(cc, cxx, kind, ".".join(version))


def cpu_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Instruction sets of this processor; where the system has no such file, its name instead."""
    try:
        text = path.read_text()
    except OSError:
        return frozenset({platform.machine(), platform.processor()})
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found.group(1).split()) if found else frozenset({platform.machine()})


def succeeds(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
