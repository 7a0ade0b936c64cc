"""Makes a working environment; called by scripts/setup. Standard library only.

The one slow step is compiling llama.cpp (about 7 minutes on 2 cores). Its wheel is kept in the user's cache
under a key of everything it depends on, so it is compiled once a machine.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from scripts.native_build import Recipe, choose_recipe, host_facts

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = "llama-cpp-python"


class SetupError(Exception):
    """What the user must do, in one line."""


def main() -> None:
    args = arguments()
    try:
        python = prepare(args.venv, args.extras)
    except SetupError as error:
        fail(str(error))
    say(f"ready: source {args.venv}/bin/activate")
    if args.run:
        run_inside(python, args.run)


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/setup", description="Make a working environment.")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", metavar="DIR", help="default: .venv")
    parser.add_argument("--dev", action="store_true", help="what the checks need, and a second test model")
    parser.add_argument("--demo", action="store_true", help="a small model to try localspec with (98 MB)")
    parser.add_argument("--server", action="store_true", help="what `localspec serve` needs")
    parser.add_argument("--torch", action="store_true", help="PyTorch for the CPU, and Triton")
    parser.add_argument("--run", nargs=argparse.REMAINDER, default=[], metavar="CMD", help="run inside, when ready")
    args = parser.parse_args(argv)
    args.venv = args.venv.absolute()
    args.extras = [name for name in ("demo", "dev", "server", "torch") if getattr(args, name)]
    return args


def prepare(venv: Path, extras: list[str]) -> Path:
    """Makes ``venv`` hold an editable localspec with ``extras``; quick when it does. Returns its Python. Torch comes at
    the pinned version and never as a CUDA build by accident (several GB). Triton is as large where there is no GPU (200
    MB): there it interprets kernels and compiles them for the tests.

    Raises:
        SetupError: a step failed.
    """
    version = pinned(LIBRARY)
    python = venv / "bin" / "python"
    # pip is the last thing that venv puts in, so a half-made one is made again.
    if not (venv / "bin" / "pip").exists():
        say(f"making {venv}")
        quiet(
            [sys.executable, "-m", "venv", str(venv)],
            "install python3-venv, or use another Python (PYTHON=…)",
        )
    recipe = choose_recipe(host_facts(os.environ))
    stamp, state = venv / "localspec-setup", fingerprint(recipe, version, extras)
    if stamp.exists() and stamp.read_text() == state:
        return python
    if recipe.why:
        say(recipe.why)
    wheel = library_wheel(python, recipe, version)
    target = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    say(f"installing {target}")
    # Most modules are never imported: those that are get compiled then.
    install = ("install", "--no-compile")
    # The wheel goes in first and by force: another build of the same version may be there.
    pip(python, *install, "--force-reinstall", "--no-deps", str(wheel))
    pip(python, *install, "-e", target)
    if "torch" in extras:
        refuse_cuda(python)
    stamp.write_text(state)
    return python


def pinned(name: str) -> str:
    """The version that pyproject.toml pins ``name`` to."""
    pins = project()["dependencies"]
    return next(str(pin).partition("==")[2] for pin in pins if pin.startswith(f"{name}=="))


def project() -> Any:
    """What pyproject.toml says of the project."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def fingerprint(recipe: Recipe, version: str, extras: list[str]) -> str:
    """Changes when anything that the environment depends on does."""
    text = [(ROOT / "pyproject.toml").read_text(), str(ROOT), recipe.key(version), *extras]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()


def library_wheel(python: Path, recipe: Recipe, version: str) -> Path:
    """The wheel of llama-cpp-python for this machine: from the cache, else compiled into it.

    Raises:
        SetupError: no compiler, or it does not compile.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "localspec" / "wheels" / recipe.key(version)
    if found := sorted(home.glob("*.whl")):
        return found[0]
    if not recipe.compiler:
        raise SetupError("no C++ compiler found; install one (Debian, Ubuntu: apt-get install g++)")
    say(f"building llama.cpp with {recipe.compiler} {recipe.compiler_version}, about 7 minutes, once")
    home.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, **recipe.environment()}
    # Without pip's own cache: a wheel made with other flags could lie there. The move at the end is atomic:
    # nobody finds half a wheel.
    with tempfile.TemporaryDirectory(dir=home) as temp:
        wanted = f"{LIBRARY}=={version}"
        pip(
            python,
            "wheel",
            wanted,
            "--no-binary",
            LIBRARY,
            "--no-deps",
            "--no-cache-dir",
            "-w",
            temp,
            env=env,
        )
        built = next(Path(temp).glob("*.whl"))
        return built.rename(home / built.name)


def refuse_cuda(python: Path) -> None:
    """Raises:
    SetupError: a CUDA build of torch came.
    """
    check = "import sys, torch; sys.exit(torch.version.cuda is not None)"
    if subprocess.run([python, "-c", check], check=False).returncode:
        raise SetupError("pip brought a CUDA build of torch: point PIP_FIND_LINKS at a CPU wheel")


def pip(python: Path, *command: str, env: dict[str, str] | None = None) -> None:
    quiet([str(python), "-m", "pip", "--disable-pip-version-check", *command], "see the output above", env=env)


def quiet(command: list[str], advice: str, *, env: dict[str, str] | None = None) -> None:
    """Runs ``command`` and shows its output only when it fails.

    Raises:
        SetupError: it failed.
    """
    done = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        # The last lines hold the reason; a failed compilation prints thousands before.
        lines = done.stdout.decode(errors="replace").splitlines()
        print("\n".join(lines[-60:]), file=sys.stderr)
        raise SetupError(f"`{' '.join(command[:5])} …` ended with code {done.returncode}: {advice}")


def run_inside(python: Path, command: list[str]) -> NoReturn:
    """Becomes ``command``, with the environment's programs first on the path."""
    folder = python.parent
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    os.environ["VIRTUAL_ENV"] = str(folder.parent)
    program = shutil.which(command[0])
    if program is None:
        fail(f"{command[0]}: no such program")
    sys.stdout.flush()
    os.execv(program, command)


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def fail(text: str) -> NoReturn:
    print(f"setup: {text}", file=sys.stderr)
    sys.exit(1)
