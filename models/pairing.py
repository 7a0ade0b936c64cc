"""What can draft for a target: models and heads on this machine, then what is published for it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from localspec.backends.predicting import check_predictors
from localspec.drafters.files import DRAFT_MODEL, EAGLE3, HEADS, IN_TORCH, MTP, type_of_file
from localspec.errors import ModelError, UsageError
from localspec.hub.header import Header, read_header
from localspec.hub.names import quant_of
from localspec.hub.ref import is_repo
from localspec.hub.shelf import Entry, located, parts
from localspec.hub.vocabulary import Vocabulary
from localspec.models.drafters import Drafter, known

#: A draft model that is not so many times smaller saves nothing.
_SMALLER = 2
#: Who made a model stands before its name in many names of files and repositories.
_MAKERS = {"google", "huggingfacetb", "meta", "microsoft", "mistralai", "openai", "qwen"}
_WITHOUT_MEANING = {"gguf", "hf"}


@dataclass(frozen=True, slots=True)
class Target:
    """What is known of a target; of one that is not on this machine only its name.

    Attributes:
        called: how it was asked for.
        names: of the model, its repository and its file.
    """

    called: str
    names: tuple[str, ...]
    path: Path | None = None
    header: Header | None = None
    vocabulary: Vocabulary | None = None
    parameters: int = 0

    @property
    def architecture(self) -> str | None:
        return None if self.header is None else self.header.architecture

    @property
    def flags(self) -> str:
        """How a command line names it."""
        if self.path is None and "gguf" not in self.called.lower():
            return "-m TARGET.gguf"
        return f"{'-hf' if self.path is None else '-m'} {shlex.quote(self.called)}"


@dataclass(frozen=True, slots=True)
class Partner:
    """A drafter for a target.

    Attributes:
        name: of the file or the model, or its repository.
        type: its ``--spec-type``.
        why: it fits.
        needs: what stands between it and the command.
        command: to use it; "" where the file is none that can be loaded.
        path: where it is on this machine.
        listed: its entry in the list of what is published.
    """

    name: str
    type: str
    why: str
    needs: tuple[str, ...]
    command: str
    path: Path | None = None
    listed: Drafter | None = None


def target_called(text: str) -> Target:
    """The target of this name: ``demo``, a path, or a repository; one that drafters are known for need not be here.

    Raises:
        ModelError: there is no such model here, and nothing is known for it; or its header cannot be read.
    """
    try:
        path = located(text)
    except ModelError:
        target = Target(text, (text,))
        if not is_repo(text.partition(":")[0]) or not made_for(target.names):
            raise
        return target
    headers = [read_header(part) for part in parts(path)]
    if (found := HEADS.get(headers[0].architecture or "")) is not None:
        raise ModelError(
            f"{path.name} is itself a drafter ({found}), not a target",
            hint="Name the model that it was made for; -md takes this one.",
        )
    names = (text, path.name, headers[0].text("general.name") or "")
    parameters = sum(tensor.elements for header in headers for tensor in header.tensors)
    return Target(text, names, path, headers[0], Vocabulary.of(headers[0]), parameters)


def made_for(names: Iterable[str], architecture: str | None = None) -> list[Drafter]:
    """What is published for the model of these names."""
    names = tuple(names)
    return [one for one in known() if _is_for(one, names, architecture) is not None]


def here(target: Target, entries: Iterable[Entry]) -> Iterator[Partner]:
    """Of the models on this machine those that can draft for the target, each once."""
    if target.header is None or target.path is None or target.vocabulary is None:
        return
    if layers := _own_layers(target.path):
        why = f"its own file has {layers} layer{'s' * (layers != 1)} that guess{'es' * (layers == 1)}"
        yield Partner(target.called, MTP, why, (), f"localspec chat {target.flags} --spec-type {MTP}", target.path)
    size = sum(part.stat().st_size for part in parts(target.path))
    seen = {target.path.resolve()}
    for entry in entries:
        if entry.fault is not None or entry.path.resolve() in seen:
            continue
        seen.add(entry.path.resolve())
        with suppress(ModelError):  # gone, or cut off, since it was listed
            fit = _fit(read_header(parts(entry.path)[0]), size / entry.size, target.header, target.vocabulary)
            if fit is not None:
                command = f"localspec chat {target.flags} -md {shlex.quote(entry.name)}"
                yield Partner(entry.name, *fit, (), command, entry.path)


def _own_layers(path: Path) -> int:
    """How many layers of a model guess, of those that can be run."""
    headers = [read_header(part) for part in parts(path)]
    try:
        check_predictors(headers)
    except UsageError:
        return 0
    return headers[0].number("{arch}.nextn_predict_layers") or 0


def _fit(header: Header, times: float, target: Header, wanted: Vocabulary) -> tuple[str, str] | None:
    """A drafter's type, and why it fits; ``None`` if it does not. It is so many ``times`` smaller."""
    vocabulary = Vocabulary.of(header)
    if (head := type_of_file(header)) != DRAFT_MODEL:
        # Heads but EAGLE's are as wide as their target.
        width = header.number("{arch}.target_hidden_size" if head == EAGLE3 else "{arch}.embedding_length")
        if head == MTP and header.architecture != target.architecture:
            return None
        alike = vocabulary.count == 0 or vocabulary.same_as(wanted)
        if not alike or width is None or width != target.number("{arch}.embedding_length"):
            return None
        return head, f"a head for states of width {width}, which this target has"
    if times < _SMALLER or not vocabulary.same_as(wanted):
        return None
    return DRAFT_MODEL, f"the same vocabulary ({vocabulary.count} tokens), {times:.0f} times smaller"


def published(target: Target, types: Iterable[str]) -> list[Partner]:
    """What is published for the target, or for any of its vocabulary; what can be used as it is comes first.

    Args:
        types: that this version has.
    """
    types = frozenset(types)
    fits = ((one, _why(one, target)) for one in known())
    found = (
        Partner(one.repo, one.type, why, tuple(_needs(one, types)), _command(one, target), listed=one)
        for one, why in fits
        if why is not None
    )
    return sorted(found, key=lambda partner: len(partner.needs))


def _why(one: Drafter, target: Target) -> str | None:
    if (made := _is_for(one, target.names, target.architecture)) is not None:
        return f"a small model for {made}" if one.type == DRAFT_MODEL else f"made for {made}"
    has = target.vocabulary
    if has is None or one.tokens is None or one.millions is None:
        return None
    times = target.parameters / (one.millions * 1e6)
    if (has.splits or "default") != one.tokenizer or not has.counts_as(one.tokens) or times < _SMALLER:
        return None
    return f"the same tokenizer ({one.tokenizer}, {one.tokens} tokens), {times:.0f} times smaller"


def _needs(one: Drafter, types: frozenset[str]) -> Iterator[str]:
    if one.type not in types:
        yield f"a version that has --spec-type {one.type}"
    if one.format != "gguf":
        means = "PyTorch" if one.type in IN_TORCH else "llama.cpp's convert_hf_to_gguf.py"
        yield f"{means}: it is a Hugging Face checkpoint, not GGUF"
    if one.gated:
        yield "an account that accepted its terms (HF_TOKEN)"


def _command(one: Drafter, target: Target) -> str:
    if one.format != "gguf" and one.type not in IN_TORCH:
        return ""
    if one.own:
        return f"localspec chat -hf {one.repo} --spec-type {one.type}"
    file = "" if one.file is None else f" -hffd {one.file}"
    return f"localspec chat {target.flags} -hfd {one.repo}{file}"


# -- names


def _is_for(one: Drafter, names: tuple[str, ...], architecture: str | None) -> str | None:
    """Which of the targets it was made for these are names of."""
    if None not in (one.architecture, architecture) and one.architecture != architecture:
        return None
    asked = [words(name) for name in names if name]
    return next((made for made in one.targets if words(made) in asked), None)


def words(name: str) -> tuple[str, ...]:
    """What tells one model from another in the name of a repository, of a file, or of the model: neither its maker nor
    its quantisation."""
    name = name.rpartition("/")[2].partition(":")[0]
    name = re.sub(r"\.gguf$", "", name, flags=re.IGNORECASE)
    if (quant := quant_of(name)) is not None:
        name = re.sub(rf"(?:UD-)?{re.escape(quant)}$", "", name, flags=re.IGNORECASE)
    found = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word and word not in _WITHOUT_MEANING]
    return tuple(found[1:] if len(found) > 1 and found[0] in _MAKERS else found)
