"""Names of GGUF files: quantisations, split files, and which file of a repository is meant. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

#: Without a tag, the first of these that a repository has; then its first model file. As llama.cpp chooses.
PREFERRED = ("Q4_K_M", "Q8_0")
#: Files that are no model of their own: projectors, calibration data, heads that belong to another file.
COMPANIONS = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")

_SPLIT = re.compile(r"(?P<prefix>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)", re.IGNORECASE)
_QUANT = re.compile(
    r"(?:^|[-._/])(?P<quant>(?:UD-)?(?:I?Q\d\w*|TQ\d\w*|BF16|F16|F32|FP16|FP32|MXFP\d\w*|NVFP\d\w*))$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Split:
    """One part of a model that is spread over ``count`` files; ``index`` counts from 1."""

    prefix: str
    index: int
    count: int
    suffix: str

    @classmethod
    def of(cls, name: str) -> Split | None:
        """``None``: the name is not that of a part."""
        match = _SPLIT.fullmatch(name)
        if match is None or not 1 <= int(match["index"]) <= int(match["count"]):
            return None
        return cls(match["prefix"], int(match["index"]), int(match["count"]), match["suffix"])

    def parts(self) -> tuple[str, ...]:
        """The names of all parts, in order."""
        return tuple(f"{self.prefix}-{index:05}-of-{self.count:05}{self.suffix}" for index in range(1, self.count + 1))


def parts_of(name: str) -> tuple[str, ...]:
    """All files of the model that ``name`` belongs to: itself, or every part of a split one."""
    split = Split.of(name)
    return (name,) if split is None else split.parts()


def quant_of(name: str) -> str | None:
    """The quantisation a file's name ends with, in capitals: ``Q4_K_M``, ``F16``."""
    split = Split.of(name)
    stem = re.sub(r"\.gguf$", "", name, flags=re.IGNORECASE) if split is None else split.prefix
    match = _QUANT.search(stem)
    return None if match is None else match["quant"].upper().removeprefix("UD-")


def is_model(name: str) -> bool:
    """Whether a file of a repository is a GGUF model, by its name."""
    file = name.rpartition("/")[2].lower()
    return file.endswith(".gguf") and not any(word in file for word in COMPANIONS)


def models(names: Iterable[str]) -> tuple[str, ...]:
    """The models among files: each by its (first) file, in the order given."""
    firsts = (name for name in names if is_model(name))
    return tuple(name for name in firsts if (split := Split.of(name)) is None or split.index == 1)


def choose(names: Collection[str], quant: str | None) -> str | None:
    """The (first) file that is meant by ``repo:quant``, ``None`` where there is no such one.

    A quantisation that is named exactly wins; else, as in llama.cpp, the first file whose name has the tag before a
    dot or a dash, so that a longer piece of the name tells apart what shares a quantisation.
    """
    found = models(names)
    for tag in PREFERRED if quant is None else (quant,):
        exact = (name for name in found if quant_of(name) == tag.upper())
        pattern = re.compile(re.escape(tag) + "[.-]", re.IGNORECASE)
        loose = (name for name in found if pattern.search(name))
        if (name := next(exact, None) or next(loose, None)) is not None:
            return name
    return found[0] if quant is None and found else None


def tag_for(name: str, names: Collection[str]) -> str:
    """The shortest tag by which `choose` finds this file among ``names``."""
    quant = quant_of(name)
    if quant is not None and choose(names, quant) == name:
        return quant
    split = Split.of(name)
    stem = name[: -len(".gguf")] if split is None else split.prefix
    return stem.rpartition("/")[2]
