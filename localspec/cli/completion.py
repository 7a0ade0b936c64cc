"""Completion in the shell. Typer writes the scripts for bash, zsh and fish and answers what they ask; it is given the
commands of our table as its own, and runs none of them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from localspec.cli.app import COMPLETION_VARIABLE
from localspec.errors import ExitCode, UsageError
from localspec.options.commands import COMMANDS, GROUPS, TOPICS, Command
from localspec.options.option import Option

SHELLS = ("bash", "zsh", "fish")
#: Commands whose model is one that has a name, and whether that may be the demo model.
NAMED = {"models info": True, "models pair": True, "models path": True, "models verify": True, "models rm": False}


def complete_words(arguments: Sequence[str]) -> int:
    """Answers a shell, or prints or installs its script; returns the exit code.

    Raises:
        UsageError: a shell that is not known.
        OSError: the script cannot be written.
    """
    if COMPLETION_VARIABLE in os.environ:
        _app()(list(arguments), prog_name="localspec", complete_var=COMPLETION_VARIABLE)
        return ExitCode.OK
    from localspec.cli.diagnostics import say
    from localspec.cli.output import Output

    flag, _, shell = arguments[0].partition("=")
    shell = _shell(flag, shell or "".join(arguments[1:2]))
    scripts = import_module("typer.completion")
    if flag == "--show-completion":
        Output().text(
            scripts.get_completion_script(prog_name="localspec", complete_var=COMPLETION_VARIABLE, shell=shell) + "\n"
        )
    else:
        _, path = scripts.install(shell=shell, prog_name="localspec", complete_var=COMPLETION_VARIABLE)
        say(f"{shell} completion is in {path}; a new shell has it")
    return ExitCode.OK


def _shell(flag: str, given: str) -> str:
    if not given:
        shellingham = import_module("shellingham")
        try:
            given = shellingham.detect_shell()[0]
        except (shellingham.ShellDetectionFailure, OSError):
            raise UsageError("this shell is not known", hint=f"Write {flag} bash, or zsh or fish.") from None
    if given not in SHELLS:
        raise UsageError(f"{flag} {given} is not possible", hint=f"Use one of {', '.join(SHELLS)}.")
    return given


def _app() -> typer.Typer:
    app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})
    groups = {name: typer.Typer(help=text) for name, text in GROUPS.items()}
    for command in COMMANDS.values():
        group, _, name = command.name.rpartition(" ")
        (groups[group] if group else app).command(name, help=_plain(command.summary))(_function(command))
    for name, group_app in groups.items():
        app.add_typer(group_app, name=name)
    topic = typer.Argument(autocompletion=_among((*TOPICS, *(name for name in COMMANDS if " " not in name), *GROUPS)))
    app.command("help", help="Explain a command or a topic.")(_with_signature([_parameter("topic", str, topic)]))
    app.callback()(_with_signature([_parameter("version", bool, typer.Option("--version", "-V"))]))
    return app


def _function(command: Command) -> Callable[..., None]:
    return _with_signature([_option(option, command) for option in command.options])


def _with_signature(parameters: list[inspect.Parameter]) -> Callable[..., None]:
    def nothing(**_: Any) -> None: ...

    nothing.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    nothing.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return nothing


def _option(option: Option, command: Command) -> inspect.Parameter:
    """Where a file is wanted nothing is offered: the shell then completes names of files by itself."""
    if not option.flags:
        models = _models(demo=NAMED[command.name]) if command.name in NAMED else None
        return _parameter(option.name, str, typer.Argument(autocompletion=models))
    if option.kind is bool:
        flags = list(option.flags)
        for at, off in enumerate(option.negations):
            on = option.flags[min(at, len(option.flags) - 1)]
            flags = [f"{on}/{off}", *(flag for flag in flags if flag != on)]
        return _parameter(option.name, bool, typer.Option(*flags, help=_plain(option.help)))
    words = _among(option.choices) if option.choices else _drafters if option.name == "spec_type" else None
    kind: Any = list[str] if option.many else str
    return _parameter(option.name, kind, typer.Option(*option.flags, help=_plain(option.help), autocompletion=words))


def _parameter(name: str, kind: Any, how: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, how])


def _among(words: Sequence[str]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def _drafters(incomplete: str) -> list[str]:
    """The last one of a comma list."""
    from localspec.spec_types import SPEC_TYPES

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in SPEC_TYPES if name.startswith(last)]


def _models(*, demo: bool) -> Callable[[str], list[str]]:
    """Names of models that are here; where none fits, the shell goes on with names of files."""

    def complete(incomplete: str) -> list[str]:
        from localspec.hub.shelf import named
        from localspec.models.demo import DEMOS

        return [name for name, _ in named() if name.startswith(incomplete) and (demo or name not in DEMOS)]

    return complete


def _plain(text: str) -> str:
    """Brackets are markup to Typer."""
    return text.replace("[", "\\[")
