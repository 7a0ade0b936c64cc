"""``localspec verify``: whether speculation keeps its promise with these models on this machine."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localspec.backends.llamacpp import Native
from localspec.cli.diagnostics import say
from localspec.cli.output import Output
from localspec.cli.session import Progress, engine_here, model_files
from localspec.control import core_count
from localspec.errors import ExitCode, SpeculationFault, UsageError
from localspec.options import COMMANDS, Values, engine_options, spec_params
from localspec.options.tables.tools import VERIFY_TOKENS
from localspec.report import finite
from localspec.spec_types import spec_types
from localspec.text.printable import printable
from localspec.tools.prompts import built_in, read_prompts
from localspec.tools.verify.cases import GIVEN, MOST_NODES, SAMPLERS, SHAPES, cases
from localspec.tools.verify.certificate import certificate
from localspec.tools.verify.run import Checked, Plan, record
from localspec.tools.verify.run import verify as check
from localspec.tools.verify.table import terminal

#: Columns of a table that no terminal shows.
_WIDTH = 120


def verify(values: Values) -> int:
    """Runs the command; returns its exit code.

    Raises:
        SpeculationFault: speculation changes a text by more than rounding does. The certificate is out by then.
        UsageError: names that are none, or prompts that cannot be read.
        LocalspecError: as `localspec.load`; an answer that failed.
    """
    samplers = _names("--sampler-sets", values["sampler_sets"], tuple(SAMPLERS))
    shapes = _names("--shapes", values["shapes"], (GIVEN, *SHAPES))
    prompts = built_in("localspec.tools.verify") if values["prompts"] is None else read_prompts(Path(values["prompts"]))
    given = spec_params(values)
    if given.off:
        raise UsageError(
            "guesses are off, so there is nothing to verify", hint="Leave --spec off, or the limit that is 0, out."
        )
    _check_place(values["output_file"])
    target, draft = model_files(values)
    if not spec_types(engine_options(values, target, draft)):
        raise UsageError("there is nothing that guesses", hint="Name drafters with --spec-type.")
    # The same count throughout, so that passes can be repeated.
    values = {**values, "threads": values["threads"] if values["threads"] > 0 else core_count()}
    changes = {
        "tree_nodes": max(MOST_NODES, given.nodes),
        "sequences": 1 if values["exact"] else 2,  # the control has another text in the cache
        "measure": GIVEN in shapes and given.mode == "auto",
    }
    with engine_here(values, target, draft, **changes) as engine:
        usable = [name for name in shapes if name != "tree" or engine.target.caps.trees]
        tokens = values["n_predict"] if values["n_predict"] > 1 else VERIFY_TOKENS
        plan = Plan(cases(engine.info.drafters, samplers, usable, given), prompts, tokens, seeds=values["seeds"])
        with Progress().doing() as show:
            checked = check(engine, plan, lambda share: show("verifying", share))
        about = certificate(engine.info, Native().build, _options(values))
    _tell(values, checked, {**about, **record(checked)})
    if checked.verdict == "fault":
        raise SpeculationFault(
            "speculation changes texts by more than rounding does",
            hint="Use --spec off until this is mended, and report it with the certificate (-o FILE).",
        )
    return ExitCode.OK


def _names(flag: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The names of a comma list; ``all`` stands for all."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if names == ("all",):
        return tuple(known)
    wrong = next((name for name in names if name not in known), None)
    if wrong is not None:
        raise UsageError(f"{flag} {wrong} is not known", hint=f"There are all, {', '.join(known)}.")
    return names


def _options(values: Values) -> dict[str, Any]:
    """What was asked for, without what is nobody's business."""
    asked = {one.name: values[one.name] for one in COMMANDS["verify"].options if not one.secret}
    return {name: value for name, value in asked.items() if value not in (None, (), "")}


def _tell(values: Values, checked: Checked, found: dict[str, Any]) -> None:
    width = shutil.get_terminal_size((_WIDTH, 24)).columns if sys.stderr is not None and sys.stderr.isatty() else _WIDTH
    say(printable(terminal(checked, width), keep="\n"))
    if values["json"]:
        Output().record(found)
    if values["output_file"] is not None:
        path = Path(values["output_file"])
        with _writing(path):
            path.write_text(json.dumps(finite(found), ensure_ascii=False, indent=1) + "\n", "utf-8")


def _check_place(output: str | None) -> None:
    """A certificate that has no place to go is found out before minutes are spent on it."""
    if output is not None:
        path = Path(output)
        new = not path.exists()
        with _writing(path):
            path.open("a").close()
            if new:
                path.unlink()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be written: {reason}", hint="Check the path given to -o.") from None
