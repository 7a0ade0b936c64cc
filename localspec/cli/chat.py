"""``localspec chat`` at the prompt: turns over one engine, the prefix reused from turn to turn."""

from __future__ import annotations

import sys
from pathlib import Path

from localspec.cli.diagnostics import fail, note, one_line, say
from localspec.cli.output import Output
from localspec.cli.session import Progress, engine_for
from localspec.cli.source import read_prompt
from localspec.errors import EngineDied, ExitCode, LocalspecError, ModelError, UsageError
from localspec.host import HostedEngine
from localspec.options import Values, request
from localspec.report import status_line
from localspec.types import EngineInfo, Failed, Finished, Message, Notice, Prefill, Tokens

LEAVE = ("/exit", "/quit", "/bye")


def chat(values: Values) -> int:
    """Runs the command; returns its exit code.

    Raises:
        LocalspecError: what `errors_end_the_command` reports.
    """
    interactive = sys.stdin is not None and sys.stdin.isatty()
    first = read_prompt(values)
    if not interactive and not (first or "").strip():
        raise UsageError("there is no terminal to chat at and no message", hint="Use -p TEXT, or pipe a message in.")
    output = Output()
    with engine_for(values) as engine:
        if not engine.info.has_template:
            raise ModelError(
                f"{engine.info.target} has no chat template: it is a base model, not a chat model",
                hint="Use localspec complete, or a model that was tuned for chat.",
            )
        conversation = Conversation(engine, values, output)
        if not interactive or values["single_turn"]:
            message = first if first is not None else _ask()
            return ExitCode.OK if message is None else conversation.turn(message)
        say(_greeting(engine.info))
        return _converse(conversation, first)


def _converse(conversation: Conversation, first: str | None) -> int:
    """Turn after turn until the user leaves."""
    message = first
    while True:
        if message is None:
            message = _ask()
        if message is None or message.strip() in LEAVE:
            return ExitCode.OK
        if message.strip():
            try:
                conversation.turn(message)
            except EngineDied as error:
                fail(error.message, error.hint)
                conversation.engine.restart()
                note("a new engine is running; the conversation so far is kept")
            except LocalspecError as error:
                fail(error.message, error.hint)
        message = None


def _ask() -> str | None:
    """The next message; ``None`` at the end of input (ctrl-d)."""
    import readline  # noqa: F401  (line editing and history for input())

    prompt = "> "
    if not sys.stdout.isatty():  # what goes to a file is the model's text alone
        say(prompt, end="")
        prompt = ""
    warned = False
    while True:
        try:
            line = input(prompt)
            line.encode()  # some locales let any byte through
            return line
        except KeyboardInterrupt:
            # It may have been meant for an answer that was over a moment before.
            if warned:
                raise
            warned = True
            say("\nctrl-c again, or ctrl-d, leaves")
        except UnicodeError:
            fail("that line is not UTF-8 text", "Write it again.")
        except EOFError:
            say("")
            return None


def _greeting(info: EngineInfo) -> str:
    guesser = Path(info.draft).name if info.draft else ", ".join(info.drafters) or "nothing"
    return one_line(
        f"{Path(info.target).name} · guesses from {guesser} · context {info.n_ctx} · ctrl-c stops, ctrl-d leaves"
    )


class Conversation:
    """The turns so far."""

    def __init__(self, engine: HostedEngine, values: Values, output: Output) -> None:
        self.engine = engine
        self._values = values
        self._output = output
        self._progress = Progress() if sys.stderr is not None and sys.stderr.isatty() else None
        system = values["system"]
        self._messages: list[Message] = [Message("system", system)] if system is not None else []

    def turn(self, text: str) -> int:
        """One question and its answer. ctrl-c stops the answer; the part that was shown stays in the conversation.

        Raises:
            LocalspecError: the question cannot be asked, or the engine has died; it does not stay in the conversation.
        """
        question = Message("user", text)
        handle = self.engine.submit(request(self._values, messages=(*self._messages, question)))
        answer: list[str] = []
        ending: object = None
        while not isinstance(ending, Finished | Failed):
            try:
                for ending in handle:
                    self._show(ending, answer)
            except KeyboardInterrupt:
                handle.cancel()
        self._output.text("\n")
        if answer:
            self._messages += [question, Message("assistant", "".join(answer))]
        return self._conclude(ending)

    def _show(self, event: object, answer: list[str]) -> None:
        if isinstance(event, Tokens):
            answer.append(event.text)
            self._output.text(event.text)
        elif isinstance(event, Prefill) and self._progress is not None:
            self._progress.show("reading the prompt", event.done / max(event.total - 1, 1))
        elif isinstance(event, Notice):
            note(event.text)

    def _conclude(self, ending: Finished | Failed) -> int:
        if isinstance(ending, Failed):
            if ending.kind == EngineDied.__name__:
                raise EngineDied(ending.message, hint=ending.hint)
            fail(ending.message, ending.hint)
            return ending.exit_code
        say(status_line(ending))
        return ExitCode.INTERRUPTED if ending.reason == "cancelled" else ExitCode.OK
