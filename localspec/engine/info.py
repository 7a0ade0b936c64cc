"""What there is to say of an engine that nobody has described."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.backends.base import Target
from localspec.chat import ChatTemplate
from localspec.drafters.base import Drafter, spec_type
from localspec.types import EngineInfo


def bare_info(target: Target, drafters: Sequence[Drafter], template: ChatTemplate | None) -> EngineInfo:
    caps = target.caps
    return EngineInfo(
        target=type(target).__name__,
        draft=None,
        drafters=tuple(dict.fromkeys(spec_type(drafter.name) for drafter in drafters)),
        backend="",
        n_ctx=caps.n_ctx,
        n_ctx_train=caps.n_ctx_train,
        n_vocab=caps.n_vocab,
        has_template=template is not None,
        chat_template=None if template is None else template.source,
    )
