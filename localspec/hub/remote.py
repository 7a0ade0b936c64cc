"""The hub over HTTP: what a repository holds, and the bytes of a file. huggingface_hub does the talking."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from localspec.errors import NetworkError, UsageError
from localspec.hub.faults import Damaged, TryLater, refusal, unreachable
from localspec.hub.ref import is_safe
from localspec.hub.watch import Watcher

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

#: Seconds for an answer, where there is another way; tries of a short question.
_HURRY, _TRIES = 4.0, 3
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ETAG = re.compile(r"[\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait: tries without progress, seconds before the second (doubled each time), the longest that a hub
    may ask for, seconds for a connection and for a reply (``None``: huggingface_hub's)."""

    tries: int = 5
    first_wait: float = 1.0
    longest_wait: float = 60.0
    timeout: float | None = None
    sleep: Callable[[float], None] = field(default=time.sleep, compare=False)

    def wait(self, fault: TryLater, failures: int, watcher: Watcher) -> None:
        """Waits before the next try.

        Raises:
            NetworkError: ``fault``, if enough was tried or the hub asks for too long a time.
        """
        seconds = self.first_wait * 2 ** (failures - 1) if fault.wait is None else fault.wait
        if seconds > self.longest_wait and fault.wait is not None:
            raise NetworkError(f"{fault.message}; it asks to wait {seconds:.0f} s", hint=fault.hint)
        if failures >= self.tries:
            raise fault.final()
        if fault.wait is not None or failures > 1:
            watcher.note(f"{fault.message}; trying again in {seconds:.0f} s")
        self.sleep(min(seconds, self.longest_wait))


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository. ``etag`` is the SHA-256 of its content (64 digits) or git's SHA-1 (40)."""

    name: str
    size: int | None
    etag: str


@dataclass(frozen=True, slots=True)
class Listing:
    """What a repository holds at one commit: name → (bytes, etag), each ``None`` where the hub does not say."""

    commit: str
    files: Mapping[str, tuple[int | None, str | None]]


def endpoint(environ: Mapping[str, str] | None = None) -> str:
    """Address of the hub without a final slash, from llama.cpp's variable or Hugging Face's."""
    environ = os.environ if environ is None else environ
    return (environ.get("MODEL_ENDPOINT") or environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


class Hub:
    """One hub, with or without a token.

    Args:
        token: ``None`` takes what huggingface_hub finds (HF_TOKEN, or the file a login left).

    Raises:
        UsageError: an address or a token that cannot be one.
    """

    def __init__(self, token: str | None, patience: Patience, watcher: Watcher) -> None:
        from huggingface_hub import constants, get_token

        self.endpoint = endpoint()
        if not re.match(r"https?://[^/\s]+", self.endpoint):
            raise UsageError(f"HF_ENDPOINT {self.endpoint} is not an address", hint="It starts with https://.")
        self._token = (get_token() if token is None else token.strip()) or None
        if self._token is not None and not re.fullmatch(r"[!-~]+", self._token):
            raise UsageError("the access token has characters that no token has", hint="Copy it again.")
        self.patience = patience
        self._watcher = watcher
        self._timeout = float(constants.HF_HUB_DOWNLOAD_TIMEOUT) if patience.timeout is None else patience.timeout

    def listing(self, repo: str, *, hurry: bool = False) -> Listing:
        """What ``repo`` holds now; in a ``hurry`` (there is a copy of what is wanted) the first fault is enough.

        Raises:
            ModelError: no such repository.
            NetworkError: the hub does not answer, or refuses.
        """
        from huggingface_hub import HfApi

        api = HfApi(endpoint=self.endpoint, token=self._token or False)
        timeout = min(self._timeout, _HURRY) if hurry else self._timeout

        def ask() -> Listing:
            with self._faults(repo):
                info = api.model_info(repo, timeout=timeout, files_metadata=True)
            if info.sha is None or not _COMMIT.fullmatch(info.sha):
                raise Damaged(f"{self.endpoint} names no commit of {repo}", hint="Check HF_ENDPOINT.")
            return Listing(
                info.sha,
                {
                    file.rfilename: (file.size, file.lfs.sha256 if file.lfs is not None else file.blob_id)
                    for file in info.siblings or ()
                    if is_safe(file.rfilename)
                },
            )

        return self._patiently(ask, 1 if hurry else self._few)

    def describe(self, repo: str, listing: Listing, name: str) -> RemoteFile:
        """Size and checksum of a file; the hub is asked only where the listing does not say (a mirror's may not).

        Raises:
            ModelError, NetworkError: as `listing`.
        """
        size, etag = listing.files[name]
        if etag is None or size is None:
            from huggingface_hub import get_hf_file_metadata

            def ask() -> tuple[int | None, str | None]:
                with self._faults(repo):
                    answer = get_hf_file_metadata(
                        self.url(repo, listing.commit, name),
                        token=self._token or False,
                        timeout=self._timeout,
                        endpoint=self.endpoint,
                    )
                return answer.size, answer.etag

            size, etag = self._patiently(ask, self._few)
        if etag is None or not _ETAG.fullmatch(etag):
            raise Damaged(f"{self.endpoint} gives no checksum of {name}", hint="Check HF_ENDPOINT.")
        return RemoteFile(name, size, etag)

    def url(self, repo: str, commit: str, name: str) -> str:
        from huggingface_hub import hf_hub_url

        return hf_hub_url(repo, name, revision=commit, endpoint=self.endpoint)

    @contextmanager
    def stream(self, repo: str, url: str, start: int) -> Iterator[httpx2.Response]:
        """The bytes of a file from ``start`` on; the server may ignore that and answer 200. 416 is not raised.

        Redirects lead to other hosts; the token does not go there.

        Raises:
            TryLater: a fault that may pass, also while the caller reads.
            ModelError, NetworkError: what stays.
        """
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

        headers = build_hf_headers(token=self._token or False)
        headers["Accept-Encoding"] = "identity"
        if start:
            headers["Range"] = f"bytes={start}-"
        with (
            self._faults(repo),
            get_session().stream("GET", url, headers=headers, timeout=self._timeout, follow_redirects=True) as response,
        ):
            if response.status_code != 416:
                hf_raise_for_status(response)
            yield response

    @property
    def _few(self) -> int:
        """Tries for a question: somebody waits for it, and nothing is lost."""
        return min(self.patience.tries, _TRIES)

    def _patiently(self, ask: Callable[[], T], tries: int) -> T:
        failures = 0
        while True:
            try:
                return ask()
            except TryLater as fault:
                failures += 1
                if failures >= tries:
                    raise fault.final() from None
                self.patience.wait(fault, failures, self._watcher)

    @contextmanager
    def _faults(self, repo: str) -> Iterator[None]:
        import httpx2
        from huggingface_hub.errors import HfHubHTTPError

        try:
            yield
        except HfHubHTTPError as error:
            raise refusal(error, repo, self.endpoint, signed_in=self._token is not None) from None
        except httpx2.TransportError as error:
            raise unreachable(error, self.endpoint) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, KeyError, TypeError, ValueError) as error:
            raise Damaged(
                f"{self.endpoint} does not answer as a hub does ({type(error).__name__})", hint="Check HF_ENDPOINT."
            ) from None
