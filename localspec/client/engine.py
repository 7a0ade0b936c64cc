"""`RemoteEngine`: the surface of `localspec.host.HostedEngine`, the work at a server."""

from __future__ import annotations

import itertools
import secrets
import time
from queue import SimpleQueue
from threading import Thread
from types import TracebackType

from localspec.client.asking import asked
from localspec.client.counting import Counter
from localspec.client.course import Course
from localspec.client.facts import facts
from localspec.client.handle import RemoteHandle
from localspec.client.site import Site
from localspec.text.thinking import KNOWN_TAGS, named_tags
from localspec.types import EngineInfo, GenerationRequest


class RemoteEngine:
    """An engine behind a URL. Any thread may submit, encode and cancel.

    A request whose seed is left to chance gets one here, so that it can be told.

    Args:
        url: of a server that speaks OpenAI's protocol, with or without ``/v1``.
        model: the one to ask for; default: the first that the server lists.
        n_ctx: the context, for servers that do not tell; 0: not known.

    Raises:
        UsageError: the URL is none, or the server does not have that model.
        NetworkError: the server does not answer as such a server does.
    """

    def __init__(self, url: str, *, model: str | None = None, api_key: str | None = None, n_ctx: int = 0) -> None:
        self._site = Site(url, api_key)
        self._model = model
        self._n_ctx = n_ctx
        try:
            self.restart()
        except BaseException:
            self._site.close()
            raise
        self._numbers = itertools.count(1)
        self._cancelled: SimpleQueue[RemoteHandle | None] = SimpleQueue()
        Thread(target=self._hang_up, name="answers-cut", daemon=True).start()

    def __enter__(self) -> RemoteEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def memory(self) -> int | None:
        """What the server holds is not known here."""
        return None

    def submit(self, request: GenerationRequest) -> RemoteHandle:
        """Asks.

        Raises:
            UsageError: the server does not know what is asked for; it was not asked.
        """
        seed = request.sampling.seed
        asking = asked(request, self._facts, secrets.randbits(32) if seed is None else seed)
        named = named_tags(self._facts.template)
        tags = None if request.messages is None else (*named, *KNOWN_TAGS)[0]
        number = next(self._numbers)
        course = Course(number, tags, named=bool(named), began=time.perf_counter())
        counts = self._facts.dialect.counters
        return RemoteHandle(number, self._site, asking, course, counts=counts, cancelled=self._cancelled.put)

    def encode(self, request: GenerationRequest) -> list[int]:
        """The prompt as tokens; where the server tells none, as many as there may be.

        Raises:
            ModelError: the chat template refuses the messages.
            NetworkError: the server is gone.
        """
        return self._counter.tokens(request)

    def restart(self) -> None:
        """Asks the server anew what it is; raises as the constructor."""
        self._facts = facts(self._site, self._model)
        self._counter = Counter(self._site, self._facts)
        self.info: EngineInfo = self._facts.info(self._site.url, n_ctx=self._n_ctx, counts=self._counter.works)

    def close(self) -> None:
        """No more answers; may be called again."""
        self._cancelled.put(None)
        self._site.close()

    def _hang_up(self) -> None:
        """In a thread of its own: ends answers that are not wanted, since who cancels may be a signal handler."""
        while (handle := self._cancelled.get()) is not None:
            handle.end()
