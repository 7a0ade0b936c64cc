"""Is llama.cpp there, and was it built for this CPU?"""

from __future__ import annotations

from collections.abc import Iterator

from localspec.tools.doctor.facts import Build, Library, Machine
from localspec.tools.doctor.findings import Finding, Level

#: llama.cpp's name of an instruction set → Linux's names of it, any of which will do. First those that matter most.
_MUCH = {
    "SSSE3": ("ssse3",),
    "AVX": ("avx",),
    "AVX2": ("avx2",),
    "FMA": ("fma",),
    "F16C": ("f16c",),
    "AVX512": ("avx512f",),
    "NEON": ("asimd", "neon"),
    "DOTPROD": ("asimddp",),
}
_SOME = {
    "BMI2": ("bmi2",),
    "AVX_VNNI": ("avx_vnni",),
    "AVX512_VBMI": ("avx512vbmi",),
    "AVX512_VNNI": ("avx512_vnni",),
    "AVX512_BF16": ("avx512_bf16",),
    "MATMUL_INT8": ("i8mm",),
    "SVE": ("sve",),
}
_AMX = {"AMX_INT8": ("amx_int8",)}
_SIMD = {**_MUCH, **_SOME, **_AMX}


def rebuild(version: str | None, flags: str = "-DGGML_NATIVE=ON") -> str:
    """The commands that make another build."""
    package = f"llama-cpp-python=={version}" if version else "llama-cpp-python"
    pip = "pip install --force-reinstall --no-deps --no-cache-dir --no-binary llama-cpp-python"
    return f"scripts/setup, or: CMAKE_ARGS='{flags}' {pip} {package}"


def check(build: Build, machine: Machine) -> Iterator[Finding]:
    """Findings of the group ``build``."""
    yield _installed(build)
    if build.library is not None:
        yield _simd(build.library, machine, build.wanted)
        yield _selftest(build)
        yield _rpc(build.library, build.wanted)
    yield _torch(build)


def _installed(build: Build) -> Finding:
    name, mend = "build.llama", rebuild(build.wanted)
    if build.installed is None:
        return Finding(name, Level.PROBLEM, "llama-cpp-python is not installed: no model can be loaded", mend)
    if build.library is None:
        what = f"llama-cpp-python {build.installed} does not load: {build.fault}"
        return Finding(name, Level.PROBLEM, what, mend)
    if build.wanted is not None and build.installed != build.wanted:
        what = f"llama-cpp-python {build.installed} is not the {build.wanted} that localspec is made for"
        why = "structures may lie otherwise in memory"
        return Finding(name, Level.WARNING, f"{what}: {why}", mend)
    return Finding(name, Level.OK, f"llama-cpp-python {build.installed} loads from {build.library.path}")


def _simd(library: Library, machine: Machine, version: str | None) -> Finding:
    name = "build.simd"
    built = [feature for feature in _SIMD if feature in library.features]
    if not machine.flags:
        return Finding(name, Level.NOTE, f"built for {_listed(built)}; what this CPU has is not known here")
    has = [feature for feature, flags in _SIMD.items() if not machine.flags.isdisjoint(flags)]
    if alien := [feature for feature in built if feature not in has]:
        what = f"the build uses {_listed(alien)}, which this CPU lacks: it dies of an illegal instruction"
        return Finding(name, Level.PROBLEM, what, rebuild(version))
    missing = [feature for feature in has if feature not in built]
    if any(feature in _MUCH for feature in missing):
        what = f"the build does not use {_listed(missing)} of this CPU: every pass is slower"
        return Finding(name, Level.WARNING, what, rebuild(version))
    if some := [feature for feature in missing if feature not in _AMX]:
        what = f"the build does not use {_listed(some)} of this CPU: some passes are slower"
        return Finding(name, Level.NOTE, what, rebuild(version))
    if missing:
        what = "the build does not use AMX of this CPU, which speeds up many rows (gcc before 13 miscompiles it)"
        return Finding(name, Level.NOTE, what, "install clang 16 or newer, then scripts/setup")
    return Finding(name, Level.OK, f"built for what this CPU has: {_listed(built)}")


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "no instruction set in particular"


def _selftest(build: Build) -> Finding:
    name = "build.selftest"
    assert build.library is not None
    if not build.repacks:
        what = "weights are not repacked for this CPU because LOCALSPEC_NO_EXTRA_BUFFERS is set, which is slower"
        return Finding(name, Level.NOTE, what, "unset LOCALSPEC_NO_EXTRA_BUFFERS")
    match build.library.extra_buffers:
        case None:
            return Finding(
                name, Level.OK, "the self-test of this build has not run yet; the first model loaded runs it"
            )
        case False:
            what = "the self-test crashed with weights repacked for this CPU: repacking stays off, which is slower"
            return Finding(name, Level.WARNING, what, rebuild(build.wanted))
    return Finding(name, Level.OK, "the self-test went well: weights are repacked for this CPU")


def _rpc(library: Library, version: str | None) -> Finding:
    if "RPC" in library.backends:
        return Finding("build.rpc", Level.OK, "RPC servers can be used (--rpc)")
    what = "the build has no RPC: --rpc cannot be used"
    return Finding("build.rpc", Level.NOTE, what, rebuild(version, "-DGGML_RPC=ON"))


def _torch(build: Build) -> Finding:
    if build.torch is not None:
        return Finding("build.torch", Level.OK, f"torch {build.torch} is installed")
    return Finding("build.torch", Level.OK, "torch is not installed; GGUF models do not need it")
