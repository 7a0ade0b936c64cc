"""``localspec complete``: one prompt in, its continuation out."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from localspec.cli.diagnostics import fail, has_colour, note, say
from localspec.cli.output import Output
from localspec.cli.pieces import Pieces
from localspec.cli.session import Progress, engine_for
from localspec.cli.source import read_prompt
from localspec.errors import ExitCode, UsageError
from localspec.options import Values, request
from localspec.report import answer_record, status_line
from localspec.text.thinking import Kind, Piece, ThinkingSplitter
from localspec.types import (
    EngineInfo,
    Event,
    Failed,
    Finished,
    GenerationRequest,
    Message,
    Notice,
    Started,
    TokenInfo,
    Tokens,
)


def complete(values: Values) -> int:
    """Runs the command; returns its exit code.

    Raises:
        LocalspecError: what `errors_end_the_command` reports.
    """
    if values["logprobs"] is not None and not (values["json"] or values["jsonl"]):
        raise UsageError("--logprobs is given, but text has no place for them", hint="Add --json or --jsonl.")
    prompt = read_prompt(values)
    if prompt is None:
        raise UsageError("no prompt is given", hint="Use -p TEXT, -f FILE, or pipe text in.")
    asked = _request(values, prompt)
    output = Output()
    with engine_for(values, Progress()) as engine:
        asked, thinking = _told(values, asked, engine.info)
        handle = engine.submit(asked)
        writer = _Writer(output, values, engine.info, thinking)
        try:
            for event in handle:
                writer.take(event)
        except KeyboardInterrupt:
            handle.cancel()
            for event in handle:
                writer.take(event)
            return ExitCode.INTERRUPTED
        return writer.code


def _request(values: Values, prompt: str) -> GenerationRequest:
    logprobs = values["logprobs"]
    if not values["conversation"] and values["system"] is None:
        return request(values, prompt=prompt, logprobs=logprobs)
    system = (Message("system", values["system"]),) if values["system"] is not None else ()
    return request(values, messages=(*system, Message("user", prompt)), logprobs=logprobs)


def _told(values: Values, asked: GenerationRequest, info: EngineInfo) -> tuple[GenerationRequest, _Thinking]:
    """The request with what ``--reasoning`` means to this model's template, and what to make of its answer. What the
    template does with the messages is noted, where that is done here."""
    if asked.messages is None:
        return asked, _Thinking(None, hides=False)
    from localspec.chat import notices, reasoning_of

    given = dict(asked.template_kwargs)
    bound = asked.sampling.grammar is not None
    reasoning = reasoning_of(info.chat_template, values["reasoning"], given, bound=bound)
    source = info.chat_template if info.server is None else None
    for line in (*notices(source, asked.messages, given), *([reasoning.notice] if reasoning.notice else ())):
        note(line)
    asked = replace(asked, template_kwargs=tuple(reasoning.variables.items()))
    return asked, _Thinking(reasoning.splitter(), hides=values["reasoning"] == "off")


class _Thinking:
    """Tells thinking and answer apart, and leaves out what is hidden. A prompt without messages has no thinking."""

    def __init__(self, splitter: ThinkingSplitter | None, *, hides: bool) -> None:
        self._splitter = splitter
        self._hides = hides

    def pieces(self, text: str) -> list[Piece]:
        return self._shown(self._splitter.push(text)) if self._splitter is not None else [Piece("answer", text)]

    def rest(self) -> list[Piece]:
        return self._shown(self._splitter.finish()) if self._splitter is not None else []

    def _shown(self, pieces: list[Piece]) -> list[Piece]:
        return [piece for piece in pieces if piece.kind == "answer" or not self._hides]


class _Writer:
    """Events to stdout in the form asked for; thinking beside it."""

    def __init__(self, output: Output, values: Values, info: EngineInfo, thinking: _Thinking) -> None:
        self.code = ExitCode.OK
        self._output = output
        self._values = values
        self._info = info
        self._thinking = thinking
        self._screen = Pieces(output, colour=has_colour(sys.stdout))
        self._plain = not values["json"] and not values["jsonl"]
        self._texts: dict[Kind, list[str]] = {"answer": [], "thinking": []}
        self._tokens: list[TokenInfo] = []
        self._seed = 0

    def take(self, event: Event) -> None:
        """Writes one event."""
        match event:
            case Started():
                self._seed = event.seed
                if self._values["seed"] == -1 and self._values["temp"] > 0:
                    note(f"seed {event.seed}")
            case Tokens():
                self._tokens.extend(event.tokens)
                event = replace(event, text=self._text(self._thinking.pieces(event.text)))
            case Notice():
                note(event.text)
            case Finished() | Failed():
                if rest := self._text(self._thinking.rest()):
                    self._event(Tokens(event.request, rest, (), None))
                self._end(event)
        self._event(event)

    def _text(self, pieces: list[Piece]) -> str:
        """Shows the pieces; returns what of them is answer."""
        for piece in pieces:
            self._texts[piece.kind].append(piece.text)
            if self._plain:
                self._screen.show(piece)
            elif self._values["jsonl"] and piece.kind == "thinking":
                self._output.record({"event": "thinking", "text": piece.text})
        return "".join(piece.text for piece in pieces if piece.kind == "answer")

    def _event(self, event: Event) -> None:
        if self._values["jsonl"]:
            self._output.event(event)

    def _end(self, event: Finished | Failed) -> None:
        if self._plain:
            # A terminal's prompt belongs on a line of its own; a file gets the text and nothing else.
            self._screen.end(line=self._output.terminal)
        if isinstance(event, Failed):
            fail(event.message, event.hint)
            self.code = event.exit_code
            return
        if self._values["json"]:
            self._output.record(self._record(event))
        if self._values["show_timings"]:
            say(status_line(event, limit=self._values["n_predict"]))

    def _record(self, event: Finished) -> dict[str, Any]:
        record = answer_record(
            event,
            "".join(self._texts["answer"]),
            self._tokens,
            info=self._info,
            seed=self._seed,
            logprobs=self._values["logprobs"] is not None,
        )
        thinking = "".join(self._texts["thinking"])
        return {**record, "thinking": thinking} if thinking else record
