"""Texts that the user gives to draft from: files, read once when the engine is loaded."""

from __future__ import annotations

from pathlib import Path

from localspec.errors import UsageError
from localspec.vocab import Vocab

#: Of all texts together: an automaton takes half a kilobyte a token.
MOST_BYTES, MOST_TOKENS = 4 * 2**20, 2**18
_FLAG = "--spec-corpus"


def corpus_files(path: Path, flag: str = _FLAG, most: int = MOST_BYTES) -> list[Path]:
    """The file, or the files in the folder and its folders, without hidden ones, in order of their paths.

    Raises:
        UsageError: there is none, or they are too large.
    """
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.is_file() and not _hidden(file.relative_to(path)))
    else:
        found = [path] if path.is_file() else []
    if not found:
        what = "has no files" if path.is_dir() else "is not there"
        raise UsageError(f"{flag} {path} {what}", hint="Give a text file, or a folder of them.")
    size = sum(file.stat().st_size for file in found)
    if size > most:
        raise UsageError(
            f"{flag} {path} holds {size / 2**20:.1f} MiB, more than {most // 2**20}",
            hint="Give fewer or smaller files.",
        )
    return found


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def read_corpus(path: Path, vocab: Vocab) -> list[list[int]]:
    """The tokens of each file.

    Raises:
        UsageError: as `corpus_files`; a file cannot be read or is no text; there are too many tokens.
    """
    texts = [vocab.tokenize(read_text(file)) for file in corpus_files(path)]
    n = sum(map(len, texts))
    if n > MOST_TOKENS:
        raise UsageError(
            f"{_FLAG} {path} holds {n} tokens, more than {MOST_TOKENS}", hint="Give fewer or smaller files."
        )
    return texts


def read_text(file: Path, flag: str = _FLAG) -> str:
    """A file's text.

    Raises:
        UsageError: it cannot be read, or is no text.
    """
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint=f"Check {flag}.") from None
    except UnicodeDecodeError as error:
        hint = f"{flag} takes text: convert it, or leave it out."
        raise UsageError(f"{file} is not UTF-8 text (byte {error.start})", hint=hint) from None
