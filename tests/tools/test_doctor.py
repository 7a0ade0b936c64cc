"""The doctor's checks on facts of machines that are not here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.backends.memory import ROOM, CacheShape
from localspec.errors import ExitCode
from localspec.tools.doctor import TITLES, Finding, Level, examine, exit_code
from localspec.tools.doctor import models as doctor_models
from localspec.tools.doctor.facts import (
    Build,
    Config,
    Device,
    Facts,
    Fault,
    Folder,
    Header,
    Library,
    Machine,
    Model,
    Pairing,
    Reading,
    Terminal,
    Wanted,
)

GB = 1_000_000_000
MODERN = ("ssse3", "avx", "avx2", "fma", "f16c", "bmi2", "avx512f", "avx512_vnni")
BUILT = ("SSSE3", "AVX", "AVX2", "FMA", "F16C", "BMI2", "AVX512", "AVX512_VNNI")
LIBRARY = Library("/lib/libllama.so", frozenset(BUILT), ("RPC", "CPU"), (), extra_buffers=True)
#: 64 kB a token in f16.
SHAPE = CacheShape(layers=16, key=1024, value=1024)
BIG = Header(4 * GB, "Big 7B", "llama", "Q4_K_M", 7 * GB, 8192, None, SHAPE, template=True)
SMALL = replace(BIG, size=GB // 4, name="Small", parameters=GB // 2, cache=CacheShape(4, 256, 256))
READ = Reading(recurrent=False, tokens=32000)
TARGET = Model("big.gguf", Path("big.gguf"), BIG, reading=READ)
DRAFT = Model("small.gguf", Path("small.gguf"), SMALL, reading=READ)
PAIR = (("target", TARGET), ("draft", DRAFT))
FACTS = Facts(
    build=Build("0.3.36", "0.3.36", LIBRARY, torch="2.13.0"),
    machine=Machine("Some CPU", frozenset(MODERN), 8, load=0.1, memory=32 * GB, free=16 * GB),
    terminal=Terminal("xterm", stdin=True, stdout=True, colour=True, no_colour=False, encoding="UTF-8", columns=100),
    config=Config((), Path("config.toml")),
    folders=(Folder("models", "models", Path("cache"), "HF_HOME", writable=True, free=50 * GB, wants=GB),),
    target=TARGET,
    draft=DRAFT,
    pairing=Pairing(32000),
)


def found(facts: Facts, check: str) -> Finding:
    """The one finding of that name."""
    (finding,) = [one for one in examine(facts) if one.check == check]
    return finding


def bad(facts: Facts) -> dict[str, Level]:
    """What is not well."""
    return {one.check: one.level for one in examine(facts) if one.level is not Level.OK}


def built(**changes: Any) -> Facts:
    return replace(FACTS, build=replace(FACTS.build, **changes))


def library(**changes: Any) -> Facts:
    return built(library=replace(LIBRARY, **changes))


def machine(**changes: Any) -> Facts:
    return replace(FACTS, machine=replace(FACTS.machine, **changes))


def models(target: dict[str, Any] | None = None, draft: dict[str, Any] | None = None, **changes: Any) -> Facts:
    """With other headers."""
    one = replace(TARGET, header=replace(BIG, **(target or {})))
    other = replace(DRAFT, header=replace(SMALL, **(draft or {})))
    return replace(FACTS, target=one, draft=other, **changes)


def terminal(**changes: Any) -> Facts:
    return replace(FACTS, terminal=replace(FACTS.terminal, **changes))


def test_a_good_machine_with_a_good_pair() -> None:
    assert bad(FACTS) == {}
    assert exit_code(examine(FACTS)) == ExitCode.OK
    groups = list(dict.fromkeys(finding.group for finding in examine(FACTS)))
    assert groups == list(TITLES)


# Build


def test_no_library() -> None:
    facts = built(installed=None, library=None, fault="ModuleNotFoundError: No module named 'llama_cpp'")
    finding = found(facts, "build.llama")
    assert finding.level is Level.PROBLEM
    assert "scripts/setup" in finding.mend
    assert "llama-cpp-python==0.3.36" in finding.mend
    assert exit_code(examine(facts)) == ExitCode.RUNTIME


def test_a_library_that_dies() -> None:
    finding = found(built(library=None, fault="it dies of SIGILL"), "build.llama")
    assert (finding.level, "it dies of SIGILL" in finding.text) == (Level.PROBLEM, True)


def test_another_version() -> None:
    finding = found(built(installed="0.3.20"), "build.llama")
    assert finding.level is Level.WARNING
    assert "0.3.20 is not the 0.3.36" in finding.text


@pytest.mark.parametrize(
    ("features", "flags", "level", "words"),
    [
        (BUILT, MODERN, Level.OK, "AVX512_VNNI"),
        (BUILT[:6], MODERN, Level.WARNING, "does not use AVX512, AVX512_VNNI of this CPU"),
        (BUILT[:7], MODERN, Level.NOTE, "does not use AVX512_VNNI of"),
        ((), MODERN, Level.WARNING, "AVX2"),
        (("SSSE3",), ("ssse3",), Level.OK, "SSSE3"),  # an old CPU, and a build for it
        (BUILT, MODERN[:2], Level.PROBLEM, "uses AVX2, FMA, F16C, AVX512, BMI2, AVX512_VNNI, which this CPU lacks"),
        (BUILT, (*MODERN, "amx_int8"), Level.NOTE, "does not use AMX"),
        (("NEON",), ("asimd", "asimddp"), Level.WARNING, "does not use DOTPROD"),
        (BUILT, (), Level.NOTE, "not known here"),
    ],
)
def test_what_the_build_uses_of_the_cpu(
    features: tuple[str, ...], flags: tuple[str, ...], level: Level, words: str
) -> None:
    facts = library(features=frozenset(features))
    finding = found(replace(facts, machine=replace(facts.machine, flags=frozenset(flags))), "build.simd")
    assert finding.level is level
    assert words in finding.text
    assert ("scripts/setup" in finding.mend) == (level is not Level.OK and bool(flags))


@pytest.mark.parametrize(
    ("facts", "check", "level"),
    [
        (library(extra_buffers=False), "build.selftest", Level.WARNING),
        (library(extra_buffers=None), "build.selftest", Level.OK),
        (built(repacks=False), "build.selftest", Level.NOTE),
        (library(backends=("CPU",)), "build.rpc", Level.NOTE),
        (built(torch=None), "build.torch", Level.OK),
    ],
)
def test_other_matters_of_the_build(facts: Facts, check: str, level: Level) -> None:
    assert found(facts, check).level is level


# CPU and devices


def test_a_busy_machine() -> None:
    assert bad(machine(load=3.9)) == {}
    assert bad(machine(load=4.0)) == {"cpu.load": Level.NOTE}
    assert bad(machine(load=8.0)) == {"cpu.load": Level.WARNING}


def test_a_container_with_less_than_the_cores() -> None:
    finding = found(machine(quota=1.5), "cpu.limit")
    assert finding.level is Level.WARNING
    assert "-t 1" in finding.mend
    assert bad(machine(quota=8.0)) == {}


@pytest.mark.parametrize(
    ("backends", "expected"), [(("CPU",), "-DGGML_CUDA=ON"), (("CPU", "CUDA"), "CUDA_VISIBLE_DEVICES")]
)
def test_a_gpu_that_is_not_used(backends: tuple[str, ...], expected: str) -> None:
    facts = built(gpus=("NVIDIA",), library=replace(LIBRARY, backends=backends))
    finding = found(facts, "devices.unused")
    assert (finding.level, expected in finding.mend) == (Level.WARNING, True)


def test_nothing_is_said_of_devices_without_a_library() -> None:
    assert not [one for one in examine(built(library=None)) if one.group == "devices"]


# Memory


def fit(facts: Facts) -> Finding:
    return found(facts, "memory.fit")


def test_room_for_a_pair() -> None:
    # 4.25 GB of weights, 65,536 bytes and 4,096 bytes a token.
    finding = fit(FACTS)
    assert finding.level is Level.OK
    assert "weights of both models (4.2 GB) and caches (570 MB) for a context of 8192 tokens" in finding.text
    assert fit(replace(FACTS, wanted=Wanted(target=("q8_0", "q8_0")))).text.count("caches (319 MB)") == 1


def test_too_long_a_context_names_one_that_fits() -> None:
    facts = replace(FACTS, wanted=Wanted(n_ctx=1_000_000))
    finding = fit(facts)
    assert finding.level is Level.PROBLEM
    assert finding.mend.startswith("-c 8192, or")  # more would fit, but it was trained for that
    assert exit_code(examine(facts)) == ExitCode.MEMORY
    tight = models(machine=replace(FACTS.machine, free=5 * GB))
    assert fit(tight).level is Level.PROBLEM
    n_ctx = int(fit(tight).mend.split(",")[0].removeprefix("-c "))
    assert fit(replace(tight, wanted=Wanted(n_ctx=n_ctx))).level is Level.OK
    assert fit(replace(tight, wanted=Wanted(n_ctx=n_ctx + 256))).level is Level.PROBLEM


def test_weights_that_do_not_fit() -> None:
    finding = fit(machine(free=2 * GB))
    assert finding.level is Level.PROBLEM
    assert finding.mend == "a smaller quantisation or model, or leave -md out"


def test_memory_that_is_not_known() -> None:
    assert bad(machine(free=None, memory=None)) == {"memory.free": Level.NOTE, "memory.fit": Level.NOTE}
    assert "cannot be told" in fit(models(target={"cache": None})).text
    assert "cannot be told" in fit(models(draft={"cache": None})).text
    assert "cannot be told" in fit(models(target={"context": None})).text


def test_little_memory_and_a_container() -> None:
    facts = machine(free=GB // 2, limit=8 * GB)
    assert bad(facts) == {"memory.free": Level.WARNING, "memory.limit": Level.NOTE, "memory.fit": Level.PROBLEM}
    assert "8.0 GB of the machine's 32 GB" in found(facts, "memory.limit").text


def test_memory_of_devices_counts_unless_it_is_the_cpus() -> None:
    for shared, level in ((False, Level.OK), (True, Level.PROBLEM)):
        device = Device("GPU0", "a GPU", 8 * GB, 8 * GB, shared)
        facts = library(devices=(device,))
        facts = replace(facts, machine=replace(facts.machine, free=2 * GB))
        assert fit(facts).level is level
        assert found(facts, "memory.gpu").level is Level.OK
        assert found(facts, "devices.gpu").mend == "-dev GPU0"
    small = library(devices=(Device("GPU0", "a GPU", 4 * GB, 8 * GB),))
    assert found(small, "memory.gpu").level is Level.NOTE


@given(
    free=st.integers(0, 100 * GB),
    size=st.integers(1, 50 * GB),
    layers=st.integers(0, 100),
    context=st.integers(1, 1 << 20),
)
def test_the_longest_context_fits_and_no_longer_one(free: int, size: int, layers: int, context: int) -> None:
    shape = CacheShape(layers, 512, 512)
    facts = models(target={"size": size, "cache": shape, "context": context}, machine=replace(FACTS.machine, free=free))
    finding = fit(replace(facts, draft=None))
    room = ROOM * free - size
    assert (finding.level is Level.OK) == (shape.size(context, "f16", "f16") <= int(ROOM * free) - size)
    if finding.level is Level.OK and "any -c" not in finding.text:
        most = int(finding.text.split("-c up to ")[1].split()[0])
        assert shape.size(most, "f16", "f16") <= room
        assert shape.size(most + 256, "f16", "f16") > int(room)


# Models


def test_a_file_that_is_no_model() -> None:
    fault = Fault("notes.txt is not a GGUF file", "Download it again.")
    facts = replace(FACTS, target=Model("notes.txt", fault=fault), pairing=None)
    assert found(facts, "target.file") == Finding("target.file", Level.PROBLEM, fault.message, fault.hint)
    assert exit_code(examine(facts)) == ExitCode.MODEL
    assert not [one for one in examine(facts) if one.group == "pair" or one.check == "memory.fit"]


def test_a_folder_of_the_hub_can_be_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    def level(role: str, kind: str) -> Level:
        changes: dict[str, Any] = {"pairing": None, role: Model("head", Path("head"), checkpoint=kind)}
        findings = examine(replace(FACTS, **changes))
        return next(one.level for one in findings if one.check == f"{role}.file")

    monkeypatch.setattr(doctor_models, "find_spec", lambda name: object())
    assert level("draft", "draft-eagle") == Level.OK
    assert level("draft", "draft-simple") == level("target", "draft-eagle") == Level.PROBLEM
    monkeypatch.setattr(doctor_models, "find_spec", lambda name: None)
    assert level("draft", "draft-eagle") == Level.PROBLEM


@pytest.mark.parametrize(
    ("header", "check", "level"),
    [
        ({"fault": "5 bytes are missing"}, "target.file", Level.PROBLEM),
        ({"template": False}, "target.template", Level.NOTE),
        ({"template_fault": "unexpected end"}, "target.template", Level.WARNING),
        ({"window": 512}, "target.trees", Level.NOTE),
        ({"context": None}, "target.context", Level.NOTE),
    ],
)
def test_what_a_header_says(header: dict[str, Any], check: str, level: Level) -> None:
    finding = found(models(target=header), check)
    assert (finding.level, bool(finding.mend)) == (level, True)


def test_a_context_beyond_the_trained() -> None:
    facts = replace(FACTS, draft=None, wanted=Wanted(n_ctx=16384))
    assert bad(facts) == {"target.context": Level.WARNING}


@pytest.mark.parametrize(
    ("role", "reading", "check", "level"),
    [
        ("target", Reading(recurrent=True), "trees", Level.WARNING),
        ("draft", Reading(recurrent=True), "trees", Level.PROBLEM),
        ("target", Reading(fault=Fault("unknown model architecture: 'new'", "Update.")), "support", Level.PROBLEM),
    ],
)
def test_what_llama_cpp_says(role: str, reading: Reading, check: str, level: Level) -> None:
    target, draft = (replace(one, reading=reading) if name == role else one for name, one in PAIR)
    facts = replace(FACTS, target=target, draft=draft)
    assert bad(facts) == {f"{role}.{check}": level}
    assert exit_code(examine(facts)) == (ExitCode.MODEL if level is Level.PROBLEM else ExitCode.OK)


def test_a_file_that_kills_llama_cpp() -> None:
    facts = replace(FACTS, target=replace(TARGET, reading=None, died="it dies of SIGSEGV"), pairing=None)
    assert "it dies of SIGSEGV" in found(facts, "target.support").text
    assert exit_code(examine(facts)) == ExitCode.MODEL


def test_no_model_is_no_problem() -> None:
    assert bad(replace(FACTS, target=None, draft=None, pairing=None)) == {"target.file": Level.NOTE}


# Pair


def test_vocabularies_that_differ() -> None:
    facts = replace(FACTS, pairing=Pairing(fault=Fault("the draft model spells token 7 'a', the target 'b'", "No.")))
    finding = found(facts, "pair.vocabulary")
    assert (finding.level, "--spec-type suffix" in finding.mend) == (Level.PROBLEM, True)
    assert exit_code(examine(facts)) == ExitCode.MODEL
    assert [one.check for one in examine(facts) if one.group == "pair"] == ["pair.vocabulary"]


def test_names_that_differ_are_counted() -> None:
    assert "3 names of control tokens" in found(replace(FACTS, pairing=Pairing(32000, 3)), "pair.vocabulary").text


@pytest.mark.parametrize(
    ("times", "level"),
    [
        (0.5, Level.WARNING),
        (1, Level.WARNING),
        (4.9, Level.WARNING),
        (5, Level.NOTE),
        (9.9, Level.NOTE),
        (10, Level.OK),
        (16, Level.OK),
        (20, Level.OK),
        (60, Level.NOTE),
    ],
)
def test_how_much_smaller_the_draft_model_is(times: float, level: Level) -> None:
    finding = found(models(draft={"size": int(BIG.size / times)}), "pair.size")
    assert finding.level is level
    assert bool(finding.mend) == (level is not Level.OK)
    if times > 1:
        assert f"{times:.1f} times smaller" in finding.text


def test_a_pair_of_one_file() -> None:
    facts = replace(FACTS, draft=replace(TARGET, given="again"))
    assert bad(facts) == {"pair.size": Level.WARNING}


def test_another_family_and_a_shorter_context() -> None:
    assert bad(models(draft={"architecture": "qwen2"})) == {"pair.family": Level.NOTE}
    assert found(models(draft={"context": 4096}), "pair.context").mend.startswith("-c 4096")


# Terminal and files


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (terminal(term="dumb", colour=False), {"terminal.type": Level.NOTE, "terminal.colour": Level.NOTE}),
        (terminal(term=""), {"terminal.type": Level.NOTE}),
        (terminal(colour=False, no_colour=True), {"terminal.colour": Level.NOTE}),
        (terminal(encoding="ANSI_X3.4-1968"), {"terminal.encoding": Level.WARNING}),
        (terminal(encoding=""), {"terminal.encoding": Level.WARNING}),
        (terminal(encoding="utf8"), {}),
        (terminal(columns=40), {"terminal.width": Level.NOTE}),
        (terminal(stdout=False, columns=None), {"terminal.streams": Level.NOTE}),
        (terminal(stdin=False), {"terminal.streams": Level.NOTE}),
    ],
)
def test_terminals(facts: Facts, expected: dict[str, Level]) -> None:
    assert bad(facts) == expected


def test_a_broken_configuration_file() -> None:
    fault = Fault("unknown key temperatur in config.toml", "Did you mean temp?")
    facts = replace(FACTS, config=replace(FACTS.config, fault=fault))
    assert (found(facts, "files.config").level, found(facts, "files.config").mend) == (Level.PROBLEM, fault.hint)
    assert exit_code(examine(facts)) == ExitCode.RUNTIME
    there = replace(FACTS, config=Config((Path("a.toml"),), Path("a.toml")))
    assert found(there, "files.config").text == "settings come from a.toml"


@pytest.mark.parametrize(("change", "level"), [({"writable": False}, Level.WARNING), ({"free": 1}, Level.WARNING)])
def test_folders(change: dict[str, Any], level: Level) -> None:
    facts = replace(FACTS, folders=(replace(FACTS.folders[0], **change),))
    assert bad(facts) == {"files.models": level}
    assert "HF_HOME" in found(facts, "files.models").mend


# All of it


def test_a_model_comes_before_memory_and_memory_before_the_rest() -> None:
    def of(*groups: str) -> ExitCode:
        return exit_code([Finding(f"{group}.x", Level.PROBLEM, "…") for group in groups])

    assert of() == ExitCode.OK
    assert of("build") == of("files", "build") == ExitCode.RUNTIME
    assert of("build", "memory") == ExitCode.MEMORY
    assert of("build", "memory", "pair") == ExitCode.MODEL


def test_what_is_not_well_says_what_mends_it() -> None:
    bare = Facts(
        build=Build(None, None, None),
        machine=Machine("?", frozenset(), 1, load=9.0, quota=0.5, memory=GB, free=1, limit=GB // 2),
        terminal=Terminal("dumb", stdin=False, stdout=True, colour=False, no_colour=False, encoding="?", columns=10),
        config=Config((), Path("x"), Fault("broken", "Mend it.")),
        folders=(replace(FACTS.folders[0], writable=False),),
        target=replace(TARGET, header=replace(BIG, fault="cut", template=False, context=None, cache=None)),
        draft=DRAFT,
    )
    findings = examine(bare)
    assert [one for one in findings if one.level is not Level.OK and not one.mend] == []
    assert all("\n" not in one.text + one.mend for one in findings)
    assert len({one.check for one in findings}) == len(findings)
