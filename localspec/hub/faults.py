"""What a hub or a disk refuses, in words: what, why, what to do. Nothing here repeats a token."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.errors import LocalspecError, ModelError, NetworkError
from localspec.hub.sizes import human

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

_TOKEN = "set HF_TOKEN (or --hf-token) to a token"
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Damaged(NetworkError):
    """What arrived is not what the hub lists."""


class TryLater(NetworkError):
    """A fault that may pass. ``wait`` is how many seconds the hub asks for, if it says."""

    def __init__(self, message: str, *, hint: str = "", wait: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.wait = wait

    def final(self) -> NetworkError:
        """The same as an error that ends the command."""
        return NetworkError(self.message, hint=self.hint)


def refusal(error: HfHubHTTPError, repo: str, endpoint: str, *, signed_in: bool) -> LocalspecError:
    """The error for an answer of 400 and above."""
    from huggingface_hub.errors import GatedRepoError

    status = error.response.status_code
    code = error.response.headers.get("X-Error-Code")
    if isinstance(error, GatedRepoError) or code == "GatedRepo":
        then = "wait until access is granted" if signed_in else _TOKEN + " of that account"
        return NetworkError(
            f"{repo} is gated ({status}): its owner asks to accept terms first",
            hint=f"Accept them at {endpoint}/{repo}, then {then}.",
        )
    if status == 429:
        return TryLater(
            f"{endpoint} is asked too often (429)",
            hint=f"Wait a few minutes, or {_TOKEN}: those who sign in may ask more often.",
            wait=_retry_after(error.response),
        )
    if status in (408, 500, 502, 503, 504):
        return TryLater(
            f"{endpoint} cannot answer now ({status})",
            hint="Try again later; --offline uses what is in the cache.",
            wait=_retry_after(error.response),
        )
    if status == 401 and signed_in and code != "RepoNotFound":
        return NetworkError(
            f"{endpoint} does not accept the access token (401)",
            hint=f"Make a new one at {endpoint}/settings/tokens and set HF_TOKEN or --hf-token.",
        )
    if code == "EntryNotFound":
        return ModelError(f"{endpoint} no longer has this file of {repo} (404)", hint="Try again.")
    if status in (401, 404):
        access = "check that the token's account may read it" if signed_in else f"for a private one {_TOKEN}"
        return ModelError(
            f"{repo} is not at {endpoint}, or it is private ({status})", hint=f"Check the name; {access}."
        )
    if status == 403:
        then = "Check what the token may read" if signed_in else f"Ask its owner, then {_TOKEN}"
        return NetworkError(f"{endpoint} refuses access to {repo} (403)", hint=f"{then}.")
    return NetworkError(
        f"{endpoint} answers with status {status} for {repo}", hint="Check HF_ENDPOINT, or try again later."
    )


def _retry_after(response: httpx2.Response) -> float | None:
    """Seconds, from a header that may also be a date."""
    from email.utils import parsedate_to_datetime
    from time import time

    text = response.headers.get("Retry-After", "").strip()
    if text.isdecimal():
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - time(), 0.0)
    except ValueError:
        return None


def unreachable(error: httpx2.TransportError, endpoint: str) -> TryLater:
    """The error for a connection that is not made, or breaks."""
    import httpx2

    hint = "Check the connection, HTTPS_PROXY and HF_ENDPOINT; --offline uses what is in the cache."
    if isinstance(error, httpx2.TimeoutException):
        return TryLater(f"{endpoint} does not answer in time", hint=hint)
    if isinstance(error, httpx2.ConnectError):
        return TryLater(f"{endpoint} cannot be reached ({_reason(error)})", hint=hint)
    return TryLater(f"the connection to {endpoint} broke ({_reason(error)})", hint=hint)


def _reason(error: Exception) -> str:
    return str(error).strip() or type(error).__name__


def disk(error: OSError, folder: Path, kept: int) -> LocalspecError:
    """The error for a file that cannot be written into the cache; ``kept`` bytes of it stay."""
    if error.errno in _FULL:
        part = f" The {human(kept)} that arrived are kept, and the next try goes on from there." if kept else ""
        return full(f"the disk of {folder} is full", part)
    return LocalspecError(
        f"the cache {folder} cannot be written: {error.strerror or error}",
        hint="Check its permissions, or set HF_HUB_CACHE to a folder of yours.",
    )


def full(message: str, more: str = "") -> LocalspecError:
    return LocalspecError(message, hint=f"Free some space, or set HF_HUB_CACHE to a folder on a larger disk.{more}")


def no_such_file(wanted: str, where: str, found: list[str]) -> ModelError:
    """The error for a file or a quantisation that a repository has not; ``found`` is what it has."""
    if not found:
        return ModelError(f"{where} holds no GGUF model", hint="Look for a repository with GGUF in its name.")
    shown = ", ".join(found[:12]) + (f" and {len(found) - 12} more" if len(found) > 12 else "")
    return ModelError(f"{where} has no {wanted}", hint=f"It has {shown}.")
