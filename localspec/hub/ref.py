"""What is wanted from a hub: ``user/repo[:quant]``, or one file of a repository."""

from __future__ import annotations

import re
from dataclasses import dataclass

from localspec.errors import UsageError

_REPO = re.compile(r"\b[\w.-]+\b/\b[\w.-]{1,96}\b", re.ASCII)
_TAG = re.compile(r"[\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubRef:
    """A model of a repository. ``file`` names it outright and makes ``quant`` count for nothing. ``checkpoint``: where
    there is no GGUF model, the folder of a checkpoint will do."""

    repo: str
    quant: str | None = None
    file: str | None = None
    checkpoint: bool = False

    @classmethod
    def parse(cls, text: str, file: str | None = None, *, flag: str = "-hf", checkpoint: bool = False) -> HubRef:
        """Reads ``user/repo[:quant]``.

        Raises:
            UsageError: it has another form.
        """
        repo, colon, quant = text.strip().partition(":")
        hint = "Write user/repo or user/repo:quant, e.g. ggml-org/gemma-3-1b-it-GGUF:Q4_K_M."
        if not is_repo(repo):
            raise UsageError(f"{flag} {text} is not the name of a repository", hint=hint)
        if colon and not _TAG.fullmatch(quant):
            raise UsageError(f"{flag} {text} has no quantisation after the colon", hint=hint)
        if file is not None and not is_safe(file):
            raise UsageError(f"{file} is not the name of a file in a repository", hint="Name it as the hub shows it.")
        return cls(repo, quant or None, file, checkpoint)

    def __str__(self) -> str:
        if self.file is not None:
            return f"{self.repo}/{self.file}"
        return self.repo if self.quant is None else f"{self.repo}:{self.quant}"


def is_repo(text: str) -> bool:
    """Whether this can be the name of a repository on the hub."""
    return bool(_REPO.fullmatch(text)) and "--" not in text and ".." not in text


def is_safe(name: str) -> bool:
    """Whether a file's name in a repository stays inside the folder it is put into."""
    return (
        not name.startswith("/") and all(step not in ("", ".", "..") for step in name.split("/")) and "\0" not in name
    )
