"""The engine: many sequences, one loop of verify steps."""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from localspec.backends.base import Rows, Target, Work
from localspec.chat import ChatTemplate
from localspec.control.price import FixedController, Limits, Price
from localspec.control.threads import ThreadTuner
from localspec.drafters.base import Ask, Draft, Drafter
from localspec.engine.answer import Answer, StepTimes
from localspec.engine.encode import encode, text_stream
from localspec.engine.handle import Handle
from localspec.engine.panel import Panel
from localspec.engine.slots import Slots
from localspec.errors import Cancelled, EngineError, LocalspecError, OutOfMemory, UsageError
from localspec.sampling import SamplerState, check
from localspec.spec.tree import TokenTree
from localspec.types import EngineInfo, Event, GenerationRequest

log = logging.getLogger(__name__)


class Engine:
    """Answers requests with a target and whatever guesses ahead for it.

    Not thread-safe: one owner submits, iterates and closes; only `Handle.cancel` may come from elsewhere. A context
    manager: leaving it frees the models.

    Args:
        target: the model whose text it is.
        drafters: sources of guesses, in order of preference; none for plain decoding.
        template: the model's chat template, for requests with messages.
        info: what front ends show of it.
        threads: picks the thread count of every pass; ``None`` leaves it alone.
        prompt_chunk: prompt tokens read in one pass.
    """

    def __init__(
        self,
        target: Target,
        drafters: Sequence[Drafter] = (),
        *,
        template: ChatTemplate | None = None,
        info: EngineInfo | None = None,
        controller: FixedController | None = None,
        threads: ThreadTuner | None = None,
        prompt_chunk: int = 256,
    ) -> None:
        self.target = target
        self._panel = Panel(drafters)
        self._slots = Slots(target, self._panel)
        self._template = template
        self.info = info or self._bare_info()
        self._controller = controller or FixedController()
        self._threads = threads
        self._prompt_chunk = min(prompt_chunk, target.caps.max_rows)
        self._waiting: deque[Answer] = deque()
        self._running: list[Answer] = []
        self._count = 0

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees drafters, then the target (heads live in its context)."""
        self._panel.close_all()
        self.target.close_all()

    def _bare_info(self) -> EngineInfo:
        caps = self.target.caps
        return EngineInfo(
            target=type(self.target).__name__,
            draft=None,
            drafters=self._panel.names,
            backend="",
            n_ctx=caps.n_ctx,
            n_ctx_train=caps.n_ctx_train,
            n_vocab=caps.n_vocab,
            has_template=self._template is not None,
        )

    def encode(self, request: GenerationRequest) -> list[int]:
        """The prompt as tokens.

        Raises:
            UsageError: it is empty, or longer than the context.
            ModelError: the chat template refuses it.
        """
        return encode(request, self.target.vocab, self._template, self.target.caps.n_ctx)

    def submit(self, request: GenerationRequest) -> Handle:
        """Queues a request.

        Raises:
            UsageError: options or prompt that cannot be honoured; nothing was queued.
            ModelError: the chat template refuses the messages.
        """
        check(request.sampling, n_vocab=self.target.caps.n_vocab)
        self._check_types(request)
        prompt = self.encode(request)
        events: deque[Event] = deque()
        self._count += 1
        answer = Answer(self._count, request, prompt, self.target.vocab, events)
        self._waiting.append(answer)
        return Handle(answer.number, events, self.step, lambda: self._cancel(answer))

    def _check_types(self, request: GenerationRequest) -> None:
        unknown = [name for name in request.spec.types or () if name not in self._panel.names and name != "none"]
        if unknown:
            loaded = ", ".join(self._panel.names) or "none"
            raise UsageError(f"drafter {unknown[0]} is not loaded (loaded: {loaded})", hint="Load it with --spec-type.")

    def _cancel(self, answer: Answer) -> None:
        if not answer.over:
            answer.cancelled = True
            self._interrupt(True)

    def _interrupt(self, on: bool) -> None:
        self.target.interrupt(on)
        self._panel.interrupt(on)

    # -- the loop

    def step(self) -> None:
        """One round: cancelled requests leave, waiting ones come in, prompts are read a piece further, and every
        sequence that has its prompt verifies one tree."""
        self._interrupt(False)  # before the flags are read: a cancellation that comes later interrupts again
        self._drop_cancelled()
        self._admit()
        try:
            self._read_prompts()
            ready = self._with_room([one for one in self._running if not one.over and one.ready(self.target)])
            if ready:
                self._decode(ready)
        except Cancelled:  # the next round finds out who
            for answer in self._running:
                if not answer.over:
                    self._slots.cut(answer.slot, len(answer.slot.tokens))
        except BaseException:
            self._abort()
            raise
        finally:
            self._running = [answer for answer in self._running if not answer.over]

    def _decode(self, answers: list[Answer]) -> None:
        """The seven words of the design page, in order."""
        began = time.perf_counter()
        prices = self._plan(answers)
        drafts = self._propose(answers, prices)
        drafted = time.perf_counter()
        rows: list[Rows] = []
        with self._guarded(*answers):
            drafts, rows = self._verify(answers, drafts)
        times = StepTimes(began, drafted - began, time.perf_counter() - drafted)
        for answer, draft, mine in zip(answers, drafts, rows, strict=False):  # no rows: all have failed
            with self._guarded(answer):
                outcome = answer.accept(draft, mine)
                kept = answer.cut(outcome)
                self._commit(answer, draft.tree, outcome.path[: max(kept, 0)], mine)
                answer.report(draft, outcome, mine, kept, times)

    # -- plan

    def _plan(self, answers: list[Answer]) -> list[Price]:
        room = [self._room(answer, sharers=len(answers)) for answer in answers]
        return self._controller.plan([answer.request.spec for answer in answers], room)

    def _room(self, answer: Answer, sharers: int) -> Limits:
        """What batch, sequence ids, context and token limit leave for guesses."""
        caps = self.target.caps
        if caps.rollback is not None:
            return Limits(depth=0, nodes=0)
        cells = (caps.n_ctx - self._slots.cells_used) // sharers
        nodes = min(caps.max_outputs // sharers - 1, cells)
        wide = caps.trees and answer.request.spec.width > 1
        if wide:
            # Every open sequence holds a branch, whether it is in this pass or not.
            nodes = min(nodes, 1 + max(caps.max_leaves - caps.max_sequences, 0) // sharers)
        depth = nodes if answer.left is None else min(answer.left - 1, nodes)
        return Limits(depth, nodes, width=nodes if wide else 1)

    # -- propose

    def _propose(self, answers: list[Answer], prices: list[Price]) -> list[Draft]:
        asks = [
            Ask(answer.slot.seq, answer.slot.tokens, price, answer.state, answer.request.spec.accept)
            for answer, price in zip(answers, prices, strict=True)
        ]
        drafts = self._panel.propose(asks, [answer.request.spec.types for answer in answers])
        self._pass_on_notices()
        return [
            _usable(draft, answer.request.spec.min_depth, self.target.vocab.end_tokens)
            for draft, answer in zip(drafts, answers, strict=True)
        ]

    def _pass_on_notices(self) -> None:
        owners = {answer.slot.seq: answer for answer in self._running}
        for seq, text in self._panel.notices():
            if seq in owners:  # an answer may have left while its notice waited
                owners[seq].notice(text)

    # -- verify

    def _verify(self, answers: list[Answer], drafts: list[Draft]) -> tuple[list[Draft], list[Rows]]:
        """One pass over all trees; where the cache has no room for them, over the pending tokens alone."""
        try:
            return drafts, self._forward(answers, drafts)
        except OutOfMemory:
            plain = [Draft(TokenTree.root(draft.tree.tokens[0])) for draft in drafts]
            return plain, self._forward(answers, plain)

    def _forward(self, answers: list[Answer], drafts: list[Draft]) -> list[Rows]:
        needs = self._panel.needs
        work = [Work(a.slot.seq, draft.tree, features=needs) for a, draft in zip(answers, drafts, strict=True)]
        wall, cpu = time.perf_counter(), time.process_time()
        rows = self.target.forward(work)
        self._tune_threads(work, time.perf_counter() - wall, time.process_time() - cpu)
        return rows

    def _tune_threads(self, work: list[Work], wall: float, cpu: float) -> None:
        if self._threads is None:
            return
        before = self._threads.threads
        now = self._threads.observe(sum(len(item.tree) for item in work), wall, cpu)
        if now != before:
            self.target.set_threads(now)
            self._panel.set_threads(now)

    # -- commit

    def _commit(self, answer: Answer, tree: TokenTree, path: Sequence[int], rows: Rows) -> None:
        """Target and drafters keep what survived the cut and nothing else."""
        seq = answer.slot.seq
        self.target.commit(seq, (0, *path))
        self._panel.observe(seq, tree, path, rows)
        if answer.over:
            self._slots.release(answer.slot)

    # -- requests come and go

    def _admit(self) -> None:
        while self._waiting:
            answer = self._waiting[0]
            slot = self._slots.take(answer.prompt) if self._slots.fits(answer.prompt) else None
            if slot is None:  # others run; there is room when they are done
                return
            self._slots.make_room()
            self._waiting.popleft()
            self._running.append(answer)
            params = answer.request.sampling
            state = SamplerState.start(
                params,
                seed=secrets.randbits(32) if params.seed is None else params.seed,
                prompt=answer.prompt,
                end_tokens=self.target.vocab.end_tokens,
                n_ctx=self.target.caps.n_ctx,
            )
            answer.admit(slot, self.target.n_past(slot.seq), state, text_stream(answer.request, self.target.vocab))
            if answer.left == 0:
                answer.stop("length")
                self._slots.release(slot)

    def _drop_cancelled(self) -> None:
        for answer in [answer for answer in self._waiting if answer.cancelled]:
            self._waiting.remove(answer)
            answer.abandon()
        for answer in self._running:
            if answer.cancelled:
                answer.stop("cancelled")
                self._slots.release(answer.slot)
        self._running = [answer for answer in self._running if not answer.over]

    def _read_prompts(self) -> None:
        """Reads a piece of every text that is not yet in the cache, in one pass."""
        reading = [answer for answer in self._running if not answer.over and not answer.ready(self.target)]
        if not reading:
            return
        share = max(self._prompt_chunk // len(reading), 1)
        needs = self._panel.needs
        work = []
        for answer in reading:
            read, tokens = self.target.n_past(answer.slot.seq), answer.slot.tokens
            work.append(Work.prompt(answer.slot.seq, tokens[read : min(read + share, len(tokens) - 1)], needs))
        with self._guarded(*reading):
            for answer, item, rows in zip(reading, work, self.target.forward(work), strict=True):
                self.target.commit(item.seq, range(len(item.tree)))
                self._panel.prefill(item.seq, item.tree.tokens, rows.features)
                answer.prompt_read(self.target.n_past(item.seq))

    def _with_room(self, answers: list[Answer]) -> list[Answer]:
        """Those with a cell left for their pending token; the last to come end here."""
        while answers and not self._slots.make_room():
            *answers, last = answers
            last.stop("length")
            self._slots.release(last.slot)
        return answers

    def _abort(self) -> None:
        """Something came up in the middle of a round: no cache can be trusted."""
        for answer in self._running:
            if not answer.over:
                answer.fail(EngineError("the engine was stopped in the middle of a step"))
                self._slots.drop(answer.slot)

    @contextmanager
    def _guarded(self, *answers: Answer) -> Iterator[None]:
        """An error ends these answers and no others; their state is in doubt, so their slots go with them."""
        try:
            yield
        except Cancelled:
            raise
        except LocalspecError as error:
            log.warning("%s", error)
            for answer in answers:
                answer.fail(error)
                self._slots.drop(answer.slot)


def _usable(draft: Draft, min_depth: int, end_tokens: frozenset[int]) -> Draft:
    """The draft without guesses behind an end token, and none at all if it is shorter than asked for.

    Drawn guesses are never dropped for being short: what becomes of a draft may not depend on what was drawn.
    """
    tree = draft.tree
    buried: set[int] = set()
    for node in range(1, len(tree)):
        parent = tree.parents[node]
        if parent in buried or (parent and tree.tokens[parent] in end_tokens):
            buried.add(node)
    if buried:
        draft = draft.keep(node for node in range(len(tree)) if node not in buried)
    if not draft.laws and draft.tree.draft_n and max(draft.tree.depths) < min_depth:
        return Draft(TokenTree.root(tree.tokens[0]))
    return draft
