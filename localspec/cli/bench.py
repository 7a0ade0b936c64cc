"""``localspec bench``: what guessing brings on this machine, or what a server does."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from localspec import __version__
from localspec.cli.diagnostics import note
from localspec.cli.output import Output
from localspec.cli.session import Progress, engine_here, model_files
from localspec.control.measure import ROWS
from localspec.control.measure import measure as measure_passes
from localspec.engine import Engine
from localspec.errors import ExitCode
from localspec.loading import spec_types
from localspec.options import Values, engine_options, sampling_params
from localspec.options.tables.tools import BENCH_TOKENS
from localspec.tools.bench import table
from localspec.tools.bench.grid import settings, to_load
from localspec.tools.bench.summary import Report, record, result
from localspec.tools.cells import plain_host_s
from localspec.tools.local import LocalRunner
from localspec.tools.machine import peak_memory, processor
from localspec.tools.oracle import perfect
from localspec.tools.pairs import Measured, Order, Runner, measure
from localspec.tools.prompts import Prompt, built_in, read_prompts
from localspec.types import SamplingParams

#: Columns of a table that no terminal shows.
_WIDTH = 120


def bench(values: Values) -> int:
    """Runs the command; returns its exit code.

    Raises:
        UsageError: settings or prompts that make no sense.
        LocalspecError: as `localspec.load`; an answer that failed.
    """
    form = _form(values)
    prompts = built_in("localspec.tools.bench") if values["prompts"] is None else read_prompts(Path(values["prompts"]))
    sampling = sampling_params(values)
    if sampling.seed is None:  # plain and speculative answers have to be the same
        sampling = replace(sampling, seed=1)
    report = _of_server(values, prompts, sampling) if values["server"] else _of_model(values, prompts, sampling)
    output = Output()
    if form == "json":
        output.record(record(report))
    elif form == "table":
        width = shutil.get_terminal_size((_WIDTH, 24)).columns if output.terminal else _WIDTH
        output.text(table.terminal(report, width))
    else:
        output.text(table.markdown(report) if form == "md" else table.comma_separated(report))
    return ExitCode.OK


def _form(values: Values) -> str:
    """How the result is told."""
    shown = "table" if sys.stdout is not None and sys.stdout.isatty() else "md"
    return "json" if values["json"] else values["output"] or shown


# A model here


def _of_model(values: Values, prompts: tuple[Prompt, ...], sampling: SamplingParams) -> Report:
    target, draft = model_files(values)
    default = spec_types(replace(engine_options(values, target, draft), spec_types=None))
    asked = settings(values["setting"], values, default)
    types, nodes = to_load(asked, default)
    loaded = {**values, "spec_type": ",".join(types), "tree_nodes": nodes}
    with engine_here(loaded, target, draft) as engine:
        # Before the first answer: its conversation would hold the sequence that this needs.
        curve = measure_passes(engine.target, nodes + 1)
        order = _order(values, tuple(one.name for one in asked), prompts)
        measured = _measured(LocalRunner(engine, asked, sampling), order)
        host_s = plain_host_s(pair for pairs in measured.pairs.values() for pair in pairs)
        results = tuple(
            result(
                measured,
                one.name,
                perfect(one.spec, curve.seconds, host_s),
                same_text=one.spec.accept == "draw",
            )
            for one in asked
        )
        cost = {rows: curve.seconds(rows) for rows in ROWS if rows <= nodes + 1}
        about = {**_about(values, sampling), "target": engine.info.target, "draft": engine.info.draft}
        return Report(results, measured, _title(engine, measured, sampling), about, cost, peak_memory())


def _order(values: Values, ways: tuple[str, ...], prompts: tuple[Prompt, ...]) -> Order:
    return Order(
        ways,
        prompts,
        rounds=values["repetitions"],
        tokens=values["n_predict"] if values["n_predict"] > 1 else BENCH_TOKENS,
        baseline=values["baseline"],
        budget_s=values["budget"],
    )


def _measured(runner: Runner, order: Order) -> Measured:
    with Progress().doing() as show:
        return measure(runner, order, progress=lambda share: show("measuring", share))


def _title(engine: Engine, measured: Measured, sampling: SamplingParams) -> str:
    draft = engine.info.draft
    names = f"`{Path(engine.info.target).name}`" + (f", draft `{Path(draft).name}`" if draft else "")
    return f"{names}: {_extent(measured, sampling)}; {processor()}, {date.today().isoformat()}"


def _extent(measured: Measured, sampling: SamplingParams) -> str:
    order = measured.order
    chance = f", temperature {sampling.temperature:g}" if sampling.temperature > 0 else ""
    prompts = f"{len(order.prompts)} prompt{'s' * (len(order.prompts) != 1)}"
    return f"{measured.rounds} rounds of {prompts}, {order.tokens} tokens each{chance}"


def _about(values: Values, sampling: SamplingParams) -> dict[str, Any]:
    return {
        "kind": "localspec bench",
        "localspec": __version__,
        "date": date.today().isoformat(),
        "machine": processor(),
        "temperature": sampling.temperature,
        "seed": sampling.seed,
        "n_ctx": values["ctx_size"],
        "threads": values["threads"],
    }


# A server


def _of_server(values: Values, prompts: tuple[Prompt, ...], sampling: SamplingParams) -> Report:
    from localspec.tools.bench.server import ServerRunner

    url, other = values["server"], values["server_baseline"]
    servers: dict[str | None, str] = {url: url, **({None: other} if other else {})}
    runner = ServerRunner(servers, sampling, model=values["server_model"], api_key=values["api_key"])
    try:
        order = _order(values, (url,), prompts)
        measured = _measured(runner, replace(order, baseline=other is not None and order.baseline))
    finally:
        runner.close()
    if "chunks" in runner.counted_by:
        note("the server counts no tokens: each chunk of text is taken for one")
    about = {**_about(values, sampling), "server": url, "server_baseline": other, "models": _named(runner.models)}
    title = f"{url} ({runner.models[url]}): {_extent(measured, sampling)}; {date.today().isoformat()}"
    return Report((result(measured, url),), measured, title, {**about, "counted_by": sorted(runner.counted_by)})


def _named(models: dict[str | None, str]) -> dict[str, str]:
    return {way or "baseline": model for way, model in models.items()}
