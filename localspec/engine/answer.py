"""One answer in the making: its text, its sampler, its statistics and the events it has ready."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from localspec.backends.base import Row, Rows, Target
from localspec.drafters.base import Draft
from localspec.engine.encode import Spelling
from localspec.engine.pace import Pace
from localspec.engine.slots import Slot
from localspec.errors import LocalspecError
from localspec.sampling import SamplerState
from localspec.spec.accept import Acceptance, accept_by_draw, accept_by_ratio
from localspec.spec.tree import TokenTree
from localspec.stats import StatsBook
from localspec.text.stream import TextStream
from localspec.types import (
    Alternative,
    Event,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
    Notice,
    Paced,
    Prefill,
    Standing,
    Started,
    StepStats,
    Timings,
    TokenInfo,
    Tokens,
    TreeTrace,
)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of one step, when it began, and what a token of each of its sequences takes without guesses."""

    began: float
    draft: float
    verify: float
    plain: float | None = None


class Answer:
    """State of one request from admission to its last event."""

    def __init__(
        self,
        number: int,
        request: GenerationRequest,
        prompt: list[int],
        vocab: Spelling,
        events: deque[Event],
        earlier: Sequence[Sequence[int]] = (),
        idle: Collection[str] = (),
    ) -> None:
        self.number = number
        self.request = request
        self.prompt = prompt
        self.earlier = earlier
        self.idle = idle
        self.pace = Pace(request.steps)
        self.cancelled = False
        self.over = False
        self.ids: list[int] = []
        self._vocab = vocab
        self._events = events
        self._infos: list[TokenInfo] = []  # of tokens not yet sent
        self._sent = 0
        self._stats = StatsBook()
        self._submitted = time.perf_counter()
        self._admitted = self._decoding = self._first = self._last = 0.0
        self._reused = self._first_n = 0
        self._waits_since: float | None = None

    # -- admission and prompt

    def admit(self, slot: Slot, reused: int, start: Callable[[], SamplerState], stream: TextStream) -> None:
        """The request has a slot whose cache holds ``reused`` tokens of its text. One that had to make room for others
        goes on where it was."""
        self.slot = slot
        if self._admitted:
            return
        self.state, self._stream = start(), stream
        self._reused = reused
        self._admitted = time.perf_counter()
        waited = self._admitted - self._submitted
        self._events.append(Started(self.number, len(self.prompt), reused, self.state.seed, waited))

    @property
    def text(self) -> list[int]:
        """Prompt and answer so far."""
        return self.prompt + self.ids

    def prompt_read(self, done: int) -> None:
        if not self.ids:
            self._events.append(Prefill(self.number, done, len(self.prompt)))

    def notice(self, standing: Standing) -> None:
        self._events.append(Notice(self.number, standing.text, standing))

    def ready(self, target: Target) -> bool:
        """Whether everything but the pending token is in the cache."""
        return target.n_past(self.slot.seq) >= len(self.slot.tokens) - 1

    @property
    def left(self) -> int | None:
        """Tokens that may still come; ``None``: no limit."""
        return None if self.request.max_tokens < 0 else self.request.max_tokens - len(self.ids)

    # -- steps that are granted

    def say_pace(self) -> None:
        """Tells how many steps it may still make, if that is news."""
        left = self.pace.news()
        if left is not None:
            self._events.append(Paced(self.number, left))
            self._waits_since = None if left else time.perf_counter()

    def go_on(self, now: float) -> None:
        """It waits no longer: its clock goes on from where it stood."""
        if self._waits_since is None:
            return
        stood, self._waits_since = now - self._waits_since, None
        self._submitted += stood
        self._admitted += stood
        self._decoding += stood if self._decoding else 0.0
        self._first += stood if self._first else 0.0
        self._last += stood if self._last else 0.0

    # -- one verify step

    def accept(self, draft: Draft, rows: Rows) -> Acceptance:
        """Walks the verified tree by the request's rule."""

        def advance(state: SamplerState, node: int, token: int) -> SamplerState:
            return state.advance(token, lambda: rows.logits(node))

        if self.request.spec.accept == "draw":
            return accept_by_draw(draft.tree, self.state, lambda state, node: rows.draw(node, state), advance)
        return accept_by_ratio(
            draft.tree,
            self.state,
            lambda state, node: state.residual(rows.logits(node), draft.laws.get(node), node),
            advance,
        )

    def cut(self, outcome: Acceptance) -> int:
        """Takes the tokens that went out up to where the answer ends; returns how many of this step stay (negative
        where a stop string takes earlier ones back)."""
        self._decoding = self._decoding or time.perf_counter()
        before = len(self.ids)
        for token in outcome.tokens:
            cut = self._stream.push(token, self._vocab.piece(token))
            if cut is not None:
                del self.ids[cut.keep :]
                self._end("stop", cut.stop)
                break
            self.ids.append(token)
            if self.left == 0:
                self._end("length")
                break
        kept = len(self.ids) - before
        start = len(self.prompt) + before + min(kept, 0)
        self.slot.tokens[start:] = self.ids[start - len(self.prompt) :]
        return kept

    def report(self, draft: Draft, outcome: Acceptance, rows: Rows, kept: int, times: StepTimes) -> None:
        """Statistics and events of one step; the last thing that reads its rows."""
        self.pace.take()
        tree = draft.tree
        decided_at = (0, *outcome.path)
        for i, token in enumerate(outcome.tokens[: max(kept, 0)]):
            node = outcome.path[i] if i < len(outcome.path) else None
            row = partial(rows.logits, decided_at[i])
            self._infos.append(self._info(token, tree, node, row))
            self.state = self.state.advance(token, row)
        now = time.perf_counter()
        step = StepStats(
            draft_n=tree.draft_n,
            tested=outcome.tested,
            accepted=len(outcome.path),
            emitted=kept,
            cut=len(outcome.tokens) - kept,
            t_draft=times.draft,
            t_verify=times.verify,
            t_host=now - times.began - times.draft - times.verify,
            tree=self._trace(tree, outcome, rows) if self.request.trace else None,
            t_plain=None if times.plain is None else max(kept, 0) * times.plain,
        )
        self._stats.add(step, tree.sources[1:], [tree.sources[node] for node in outcome.path])
        if not self._first:
            self._first, self._first_n = now, kept
        self._last = now
        self._send(step)
        if self.over:
            self._finished()

    def _info(self, token: int, tree: TokenTree, node: int | None, row: Callable[[], Row]) -> TokenInfo:
        """One emitted token; ``node`` is the guess that foresaw it, ``row`` fetches what the target decided it from."""
        piece = self._vocab.piece(token)
        if node is None:
            info = TokenInfo(token, piece)
        else:
            info = TokenInfo(token, piece, tree.sources[node], tree.depths[node], tree.scores[node])
        if self.request.logprobs is None and not self.request.trace:
            return info
        logp = log_softmax(row())
        info = replace(info, target_p=float(np.exp(logp[token])))
        if self.request.logprobs is None:
            return info
        return replace(info, logprob=float(logp[token]), top=self._best(logp, self.request.logprobs))

    def _best(self, logp: NDArray[np.float64], k: int) -> tuple[Alternative, ...]:
        k = min(k, len(logp))
        best = np.argpartition(-logp, k - 1)[:k] if k else np.array([], int)
        best = best[np.lexsort((best, -logp[best]))]
        return tuple(Alternative(int(i), self._vocab.piece(int(i), special=True), float(logp[i])) for i in best)

    def _trace(self, tree: TokenTree, outcome: Acceptance, rows: Rows) -> TreeTrace:
        target_p: list[float | None] = [None] * len(tree)
        for node, children in enumerate(tree.children):
            if children:
                logp = log_softmax(rows.logits(node))
                for token, child in children.items():
                    target_p[child] = float(np.exp(logp[token]))
        pieces = tuple(self._vocab.piece(token, special=True) for token in tree.tokens)
        path = outcome.path
        return TreeTrace(tree.tokens, tree.parents, tree.scores, tree.sources, path, pieces, tuple(target_p))

    def _send(self, step: StepStats | None) -> None:
        text, certain = self._stream.finish() if self.over else self._stream.release()
        n = certain - self._sent
        tokens, self._infos = tuple(self._infos[:n]), self._infos[n:]
        self._sent = certain
        self._events.append(Tokens(self.number, text, tokens, step))

    # -- the end

    def _end(self, reason: FinishReason, stop: str | None = None) -> None:
        self.over, self._reason, self._stop = True, reason, stop

    def stop(self, reason: FinishReason) -> None:
        """Ends the answer between steps: what was held back goes out."""
        self._end(reason)
        if self._admitted:
            self._send(None)
        self._finished()

    def fail(self, error: LocalspecError) -> None:
        self.over = True
        self._events.append(Failed.of(self.number, error))

    def _finished(self) -> None:
        self.go_on(time.perf_counter())
        decoding = self._decoding or time.perf_counter()
        timings = Timings(
            prompt_n=len(self.prompt),
            cache_n=self._reused,
            prompt_s=decoding - (self._admitted or decoding),
            ttft_s=(self._first or decoding) - self._submitted,
            predicted_n=len(self.ids),
            predicted_s=self._last - self._first,
            first_n=self._first_n,
        )
        stats = self._stats.snapshot()
        self._events.append(Finished(self.number, self._reason, tuple(self.ids), self._stop, timings, stats))


def log_softmax(row: Row) -> NDArray[np.float64]:
    """The target's own log-probabilities, before temperature and filters: ``[n_vocab]``."""
    logp = row.astype(np.float64)
    logp -= logp.max()
    logp -= np.log(np.exp(logp).sum())
    return logp
