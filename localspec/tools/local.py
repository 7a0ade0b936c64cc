"""Answers of an engine in this process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace

from localspec.engine import Engine
from localspec.errors import EngineError
from localspec.tools.pairs import Run
from localspec.tools.prompts import Prompt
from localspec.types import Event, Failed, Finished, GenerationRequest, SamplingParams, SpecParams, Tokens

PLAIN = SpecParams(depth=0)


@dataclass(frozen=True, slots=True)
class Setting:
    """How much is guessed, under a name for tables."""

    name: str
    spec: SpecParams


class LocalRunner:
    """Answers with one engine; no answer ends before its limit, so that all of a prompt have the same length.

    Every setting has a controller of its own: what it learns, loses and may try is as if it were alone.

    Args:
        afresh: read every prompt from its start, as a server without a prompt cache does.
    """

    def __init__(
        self, engine: Engine, settings: tuple[Setting, ...], sampling: SamplingParams, *, afresh: bool = False
    ) -> None:
        self._engine = engine
        self._afresh = afresh
        self._specs: Mapping[str | None, SpecParams] = {None: PLAIN, **{one.name: one.spec for one in settings}}
        self._controllers = {way: deepcopy(engine.controller) for way in self._specs}
        self._sampling = replace(sampling, ignore_eos=True)

    def run(self, way: str | None, prompt: Prompt, tokens: int) -> Run:
        """As `Runner.run`.

        Raises:
            UsageError: the prompt is longer than the context.
            EngineError: the answer failed.
        """
        if self._afresh:
            self._engine.forget()
        templated = self._engine.info.has_template
        request = GenerationRequest(
            prompt=None if templated else prompt.text,
            messages=prompt.messages if templated else None,
            max_tokens=tokens,
            sampling=self._sampling,
            spec=self._specs[way],
        )
        self._engine.controller = self._controllers[way]
        began = time.perf_counter()
        events: list[Event] = list(self._engine.submit(request))
        seconds, last = time.perf_counter() - began, events[-1]
        if isinstance(last, Failed):
            raise EngineError(f"prompt {prompt.id} was not answered: {last.message}", hint=last.hint)
        assert isinstance(last, Finished)
        text = "".join(event.text for event in events if isinstance(event, Tokens))
        return Run(len(last.ids), last.timings.tokens_per_second, text, seconds, last.ids, last.stats)
