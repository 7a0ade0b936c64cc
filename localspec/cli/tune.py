"""``localspec tune``: what guesses best for a target on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from localspec import __version__, loading
from localspec.backends.llamacpp import Native
from localspec.cli.diagnostics import note
from localspec.cli.output import Output
from localspec.cli.session import Progress, model_files
from localspec.cli.tuned import file_for
from localspec.control import core_count
from localspec.drafters.files import DRAFT_MODEL
from localspec.engine import Engine
from localspec.errors import ExitCode, UsageError
from localspec.hub.shelf import Entry, beside, shelf
from localspec.llamacpp_fit import free_on, layer_sizes
from localspec.loading import EngineOptions, ModelOptions
from localspec.models.demo import demo_model
from localspec.options import Values, engine_options, sampling_params, spec_params
from localspec.options.commands import TUNE
from localspec.options.tables.groups import SPEC
from localspec.options.tables.tools import TUNE_TOKENS
from localspec.options.tuned import Tuned, write
from localspec.spec_types import draft_type
from localspec.tools.machine import processor
from localspec.tools.prompts import built_in, read_prompts
from localspec.tools.tune.choice import Choice, choices
from localspec.tools.tune.costs import counts
from localspec.tools.tune.field import MOST_DRAFTS, TEXT, draft_models
from localspec.tools.tune.study import Setup, Study, Wish, study
from localspec.tools.tune.table import advice, noted, plain_speed, ranking, record
from localspec.tools.tune.why import why


def tune(values: Values) -> int:
    """Runs the command; returns its exit code.

    Raises:
        UsageError: nothing would guess, or prompts that cannot be read.
        LocalspecError: as `localspec.load`; an answer that failed; what was found cannot be kept.
    """
    base = spec_params(values)
    if base.off:
        raise UsageError(
            "guesses are off, so there is nothing to tune", hint="Leave --spec off, or the limit that is 0, out."
        )
    target, draft = model_files(values)
    if draft is not None and draft_type(draft) != DRAFT_MODEL:
        raise UsageError(
            f"{draft.name} is a head, which has no passes of its own to time", hint="Race it with localspec bench."
        )
    target = target or demo_model()
    wish = _wish(values, target, draft)
    output, progress = Output(), Progress()
    try:
        with progress.doing() as show:
            found = study(_Loader(values, target, progress), wish, values["seconds"], progress=show)
    except KeyboardInterrupt:
        note("stopped before anything was measured; nothing kept")
        return ExitCode.INTERRUPTED
    chosen = choices(found, _asked(values))
    lines = why(found, chosen)
    if values["json"]:
        output.record({**_about(target, draft, found), **record(found, chosen, lines)})
    else:
        output.text("\n".join([_title(target, found), "", *_told(found, chosen, lines)]) + "\n")
    if found.stopped:
        return ExitCode.INTERRUPTED
    if values["save"]:
        for one in chosen:
            file = file_for(target, one.draft)
            write(file, Tuned(one.settings, {**_about(target, one.draft, found), "speedup": one.speedup}))
        note(f"later runs start from this; --no-tuned leaves it out, and so does removing it from {file.parent}")
    return ExitCode.OK


def _wish(values: Values, target: Path, draft: Path | None) -> Wish:
    named, threads = values["spec_type"], values["threads"]
    types = TEXT if named is None else tuple(dict.fromkeys(name.strip() for name in named.split(",")))
    if not (types := tuple(name for name in types if name != "none")):
        raise UsageError(f"nothing of --spec-type {named} guesses", hint="Name drafters, or leave it out.")
    prompts = built_in("localspec.tools.bench") if values["prompts"] is None else read_prompts(Path(values["prompts"]))
    sampling = sampling_params(values)
    usual = counts(core_count())
    return Wish(
        drafts=_found(values, target) if draft is None else (draft,),
        found=draft is None,
        types=types,
        base=spec_params(values),
        prompts=prompts,
        tokens=values["n_predict"] if values["n_predict"] > 1 else TUNE_TOKENS,
        sampling=replace(sampling, seed=1) if sampling.seed is None else sampling,
        counts=usual if threads <= 0 else (),
        counts_draft=usual if threads <= 0 and values["threads_draft"] <= 0 else (),
        room=_room(values, target),
    )


def _room(values: Values, target: Path) -> int | None:
    """Bytes of devices to plan for, of those that the target may use; ``None`` where it is said what goes there."""
    if any(values[name] != "auto" for name in ("gpu_layers", "gpu_layers_draft")) or values["override_tensor"]:
        return None
    options = engine_options(values, target)
    native = Native(options.log_file, options.rpc)
    devices = native.devices.chosen(options.target.devices)
    return sum(one.room for one in free_on(devices, options.fit, native))


def _found(values: Values, target: Path) -> tuple[Path, ...]:
    """The draft models that lie here, the likeliest to pay first."""
    folder = values["models_dir"]
    entries = list(shelf(None if folder is None else Path(folder)))
    entries += [Entry.of(str(path), path) for path in beside(target)]
    found = draft_models(target, entries)
    if len(found) > MOST_DRAFTS:
        names = ", ".join(path.name for path in found[MOST_DRAFTS:])
        note(f"of {len(found)} draft models {MOST_DRAFTS} are tried, not {names}: name one with -md")
    return tuple(found[:MOST_DRAFTS])


def _asked(values: Values) -> dict[str, Any]:
    """What was said of guesses, but for the drafters to try, by key."""
    given = {option: values[option.name] for option in TUNE.options if option.group == SPEC}
    return {one.word: value for one, value in given.items() if one.name != "spec_type" and value != one.default}


class _Loader:
    """Engines of the pair, one after the other, in this process; what they warn of is said once."""

    def __init__(self, values: Values, target: Path, progress: Progress) -> None:
        self._values, self._target, self._progress = values, target, progress
        self._said: set[str] = set()

    @contextmanager
    def alone(self, draft: Path | None, layers: int | None) -> Iterator[Engine]:
        """As `Loader.alone`."""
        options, model = self._model(draft)
        model = model if layers is None else replace(model, gpu_layers=layers)
        with self._loaded(replace(options, target=model, draft=None, spec_types=(), measure=False)) as engine:
            yield engine

    def sizes(self, draft: Path | None) -> tuple[int, ...]:
        """As `Loader.sizes`."""
        options, model = self._model(draft)
        return layer_sizes(model, options.n_ctx)

    def _model(self, draft: Path | None) -> tuple[EngineOptions, ModelOptions]:
        """The target, or a draft model."""
        options = engine_options(self._values, self._target, draft)
        return options, options.target if draft is None or options.draft is None else options.draft

    @contextmanager
    def pair(self, draft: Path | None, types: tuple[str, ...], nodes: int, setup: Setup) -> Iterator[Engine]:
        """As `Loader.pair`."""
        found = {
            "threads": setup.threads,
            "threads_draft": setup.threads_draft,
            "gpu_layers": setup.layers if setup.layers is None else str(setup.layers),
            "gpu_layers_draft": setup.layers_draft if setup.layers_draft is None else str(setup.layers_draft),
        }
        found = {name: value for name, value in found.items() if value is not None}
        values = {**self._values, "spec_type": ",".join(types), "tree_nodes": nodes, **found}
        with self._loaded(engine_options(values, self._target, draft)) as engine:
            yield engine

    @contextmanager
    def _loaded(self, options: EngineOptions) -> Iterator[Engine]:
        draft = None if options.draft is None else options.draft.path
        with self._progress.loading(options.target.path, draft):
            loaded = loading.load(options, progress=self._progress.stage)
        for warning in loaded.info.warnings:
            if warning not in self._said:
                self._said.add(warning)
                note(warning)
        with loaded as engine:
            yield engine


# Reports


def _title(target: Path, found: Study) -> str:
    tokens = sorted({heat.race.tokens for heat in found.heats})
    length = "–".join(map(str, dict.fromkeys((tokens[0], tokens[-1])))) if tokens else "no"
    prompts = max((heat.race.prompts for heat in found.heats), default=0)
    extent = f"{found.seconds:.0f} s, up to {prompts} prompts, {length} tokens an answer"
    return f"`{target.name}`: {extent}; {processor()}, {date.today().isoformat()}"


def _told(found: Study, chosen: list[Choice], lines: list[str]) -> Iterator[str]:
    yield ranking(found)
    yield from (f"- {line}" for line in lines)
    if noted_lines := list(noted(found)):
        yield from ("", *noted_lines)
    if not found.stopped:
        yield from ("", "From now on:", *(f"- {advice(one)}" for one in chosen))


def _about(target: Path, draft: Path | None, found: Study) -> dict[str, Any]:
    return {
        "kind": "localspec tune",
        "localspec": __version__,
        "date": date.today().isoformat(),
        "machine": processor(),
        "target": str(target),
        "draft": None if draft is None else str(draft),
        "plain_tokens_per_second": plain_speed(found),
    }
