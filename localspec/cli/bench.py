"""``localspec bench``: what guessing brings on this machine, or what a server does."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec import __version__
from localspec.cli.diagnostics import note
from localspec.cli.output import Output
from localspec.cli.session import Progress, engine_here, model_files
from localspec.control import CostCurve
from localspec.control.measure import ROWS
from localspec.control.measure import measure as measure_passes
from localspec.engine import Engine
from localspec.errors import ExitCode
from localspec.options import Values, engine_options, sampling_params
from localspec.options.rules import servers_alone
from localspec.options.tables.tools import BENCH_TOKENS
from localspec.spec_types import spec_types
from localspec.tools.bench import table
from localspec.tools.bench.grid import settings, to_load, unique
from localspec.tools.bench.summary import Report, Result, record, result
from localspec.tools.cells import plain_host_s
from localspec.tools.local import LocalRunner, Setting
from localspec.tools.machine import peak_memory, processor
from localspec.tools.oracle import perfect
from localspec.tools.pairs import PLAIN, Measured, Order, Runner, measure
from localspec.tools.prompts import Prompt, built_in, read_prompts
from localspec.types import SamplingParams

if TYPE_CHECKING:
    from localspec.tools.bench.server import ServerRunner

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
    report = _report(values, prompts, sampling)
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


def _report(values: Values, prompts: tuple[Prompt, ...], sampling: SamplingParams) -> Report:
    if not (values["server"] or values["server_baseline"]):
        return _of_model(values, prompts, sampling)
    from localspec.tools.bench.server import ServerRunner, servers

    asked = servers(values["server"], values["server_baseline"])
    with ServerRunner(asked, sampling, model=values["server_model"], api_key=values["api_key"]) as runner:
        report = (_of_servers if servers_alone(values) else _of_model)(values, prompts, sampling, runner)
    if "chunks" in runner.counted_by:
        note("the server counts no tokens: each chunk of text is taken for one")
    theirs = {"servers": runner.urls, "models": runner.models, "counted_by": sorted(runner.counted_by)}
    return replace(report, about={**report.about, **theirs}, afresh=True)


def _of_servers(values: Values, prompts: tuple[Prompt, ...], sampling: SamplingParams, runner: ServerRunner) -> Report:
    measured = _measured(runner, _order(values, runner.settings, prompts, runner.baseline))
    names = ", ".join(f"{name} ({runner.models[name]})" for name in runner.settings)
    title = f"{names}: {_extent(measured, sampling)}; {date.today().isoformat()}"
    results = tuple(result(measured, name) for name in runner.settings)
    return Report(results, measured, title, _about(values, sampling))


def _of_model(
    values: Values, prompts: tuple[Prompt, ...], sampling: SamplingParams, beside: ServerRunner | None = None
) -> Report:
    target, draft = model_files(values)
    default = spec_types(replace(engine_options(values, target, draft), spec_types=None))
    asked = settings(values["setting"], values, default)
    types, nodes = to_load(asked, default)
    loaded = {**values, "spec_type": ",".join(types), "tree_nodes": nodes}
    names, theirs = tuple(one.name for one in asked), () if beside is None else beside.settings
    order = _order(values, unique(names + theirs), prompts, (beside and beside.baseline) or PLAIN)
    with engine_here(loaded, target, draft) as engine:
        # Before the first answer: its conversation would hold the sequence that this needs.
        curve = measure_passes(engine.target, nodes + 1)
        local = LocalRunner(engine, asked, sampling, afresh=beside is not None)
        measured = _measured(local if beside is None else beside.next_to(local, names), order)
        results = (
            *(_of_setting(one, measured, curve) for one in asked),
            *(result(measured, name) for name in theirs),
        )
        cost = {rows: curve.seconds(rows) for rows in ROWS if rows <= nodes + 1}
        about = {**_about(values, sampling), "target": engine.info.target, "draft": engine.info.draft}
        return Report(results, measured, _title(engine, measured, sampling), about, cost, peak_memory())


def _of_setting(setting: Setting, measured: Measured, curve: CostCurve) -> Result:
    """What was measured of one setting here; the ceiling counts against plain decoding here only."""
    comparable = measured.order.baseline in (None, PLAIN)
    pairs = (pair for pairs in measured.pairs.values() for pair in pairs)
    oracle = perfect(setting.spec, curve.seconds, plain_host_s(pairs)) if comparable else None
    return result(measured, setting.name, oracle, same_text=setting.spec.accept == "draw")


def _order(values: Values, ways: tuple[str, ...], prompts: tuple[Prompt, ...], baseline: str | None) -> Order:
    return Order(
        ways,
        prompts,
        rounds=values["repetitions"],
        tokens=values["n_predict"] if values["n_predict"] > 1 else BENCH_TOKENS,
        baseline=baseline if values["baseline"] else None,
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
