"""Is the file of a model sound, and what can be done with it?"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from localspec.drafters.files import DRAFT_MODEL
from localspec.hub.sizes import human
from localspec.tools.doctor.facts import Header, Model, Wanted
from localspec.tools.doctor.findings import Finding, Level

_AGAIN = "download it again: localspec models pull USER/MODEL"


def check(target: Model | None, draft: Model | None, wanted: Wanted) -> Iterator[Finding]:
    """Findings of the groups ``target`` and ``draft``."""
    if target is None and draft is None:
        yield Finding(
            "target.file",
            Level.NOTE,
            "no model is named, so none is looked into",
            "localspec doctor -m MODEL -md DRAFT",
        )
    if target is not None:
        yield from _model("target", target)
        if target.header is not None:
            yield _context(target.header, wanted)
            yield _template(target.header)
    if draft is not None:
        yield from _model("draft", draft)


def _checkpoint(role: str, model: Model) -> Finding:
    """A folder of the hub, which torch may run as a head."""
    name = f"{role}.file"
    if role == "target" or model.checkpoint == DRAFT_MODEL:
        what = f"{model.path} is a folder of the hub, which only heads can be"
        return Finding(name, Level.PROBLEM, what, "a GGUF file of it")
    what = f"{model.path}: a folder of the hub for {model.checkpoint}"
    if find_spec("torch") is None:
        return Finding(name, Level.PROBLEM, f"{what}, which runs on torch", "pip install 'localspec[torch]'")
    return Finding(name, Level.OK, f"{what}, which torch runs")


def _model(role: str, model: Model) -> Iterator[Finding]:
    name, header = f"{role}.file", model.header
    if model.checkpoint:
        yield _checkpoint(role, model)
        return
    if header is None:
        fault = model.fault
        assert fault is not None
        yield Finding(name, Level.PROBLEM, fault.message, fault.hint)
        return
    if header.fault:
        yield Finding(name, Level.PROBLEM, f"{model.path} is damaged: {header.fault}", _AGAIN)
    else:
        yield Finding(name, Level.OK, f"{model.path}: {_described(header)}")
    yield from _read(role, model)


def _described(header: Header) -> str:
    size = (
        f"{header.parameters / 1e6:.0f} million"
        if header.parameters < 1e9
        else f"{header.parameters / 1e9:.1f} billion"
    )
    facts = (header.name, header.architecture, header.quant, f"{size} parameters", human(header.size))
    return ", ".join(one for one in facts if one)


def _read(role: str, model: Model) -> Iterator[Finding]:
    """What llama.cpp makes of it; nothing where it could not be asked."""
    reading, header = model.reading, model.header
    assert header is not None
    if model.died:
        what = f"llama.cpp dies while it reads {model.path} ({model.died})"
        yield Finding(f"{role}.support", Level.PROBLEM, what, _AGAIN)
    elif reading is None:
        return
    elif reading.fault is not None:
        yield Finding(f"{role}.support", Level.PROBLEM, reading.fault.message, reading.fault.hint)
    else:
        what = f"llama.cpp knows the architecture {header.architecture} and reads {reading.tokens} tokens"
        yield Finding(f"{role}.support", Level.OK, what)
        yield _trees(role, header, recurrent=reading.recurrent)


def _trees(role: str, header: Header, *, recurrent: bool) -> Finding:
    name = f"{role}.trees"
    if recurrent and role == "draft":
        what = "it has recurrent layers, which cannot take guesses back: it cannot be a draft model"
        return Finding(name, Level.PROBLEM, what, "a draft model with attention only, or leave -md out")
    if recurrent:
        what = "it has recurrent layers, which cannot take guesses back: it answers without speculation"
        return Finding(name, Level.WARNING, what, "a model with attention only")
    if header.window and role == "target":
        what = f"a window of {header.window} tokens slides over some layers; their cache is kept whole, so trees work"
        return Finding(name, Level.NOTE, what, "--no-swa-full takes less memory, and guesses are chains")
    return Finding(name, Level.OK, "guesses may be chains or trees")


def _context(header: Header, wanted: Wanted) -> Finding:
    name = "target.context"
    if header.context is None:
        return Finding(name, Level.NOTE, "the file does not say how long a context it was trained for", "-c N")
    if wanted.n_ctx > header.context:
        what = f"-c {wanted.n_ctx} is more than the {header.context} tokens it was trained for: text gets worse there"
        return Finding(name, Level.WARNING, what, f"-c {header.context}, or --rope-scaling yarn --rope-scale N")
    return Finding(name, Level.OK, f"trained for a context of {header.context} tokens")


def _template(header: Header) -> Finding:
    name, mend = "target.template", "--chat-template chatml"
    if header.template_fault:
        return Finding(name, Level.WARNING, f"its chat template is broken: {header.template_fault}", mend)
    if not header.template:
        what = "it has no chat template: it is a base model, which localspec chat refuses"
        return Finding(name, Level.NOTE, what, f"localspec complete, or {mend}")
    return Finding(name, Level.OK, "it has a chat template")
