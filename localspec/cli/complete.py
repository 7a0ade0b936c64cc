"""``localspec complete``: one prompt in, its continuation out."""

from __future__ import annotations

from dataclasses import replace

from localspec.cli.diagnostics import fail, note, say
from localspec.cli.output import Output
from localspec.cli.session import engine_for
from localspec.cli.source import read_prompt
from localspec.errors import ExitCode, UsageError
from localspec.options import Values, request
from localspec.report import answer_record, status_line
from localspec.types import Failed, Finished, GenerationRequest, Message, Notice, Started, TokenInfo, Tokens


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
    with engine_for(values) as engine:
        handle = engine.submit(_thinking(values, asked, engine.info.chat_template))
        writer = _Writer(output, values, engine.info.target)
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


def _thinking(values: Values, asked: GenerationRequest, template: str | None) -> GenerationRequest:
    """The request with what ``--reasoning`` means to this model's template."""
    if asked.messages is None or values["reasoning"] == "auto":
        return asked
    from localspec.chat import reasoning_of

    reasoning = reasoning_of(template, values["reasoning"], dict(asked.template_kwargs))
    if reasoning.notice is not None:
        note(reasoning.notice)
    return replace(asked, template_kwargs=tuple(reasoning.variables.items()))


class _Writer:
    """Events to stdout in the form asked for."""

    def __init__(self, output: Output, values: Values, model: str) -> None:
        self.code = ExitCode.OK
        self._output = output
        self._values = values
        self._model = model
        self._text: list[str] = []
        self._tokens: list[TokenInfo] = []
        self._seed = 0

    def take(self, event: object) -> None:
        """Writes one event."""
        values = self._values
        match event:
            case Started():
                self._seed = event.seed
                if values["seed"] == -1 and values["temp"] > 0:
                    note(f"seed {event.seed}")
            case Tokens():
                self._text.append(event.text)
                self._tokens.extend(event.tokens)
                if not values["json"] and not values["jsonl"]:
                    self._output.text(event.text)
            case Notice():
                note(event.text)
            case Finished():
                self._finish(event)
            case Failed():
                self._end_line()
                fail(event.message, event.hint)
                self.code = event.exit_code
        if values["jsonl"]:
            self._output.event(event)  # type: ignore[arg-type]

    def _finish(self, event: Finished) -> None:
        if self._values["json"]:
            record = answer_record(
                event,
                "".join(self._text),
                self._tokens,
                model=self._model,
                seed=self._seed,
                logprobs=self._values["logprobs"] is not None,
            )
            self._output.record(record)
        self._end_line()
        if self._values["show_timings"]:
            say(status_line(event, limit=self._values["n_predict"]))

    def _end_line(self) -> None:
        """A terminal's prompt belongs on a line of its own; a file gets the text and nothing else."""
        plain = not self._values["json"] and not self._values["jsonl"]
        if plain and self._output.terminal and not "".join(self._text[-1:]).endswith("\n"):
            self._output.text("\n")
