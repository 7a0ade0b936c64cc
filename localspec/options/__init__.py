"""The one table of options: every front end reads its flags, defaults and limits here."""

from __future__ import annotations

from localspec.options.option import Option
from localspec.options.table import GENERATION_OPTIONS, MODEL, TEXT
from localspec.options.values import Values, check_values, engine_options, request, sampling_params, spec_params

__all__ = [
    "GENERATION_OPTIONS",
    "MODEL",
    "TEXT",
    "Option",
    "Values",
    "check_values",
    "engine_options",
    "request",
    "sampling_params",
    "spec_params",
]
