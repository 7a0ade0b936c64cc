"""The one table of options: every front end reads its flags, defaults and limits here."""

from __future__ import annotations

from localspec.options.commands import CHAT_OPTIONS, COMMANDS, COMPLETE_OPTIONS, GENERATION_OPTIONS, all_options
from localspec.options.option import Option
from localspec.options.rules import check_values, depth, ignored
from localspec.options.settings import Settings, settle
from localspec.options.values import (
    Values,
    check_loading,
    engine_options,
    has_grammar,
    request,
    sampling_params,
    spec_params,
    system_message,
    template_kwargs,
)

__all__ = [
    "CHAT_OPTIONS",
    "COMMANDS",
    "COMPLETE_OPTIONS",
    "GENERATION_OPTIONS",
    "Option",
    "Settings",
    "Values",
    "all_options",
    "check_loading",
    "check_values",
    "depth",
    "engine_options",
    "has_grammar",
    "ignored",
    "request",
    "sampling_params",
    "settle",
    "spec_params",
    "system_message",
    "template_kwargs",
]
