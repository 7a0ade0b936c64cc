"""The commands, made from the table of options."""

from __future__ import annotations

import inspect
import re
import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from localspec.cli.diagnostics import Ending
from localspec.cli.output import accept_any_text
from localspec.errors import ExitCode, UsageError
from localspec.options import GENERATION_OPTIONS, TEXT, Option, Values, check_values

PROMPT_OPTIONS = (
    Option("prompt", ("-p", "--prompt"), str, None, "The prompt; - reads standard input.", TEXT, "TEXT"),
    Option(
        "file",
        ("-f", "--file"),
        str,
        None,
        "A file that follows the prompt; - reads standard input.",
        TEXT,
        "FILE",
    ),
)
COMPLETE_OPTIONS = (
    *PROMPT_OPTIONS,
    Option(
        "conversation",
        ("-cnv", "--conversation"),
        bool,
        False,
        "Put the prompt through the chat template.",
        TEXT,
    ),
    Option("json", ("--json",), bool, False, "One JSON object instead of text.", TEXT),
    Option("jsonl", ("--jsonl",), bool, False, "Every event as a line of JSON.", TEXT),
    Option(
        "logprobs",
        ("--logprobs",),
        int,
        None,
        "With --json/--jsonl: log-probabilities of the k likeliest.",
        TEXT,
        "K",
        least=0,
        most=100,
    ),
    Option("stats", ("--show-timings",), bool, False, "Speed and acceptance on stderr at the end.", TEXT),
    Option("debug", ("--debug",), bool, False, "Tracebacks instead of one line.", TEXT),
)
CHAT_OPTIONS = (
    *PROMPT_OPTIONS,
    Option("single_turn", ("-st", "--single-turn"), bool, False, "Answer once and leave.", TEXT),
    Option("debug", ("--debug",), bool, False, "Tracebacks instead of one line.", TEXT),
)

app = typer.Typer(
    name="localspec",
    help="Chat and completions from GGUF models, with guesses ahead that never change the text.",
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version and exit.")] = False,
) -> None:
    if version:  # ``localspec --version`` alone never gets here, see `localspec.cli.main`
        from localspec import __version__

        print(f"localspec {__version__}")
        raise typer.Exit


def command(
    name: str, options: tuple[Option, ...], *, epilog: str
) -> Callable[[Callable[[Values], int]], Callable[[Values], int]]:
    """Registers ``body(values) -> exit code`` as a command that takes ``options``."""

    def register(body: Callable[[Values], int]) -> Callable[[Values], int]:
        def run_command(**values: Any) -> None:
            values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
            check_values(options, values)
            raise Ending(body(values))

        parameters = [_parameter(option) for option in options]
        run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run_command.__annotations__ = {p.name: p.annotation for p in parameters}
        run_command.__doc__ = inspect.getdoc(body)
        app.command(name, epilog=epilog)(run_command)
        return body

    return register


def _parameter(option: Option) -> inspect.Parameter:
    kind: Any = list[str] if option.many else option.kind
    if option.default is None:
        kind = kind | None
    annotation = Annotated[
        kind,
        typer.Option(
            *option.flags,
            help=option.help,
            metavar=option.metavar or None,
            rich_help_panel=option.group,
            show_default=option.default not in (None, False, (), ""),
        ),
    ]
    default = list(option.default) if option.many else option.default
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


@command(
    "complete",
    (*GENERATION_OPTIONS, *COMPLETE_OPTIONS),
    epilog="Example: localspec complete -p 'Once upon a time' -n 64 --json",
)
def complete(values: Values) -> int:
    """Continue a prompt; text goes to stdout, everything else to stderr.

    The prompt is -p, then -f; standard input is read for "-", or when neither is given.
    """
    from localspec.cli.complete import complete

    return complete(values)


@command(
    "chat",
    (*GENERATION_OPTIONS, *CHAT_OPTIONS),
    epilog="Example: localspec chat -m big.gguf -md small.gguf --temp 0",
)
def chat(values: Values) -> int:
    """Chat at the prompt; ctrl-c stops an answer, ctrl-d leaves.

    Without a terminal, standard input is one message.
    """
    from localspec.cli.chat import chat

    return chat(values)


def run(arguments: Sequence[str]) -> int:
    """Runs the command line; returns the exit code where nothing had to be run for it (help).

    Raises:
        Ending: the command is over.
        LocalspecError: the arguments cannot be read, or what the command raised.
    """
    signal.signal(signal.SIGTERM, _terminated)
    accept_any_text()
    try:
        code = app(canonical(arguments), prog_name="localspec", standalone_mode=False)
    except typer.TyperException as error:
        where = getattr(getattr(error, "ctx", None), "command_path", "localspec")
        raise UsageError(error.format_message().rstrip("."), hint=f"See {where} --help.") from None
    return code or ExitCode.OK


def canonical(arguments: Sequence[str]) -> list[str]:
    """The same arguments, aliases spelt as the help shows them: other spellings work without crowding it."""
    spelt = {alias: option.flags[-1] for option in GENERATION_OPTIONS for alias in option.aliases}
    flags = [argument.partition("=") for argument in arguments]
    spelling = [spelt.get(flag, flag) + equals + value for flag, equals, value in flags]
    _refuse_clusters(spelling)
    return spelling


def _refuse_clusters(arguments: Sequence[str]) -> None:
    """Names an unknown flag like ``-hf``, which would pass as ``-h`` with an ``f`` behind.

    Raises:
        UsageError: there is one.
    """
    options = (*GENERATION_OPTIONS, *COMPLETE_OPTIONS, *CHAT_OPTIONS)
    takes_value = {flag for option in options if option.kind is not bool for flag in option.flags}
    known = {flag for option in options for flag in option.flags}
    for before, argument in zip(("", *arguments), arguments, strict=False):
        flag = argument.partition("=")[0]
        if re.fullmatch(r"-[A-Za-z][\w-]+", flag) and flag not in known and before not in takes_value:
            raise UsageError(f"no such option: {flag}", hint="See localspec --help, or docs/flags.md.")


def _terminated(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise Ending(ExitCode.TERMINATED)
