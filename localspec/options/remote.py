"""What options mean where a server answers: what an engine is made of is said where the server is started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from localspec.options.option import Option
from localspec.options.tables.chat import CHAT_TEMPLATE_OPTIONS
from localspec.options.tables.config import TUNED
from localspec.options.tables.context import CONTEXT_OPTIONS
from localspec.options.tables.devices import DEVICE_OPTIONS
from localspec.options.tables.load import LIMITS
from localspec.options.tables.model import HUB_OPTIONS, MODEL_OPTIONS
from localspec.options.tables.ngram import NGRAM_OPTIONS
from localspec.options.tables.spec import SPEC_OPTIONS

#: These travel with a request, or say of the server what it does not say itself.
_WITH_REQUESTS = (
    *("system", "system_file", "chat_template_kwargs", "reasoning", "ctx_size"),
    *("spec", "draft_n_max", "draft_n_min", "draft_p_min", "tree_nodes", "tree_width", "spec_accept"),
)
#: What an engine is made of.
OF_ENGINES = frozenset(
    one.name
    for one in (
        *(*CHAT_TEMPLATE_OPTIONS, *MODEL_OPTIONS, *HUB_OPTIONS, *SPEC_OPTIONS, *NGRAM_OPTIONS),
        *(*CONTEXT_OPTIONS, *DEVICE_OPTIONS, *LIMITS, TUNED),
    )
    if one.name not in _WITH_REQUESTS
)


def is_remote(values: Mapping[str, Any]) -> bool:
    """Whether servers answer, and nothing here does. (`bench` measures servers, and models here beside them.)"""
    return bool(values.get("server")) and "server_baseline" not in values


def without_engine(options: Iterable[Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with all that an engine is made of as if nobody had said anything: what a file says of the models
    here is not meant for a server."""
    return {**values, **{one.name: one.default for one in options if one.name in OF_ENGINES}}
