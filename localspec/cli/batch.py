"""``localspec batch``: the lines of a file, many at a time."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import BinaryIO

from localspec.cli.diagnostics import note
from localspec.cli.output import Output
from localspec.cli.session import Progress, engine_for, remote_engine
from localspec.errors import ExitCode, UsageError
from localspec.host import HostedEngine
from localspec.options import COMMANDS, Values
from localspec.options.remote import is_remote
from localspec.tools.batch.journal import Journal
from localspec.tools.batch.meter import Meter
from localspec.tools.batch.parse import Parser, Refused, Task
from localspec.tools.batch.run import Engine, Plan, Run
from localspec.tools.batch.source import count_lines, open_input, read_lines

Show = Callable[[str, float | None], None]
#: As the name of a file: standard input, standard output.
STANDARD = "-"


def batch(values: Values) -> int:
    """Runs the command; returns its exit code.

    Raises:
        UsageError: files that cannot be read or written, or that do not go together.
        LocalspecError: as `localspec.load`.
    """
    values = _checked(values)
    with _input(values["input"]) as source, _output(values) as journal:
        total = count_lines(source)
        earlier, failed = (0, 0) if journal is None else (len(journal.done), journal.failed)
        meter = Meter(total, earlier=earlier, failed=failed)
        if total is not None and earlier >= total:
            note(f"nothing is left to do: {meter.read().progress}")
            return _code(meter)
        return _run(values, source, journal, meter)


def _run(values: Values, source: BinaryIO, journal: Journal | None, meter: Meter) -> int:
    write = Output().record if journal is None else journal.write
    at_once = values["parallel"] * max(len({*values["server"]}), 1)
    plan = Plan(at_once, ordered=values["ordered"], fail_fast=values["fail_fast"])
    news = SimpleQueue[str]()
    with _engine(values, news) as engine, Progress().doing() as show:
        run = Run(engine, plan, write, meter, partial(_tick, meter, news, show))
        try:
            run.run(_items(_parser(values, engine.info.chat_template), source, journal))
        except KeyboardInterrupt:
            show("", None)
            goes_on = "" if journal is None else "; --resume goes on"
            note(f"stopped: {meter.read().progress}{goes_on}")
            return ExitCode.INTERRUPTED
    if run.stopped_by is not None:
        form, problem = run.stopped_by
        note(f"stopped at line {form.line}: {problem.message}")
    note(meter.read().summary)
    return ExitCode.PARTIAL if run.stopped_by is not None else _code(meter)


@contextmanager
def _engine(values: Values, news: SimpleQueue[str]) -> Iterator[Engine]:
    """An engine here, or the servers as one; ``news`` of them come while it runs."""
    if not is_remote(values):
        with engine_for(values, Progress()) as engine:
            assert isinstance(engine, HostedEngine)
            yield engine
        return
    from localspec.client.pool import Pool

    urls = dict.fromkeys(values["server"])
    servers = [(url, partial(remote_engine, url, values)) for url in urls]
    with Pool(servers, parallel=values["parallel"], say=news.put) as pool:
        for warning in pool.info.warnings:
            note(warning)
        yield pool


def _tick(meter: Meter, news: SimpleQueue[str], show: Show) -> None:
    """How it stands, below what is new of the servers."""
    with suppress(Empty):
        while line := news.get_nowait():
            show("", None)
            note(line)
    show(meter.read().progress, None)


def _code(meter: Meter) -> ExitCode:
    return ExitCode.PARTIAL if meter.read().failed else ExitCode.OK


def _checked(values: Values) -> Values:
    """``--exact`` computes one answer after the other.

    Raises:
        UsageError: options that cannot be had together.
    """
    place = values["output_file"]
    if values["resume"] and place in (None, STANDARD):
        raise UsageError("--resume is given without a file to go on with", hint="Name it with -o FILE.")
    with suppress(OSError, ValueError):
        if None not in (place, values["input"]) and os.path.samefile(values["input"], place):
            raise UsageError(f"{place} is the input, too", hint="Write to another file.")
    if is_remote(values) and values["spec_metrics"] == "detailed":
        raise UsageError(
            "--spec-metrics detailed is given, but a server keeps its steps to itself", hint="Use summary."
        )
    if 0 < values["max_concurrency"] < values["parallel"]:
        note(f"nothing is guessed while more than {values['max_concurrency']} lines run (--spec-max-concurrency)")
    if not values["exact"]:
        return values
    if "parallel" in values["typed"] and values["parallel"] > 1:
        raise UsageError("--exact and -np are given together", hint="One line at a time is exact to the bit: -np 1.")
    return {**values, "parallel": 1}


@contextmanager
def _input(name: str | None) -> Iterator[BinaryIO]:
    if name not in (None, STANDARD):
        with open_input(name) as source:
            yield source
    elif sys.stdin is None or (name is None and sys.stdin.isatty()):
        raise UsageError("there is nothing to answer", hint="Name a file, or pipe lines in.")
    else:
        yield sys.stdin.buffer


@contextmanager
def _output(values: Values) -> Iterator[Journal | None]:
    """``None``: standard output."""
    name = values["output_file"]
    if name in (None, STANDARD):
        yield None
    else:
        with Journal(name, resume=values["resume"]) as journal:
            yield journal


def _parser(values: Values, template: str | None) -> Parser:
    seed = values["seed"]
    if seed == -1:
        seed = secrets.randbits(32)
        if values["temp"] > 0:
            note(f"seed {seed}")
    options = COMMANDS["batch"].options
    return Parser(options, values, seed=seed, template=template, trace=values["spec_metrics"] == "detailed")


def _items(parser: Parser, source: BinaryIO, journal: Journal | None) -> Iterator[Task | Refused]:
    """What is to be answered: lines that are done are left out."""
    for item in parser.read(read_lines(source)):
        if journal is None or not journal.check(item.form):
            yield item
