"""What requests are read against: the model that is loaded, and what the server was started with."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath

from localspec.chat import ChatTemplate
from localspec.chat.reasoning import Mode
from localspec.types import EngineInfo, GenerationRequest
from localspec.vocab import Vocab


@dataclass(frozen=True)
class Setting:
    """``base``: a request with the options that the server was started with. ``alias``: what clients call the model;
    empty: its file's name. ``system``: the message of conversations that have none. ``places``: answers that may run or
    wait at once. ``since``: when the model was loaded, in seconds since 1970."""

    base: GenerationRequest
    info: EngineInfo
    vocab: Vocab
    alias: str = ""
    reasoning: Mode = "auto"
    places: int = 1
    system: str | None = None
    since: int = field(default_factory=lambda: int(time.time()))

    @cached_property
    def name(self) -> str:
        """What the model is called in answers."""
        return self.alias or PurePath(self.info.target).name

    @cached_property
    def template(self) -> ChatTemplate | None:
        return None if self.info.chat_template is None else ChatTemplate(self.info.chat_template, "the model")

    @cached_property
    def knows_tools(self) -> bool:
        """Whether the chat template tells a model of tools by itself."""
        return self.template is not None and "tools" in self.template.variables()
