"""``localspec models``: what is here, getting more, looking into it, and removing it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localspec.cli.diagnostics import note, say
from localspec.cli.output import Output
from localspec.cli.session import Progress, names_nearby
from localspec.cli.transfer import fetch
from localspec.drafters.files import DRAFT_MODEL, type_of_file
from localspec.errors import ExitCode, UsageError
from localspec.hub import HubRef
from localspec.hub.check import damaged
from localspec.hub.check import verify as checked
from localspec.hub.header import read_header
from localspec.hub.remove import Removal, removal, remove
from localspec.hub.shelf import Entry, beside, facts, located, parts, shelf
from localspec.hub.sizes import human
from localspec.models.demo import DEMO
from localspec.models.pairing import Partner, Target, here, made_for, published, target_called
from localspec.options import Values

_RIGHT = ("SIZE", "CONTEXT")


def ls(values: Values) -> int:
    """The demo model, the models of the cache, and those of --models-dir."""
    output = Output()
    entries = _shelf(values)
    if values["json"]:
        output.record({"models": [{**asdict(one), "path": str(one.path), "drafters": _known(one)} for one in entries]})
    elif entries:
        heads = ("NAME", "QUANT", "SIZE", "ARCH", "CONTEXT", "DRAFTERS")
        output.text(_table(heads, [_row(entry) for entry in entries]))
    else:
        note("there are no models here yet; get one with: localspec models pull user/repo")
    return ExitCode.OK


def _shelf(values: Values) -> list[Entry]:
    folder = values.get("models_dir")
    return list(shelf(None if folder is None else Path(folder)))


def _known(entry: Entry) -> list[str]:
    """Repositories of what is published for a model."""
    return [one.repo for one in made_for((entry.name, entry.path.name), entry.architecture)]


def _row(entry: Entry) -> tuple[str, ...]:
    context = "-" if entry.context is None else str(entry.context)
    architecture = [entry.architecture or "", "(damaged)" if entry.fault else ""]
    known = len(_known(entry))
    named = " ".join(filter(None, architecture)) or "-"
    return entry.name, entry.quant or "-", human(entry.size), named, context, f"{known} known" if known else "-"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns that line up, two spaces between them."""
    from rich.cells import cell_len

    lines = [tuple(heads), *(tuple(cell.replace("\n", " ") for cell in row) for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]

    def padded(cell: str, head: str, width: int) -> str:
        space = " " * (width - cell_len(cell))
        return space + cell if head in _RIGHT else cell + space

    return "".join("  ".join(map(padded, line, heads, widths)).rstrip() + "\n" for line in lines)


def pull(values: Values) -> int:
    """Downloads a model; stdout gets the path of its (first) file."""
    ref = HubRef.parse(values["repo"], values["hf_file"], flag="models pull")
    Output().text(f"{fetch(ref, values)}\n")
    return ExitCode.OK


def info(values: Values) -> int:
    """What a model's header says; a file that is damaged is an error after that."""
    output = Output()
    file = _here(values["model"])
    found = facts(file)
    kind = type_of_file(read_header(parts(file)[0]))
    found["spec_type"] = None if kind == DRAFT_MODEL else kind
    names = (values["model"], file.name, found["name"] or "")
    found["drafters"] = [f"{one.repo} ({one.type})" for one in made_for(names, found["architecture"])] or None
    if values["json"]:
        output.record(found)
    else:
        shown = [(key, _shown(key, value)) for key, value in found.items() if value is not None]
        width = max(len(key) for key, _ in shown)
        output.text("".join(f"{key:{width}}  {text}\n" for key, text in shown))
    if found["fault"] is not None:
        raise damaged(file, found["fault"])
    return ExitCode.OK


def _here(text: str) -> Path:
    """Where a model is. Raises as `localspec.hub.shelf.located`, asking what may have been meant."""
    with names_nearby(text):
        return located(text)


def _shown(key: str, value: Any) -> str:
    if key == "size":
        return f"{human(value)} ({value} bytes)"
    if key == "parameters":
        return f"{value / 1e6:.0f} million" if value < 1e9 else f"{value / 1e9:.1f} billion"
    if key == "training":
        return ", ".join(" ".join(f"{name} {text}".split()) for name, text in value.items())
    if isinstance(value, dict):
        return ", ".join(f"{kind} ({count} tensor{'s' * (count != 1)})" for kind, count in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value)
    return " ".join(str(value).split())


def pair(values: Values) -> int:
    """What can draft for a model: what is here first, then what is published."""
    from localspec.spec_types import SPEC_TYPES

    output = Output()
    with names_nearby(values["model"]):
        target = target_called(values["model"])
    found = [*here(target, [*_neighbours(target), *_shelf(values)]), *published(target, SPEC_TYPES)]
    if values["json"]:
        output.record({"target": target.called, "partners": [_record(one) for one in found]})
    elif found:
        output.text("".join(map(_lines, found)))
    else:
        note(
            "nothing is known that was made for it; suffixes and n-grams guess without a file (--spec-type), "
            "and localspec train makes a head"
        )
    return ExitCode.OK


def _neighbours(target: Target) -> list[Entry]:
    """The models in the target's folder."""
    return [] if target.path is None else [Entry.of(str(one), one) for one in beside(target.path)]


def _lines(one: Partner) -> str:
    listed = one.listed
    about = [one.why, "on this machine" if listed is None else "published"]
    if listed is not None:
        about += [f"{listed.millions} million parameters"] if listed.millions else []
        about += [f"licence {listed.licence}"] if listed.licence else []
    name = one.name.replace("\n", " ")
    lines = [f"{name} ({one.type})", "; ".join(about), *(f"needs {need}" for need in one.needs), one.command]
    return "\n  ".join(filter(None, lines)) + "\n"


def _record(one: Partner) -> dict[str, Any]:
    listed = None if one.listed is None else asdict(one.listed)
    return {**asdict(one), "path": None if one.path is None else str(one.path), "listed": listed}


def path(values: Values) -> int:
    """Where a model's (first) file is."""
    Output().text(f"{_here(values['model'])}\n")
    return ExitCode.OK


def rm(values: Values) -> int:
    """Removes a model from the cache, after a question."""
    with names_nearby(values["model"]):
        plan = removal(values["model"])
    if not values["yes"] and not _agreed(plan):
        note("nothing is removed")
        return ExitCode.RUNTIME
    remove(plan)
    note(f"removed {_listed(plan)}; {human(plan.size)} are free now")
    return ExitCode.OK


def _agreed(plan: Removal) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("there is no terminal to ask at", hint="Add --yes to remove it without a question.")
    say(f"Remove {_listed(plan)} ({human(plan.size)})? [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _listed(plan: Removal) -> str:
    names = ", ".join(plan.names[:4]) + (f" and {len(plan.names) - 4} more" if len(plan.names) > 4 else "")
    return f"{names or 'what is left'} of {plan.cache.repo}"


def verify(values: Values) -> int:
    """Checks a model's files: their structure, and in the cache their checksums."""
    output = Output()
    progress = Progress()
    with progress.doing() as show:
        for part, how in checked(_here(values["model"]), lambda part, share: show(f"checking {part.name}", share)):
            progress.end()
            output.text(f"{part}: {how}\n")
    return ExitCode.OK


def convert(values: Values) -> int:
    """Writes a head as a GGUF file; stdout gets its path."""
    from localspec.torch_drafters import require_torch

    if values["output_file"] is None:
        raise UsageError("models convert needs a file to write", hint="Name it with -o, e.g. -o head.gguf.")
    require_torch("models convert")
    from localspec.backends.torch.gguf_head import convert_head

    out, folder = Path(values["output_file"]), Path(values["folder"])
    convert_head(folder, _here(values["model"] or DEMO), out, values["outtype"])
    Output().text(f"{out}\n")
    return ExitCode.OK
