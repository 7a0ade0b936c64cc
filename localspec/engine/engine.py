"""The engine: many sequences, one loop of verify steps."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

from localspec.backends.base import Rows, Target, Work
from localspec.backends.memory import resident_bytes
from localspec.chat import ChatTemplate
from localspec.control import Controller, FixedController, Limits, PassRecord, Price, Walk, Wish
from localspec.drafters import forced
from localspec.drafters.base import Ask, Draft, Drafter
from localspec.engine.answer import Answer, StepTimes
from localspec.engine.encode import Spelling, check_length, earlier_texts, encode, text_stream
from localspec.engine.guard import Guard
from localspec.engine.handle import Handle
from localspec.engine.info import bare_info
from localspec.engine.panel import Panel, idle_sources
from localspec.engine.samplers import Samplers
from localspec.engine.slots import Slots
from localspec.errors import Cancelled, EngineError, OutOfMemory, UsageError
from localspec.spec.tree import TokenTree
from localspec.types import EngineInfo, Event, GenerationRequest


@dataclass(frozen=True, slots=True)
class _Pass:
    """A verify pass: what was verified, its rows, and the seconds it took."""

    drafts: list[Draft]
    rows: list[Rows]
    wall_s: float
    cpu_s: float

    @property
    def n_rows(self) -> int:
        return sum(len(draft.tree) for draft in self.drafts)


class Engine:
    """Answers requests with a target and whatever guesses ahead for it.

    Not thread-safe: one owner submits, iterates and closes; only `Handle.cancel` and `Handle.grant` may come from
    elsewhere. A context manager: leaving it frees the models.

    Args:
        target: the model whose text it is.
        drafters: sources of guesses, in order of preference; none for plain decoding. Where there are any, what a
            grammar forces is guessed too.
        template: the model's chat template, for requests with messages.
        info: what front ends show of it.
        controller: decides how much is guessed; by default all that a request allows.
        prompt_chunk: prompt tokens read in one pass.
    """

    def __init__(
        self,
        target: Target,
        drafters: Sequence[Drafter] = (),
        *,
        template: ChatTemplate | None = None,
        info: EngineInfo | None = None,
        controller: Controller | None = None,
        prompt_chunk: int = 256,
    ) -> None:
        self.target = target
        self._panel = Panel([*drafters, forced.Forced(target.vocab)] if drafters else ())
        self._check_needs()
        self._costly = self._panel.costly
        self._slots = Slots(target, self._panel)
        self._samplers = Samplers(target.vocab, target.caps.n_ctx)
        self._template = template
        self.info = info or bare_info(target, drafters, template)
        #: Decides how much is guessed; may be another one between answers.
        self.controller: Controller = controller or FixedController()
        self._threads: int | None = None
        self._prompt_chunk = min(prompt_chunk, target.caps.max_rows)
        self._waiting: deque[Answer] = deque()
        self._running: list[Answer] = []
        self._interrupted = False
        self._woken: SimpleQueue[None] = SimpleQueue()  # of C: an interrupt finds it taken or free
        self._count = 0

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees drafters, then the target (heads live in its context)."""
        self._panel.close_all()
        self.target.close_all()

    def _check_needs(self) -> None:
        missing = set(self._panel.needs) - self.target.caps.feature_layers
        if missing:
            raise UsageError(
                f"a drafter reads hidden states of layer {min(missing)}, which this target does not give",
                hint="Use another drafter (--spec-type) or another target.",
            )

    @property
    def memory(self) -> int | None:
        """Bytes that this process holds; ``None``: not known here."""
        return resident_bytes(os.getpid())

    def encode(self, request: GenerationRequest) -> list[int]:
        """The prompt as tokens, of any length.

        Raises:
            UsageError: it is empty.
            ModelError: the chat template refuses it.
        """
        return encode(request, self.target.vocab, self._template)

    def submit(self, request: GenerationRequest) -> Handle:
        """Queues a request.

        Raises:
            UsageError: options or prompt that cannot be honoured; nothing was queued.
            ModelError: the chat template refuses the messages.
        """
        self._samplers.check(request.sampling)
        self._check_types(request)
        if self.info.exact is not None and request.spec.accept == "ratio":
            raise UsageError("--exact gives the target's own text, the rule ratio another", hint="Use the rule draw.")
        prompt = check_length(self.encode(request), self.target.caps.n_ctx)
        events: deque[Event] = deque()
        self._count += 1
        spelling = Spelling(request, self.target.vocab, self._template)
        earlier = earlier_texts(request, prompt, self.target.vocab, self.target.caps.n_ctx)
        answer = Answer(self._count, request, prompt, spelling, events, earlier, idle_sources(request, earlier))
        self._waiting.append(answer)
        return Handle(
            answer.number, events, self._pump, lambda: self._cancel(answer), lambda steps: self._grant(answer, steps)
        )

    def forget(self) -> None:
        """Drops conversations that no answer runs in: the next prompt is read from its start."""
        self._slots.forget()

    def _check_types(self, request: GenerationRequest) -> None:
        unknown = [name for name in request.spec.types or () if name not in (*self._panel.types, "none")]
        if unknown:
            loaded = ", ".join(self._panel.types) or "none"
            raise UsageError(f"drafter {unknown[0]} is not loaded (loaded: {loaded})", hint="Load it with --spec-type.")

    def _cancel(self, answer: Answer) -> None:
        """From any thread, hence the order: whoever sees the last line has seen the others."""
        if not answer.over:
            answer.cancelled = True
            self._interrupt(True)
            self._interrupted = True
            self._wake()

    def _grant(self, answer: Answer, steps: int | None) -> None:
        """From any thread."""
        answer.pace.grant(steps)
        self._wake()

    def _wake(self) -> None:
        if self._woken.empty():
            self._woken.put(None)

    def _interrupt(self, on: bool) -> None:
        self.target.interrupt(on)
        self._panel.interrupt(on)

    # -- the loop

    @property
    def idle(self) -> bool:
        """Whether a round would do nothing: there is no request, or all of them wait for steps to be granted."""
        return not self._interrupted and all(one.pace.waits for one in (*self._running, *self._waiting))

    def _pump(self) -> None:
        """A round, when there is something to do."""
        if self.idle:
            self._woken.get()
        self.step()

    def step(self) -> None:
        """One round: cancelled requests leave, waiting ones come in, prompts are read a piece further, and every
        sequence that has its prompt, and a step to make, verifies one tree."""
        if self._interrupted:
            self._drop_cancelled()
        self._admit()
        try:
            reading = [one for one in self._running if not (one.over or one.ready(self.target))]
            if reading:
                self._read_prompts(reading)
            ready = [one for one in self._running if not one.over and one.ready(self.target)]
            if going := self._with_room([one for one in ready if one.pace.left != 0]):
                self._decode(going)
            for answer in ready:
                if not answer.over:
                    answer.say_pace()
        except Cancelled:  # the next round finds out who
            self._interrupted = True
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
        for answer in answers:
            answer.go_on(began)
        wishes = [self._wish(answer, sharers=len(answers)) for answer in answers]
        prices = self.controller.plan(wishes)
        proposals, draft_s = self._propose(answers, prices)
        drafts = self._choose(answers, wishes, proposals)
        drafted = time.perf_counter()
        with self._guarded(*answers):
            done = self._verify(answers, drafts)
            token_s = self.controller.plain_s
            plain = None if token_s is None else token_s * len(answers)
            times = StepTimes(began, drafted - began, time.perf_counter() - drafted, plain)
            walks = []
            for answer, mine, draft, rows in zip(answers, proposals, done.drafts, done.rows, strict=True):
                with self._guarded(answer):
                    outcome = answer.accept(draft, rows)
                    kept = answer.cut(outcome)
                    self._commit(answer, draft.tree, outcome.path[: max(kept, 0)], rows)
                    answer.report(draft, outcome, rows, kept, times)
                    trees = {name: draft.tree for name, draft in mine.items()}
                    walks.append(Walk(answer.slot.seq, trees, draft.tree, outcome.tokens))
            step_s = time.perf_counter() - began
            record = PassRecord(done.n_rows, self._slots.cells_used, done.wall_s, done.cpu_s, draft_s, step_s)
            self.controller.observe(record, walks)
            self._set_threads()
        self._pass_on_notices()

    # -- plan

    def _wish(self, answer: Answer, sharers: int) -> Wish:
        seq, spec = answer.slot.seq, answer.request.spec
        n_past = self.target.n_past(seq)
        lags = self._panel.lags(seq, n_past, spec.types, answer.idle)
        return Wish(seq, spec, self._room(answer, sharers), n_past, lags, self._costly, answer.left)

    def _room(self, answer: Answer, sharers: int) -> Limits:
        """What batch, sequence ids, context and token limit leave for guesses."""
        caps = self.target.caps
        if caps.rollback is not None:
            return Limits(depth=0, nodes=0)
        cells = (caps.n_ctx - self._slots.cells_used) // sharers
        nodes = min(caps.max_outputs // sharers - 1, cells)
        depth = nodes if answer.left is None else min(answer.left - 1, nodes)
        if not caps.trees:
            return Limits(depth, nodes, leaves=1)
        # Every open sequence holds a branch, whether it is in this pass or not.
        leaves = 1 + max(caps.max_leaves - caps.max_sequences, 0) // sharers
        return Limits(depth, nodes, width=nodes, leaves=leaves)

    # -- propose

    def _propose(
        self, answers: list[Answer], prices: list[Mapping[str, Price]]
    ) -> tuple[list[dict[str, Draft]], dict[str, float]]:
        if not any(prices):
            return [{} for _ in answers], {}
        asks = [
            {
                name: Ask(
                    answer.slot.seq, answer.slot.tokens, price, answer.state, answer.request.spec.accept, answer.earlier
                )
                for name, price in mine.items()
            }
            for answer, mine in zip(answers, prices, strict=True)
        ]
        return self._panel.propose(asks)

    def _choose(self, answers: list[Answer], wishes: list[Wish], proposals: list[dict[str, Draft]]) -> list[Draft]:
        """One draft a sequence: what the controller makes of the proposals. Drawn guesses stay as they were drawn."""
        chosen: dict[int, Draft] = {}
        free = []
        for i, mine in enumerate(proposals):
            if mine and wishes[i].spec.accept == "ratio":
                (chosen[i],) = mine.values()
            elif mine:
                free.append(i)
        if free:
            trees = [{name: draft.tree for name, draft in proposals[i].items()} for i in free]
            best = self.controller.choose([wishes[i] for i in free], trees)
            chosen.update((i, Draft(tree)) for i, tree in zip(free, best, strict=True))
        ends = self.target.vocab.end_tokens
        return [
            chosen[i].usable(wishes[i].spec.min_depth, ends)
            if i in chosen
            else Draft(TokenTree.root(answer.slot.tokens[-1]))
            for i, answer in enumerate(answers)
        ]

    def _pass_on_notices(self) -> None:
        notices = self._panel.notices() + self.controller.notices()
        owners = {answer.slot.seq: answer for answer in self._running if not answer.over} if notices else {}
        for seq, standing in notices:
            if seq in owners:  # nothing comes after an answer's end
                owners[seq].notice(standing)

    # -- verify

    def _verify(self, answers: list[Answer], drafts: list[Draft]) -> _Pass:
        """One pass over all trees; where the cache has no room for them, over the pending tokens alone."""
        try:
            return self._forward(answers, drafts)
        except OutOfMemory:
            return self._forward(answers, [Draft(TokenTree.root(draft.tree.tokens[0])) for draft in drafts])

    def _forward(self, answers: list[Answer], drafts: list[Draft]) -> _Pass:
        needs = self._panel.needs
        work = [Work(a.slot.seq, draft.tree, features=needs) for a, draft in zip(answers, drafts, strict=True)]
        wall, cpu = time.perf_counter(), time.process_time()
        rows = self.target.forward(work)
        return _Pass(drafts, rows, time.perf_counter() - wall, time.process_time() - cpu)

    def _set_threads(self) -> None:
        threads = self.controller.threads
        if threads is not None and threads != self._threads:
            self._threads = threads
            self.target.set_threads(threads)
            self._panel.set_threads(threads)

    # -- commit

    def _commit(self, answer: Answer, tree: TokenTree, path: Sequence[int], rows: Rows) -> None:
        """Target and drafters keep what survived the cut and nothing else."""
        seq = answer.slot.seq
        start = self.target.n_past(seq)
        self.target.commit(seq, (0, *path))
        self._panel.observe(seq, start, tree, path, rows)
        if answer.over:
            self._slots.release(answer.slot)

    # -- requests come and go

    def _admit(self) -> None:
        while (answer := next((one for one in self._waiting if not one.pace.waits), None)) is not None:
            slot = self._slots.take(answer.text) if self._slots.fits(answer.text) else None
            if slot is None and self._one_steps_aside():
                continue
            if slot is None:  # others run; there is room when they are done
                return
            self._slots.make_room()
            self._waiting.remove(answer)
            self._running.append(answer)
            stream = text_stream(answer.request, self.target.vocab, self._template)
            answer.admit(
                slot,
                self.target.n_past(slot.seq),
                partial(self._samplers.start, answer.request.sampling, answer.prompt),
                stream,
            )
            if answer.left == 0:
                answer.stop("length")
                self._slots.release(slot)

    def _drop_cancelled(self) -> None:
        # Before the answers are looked at: a cancellation that comes later interrupts again.
        self._interrupted = False
        self._interrupt(False)
        for answer in [answer for answer in self._waiting if answer.cancelled]:
            self._waiting.remove(answer)
            answer.stop("cancelled")
        for answer in self._running:
            if answer.cancelled:
                answer.stop("cancelled")
                self._slots.release(answer.slot)
        self._running = [answer for answer in self._running if not answer.over]

    def _read_prompts(self, reading: list[Answer]) -> None:
        """Reads a piece of every text that is not yet in the cache, in one pass."""
        share = max(self._prompt_chunk // len(reading), 1)
        needs = self._panel.needs
        work = []
        for answer in reading:
            read, tokens = self.target.n_past(answer.slot.seq), answer.slot.tokens
            work.append(Work.prompt(answer.slot.seq, tokens[read : min(read + share, len(tokens) - 1)], needs))
        with self._guarded(*reading):
            for answer, item, rows in zip(reading, work, self.target.forward(work), strict=True):
                self.target.commit(item.seq, range(len(item.tree)))
                n_past = self.target.n_past(item.seq)
                self._panel.prefill(item.seq, n_past - len(item.tree), item.tree.tokens, rows.features)
                answer.prompt_read(n_past)

    def _with_room(self, answers: list[Answer]) -> list[Answer]:
        """Those with a cell left for their pending token. The last to come makes room for the others and goes on when
        they are done, so that neighbours never change an answer; one that fills the cache alone ends."""
        while answers and not self._slots.make_room():
            if self._one_steps_aside():
                continue
            *answers, last = answers
            if any(one is not last and not one.over for one in self._running):
                self._running.remove(last)
                self._waiting.appendleft(last)
            else:
                last.stop("length")
            self._slots.release(last.slot)
        return answers

    def _one_steps_aside(self) -> bool:
        """An answer that waits for a grant, if there is one, lends its place to others. It comes in again when it may
        go on, and reads anew what of its text is no longer there."""
        aside = next((one for one in reversed(self._running) if not one.over and one.pace.waits), None)
        if aside is not None:
            self._running.remove(aside)
            self._waiting.appendleft(aside)
            self._slots.release(aside.slot)
        return aside is not None

    def _abort(self) -> None:
        """Something came up in the middle of a round: no cache can be trusted."""
        for answer in self._running:
            if not answer.over:
                answer.fail(EngineError("the engine was stopped in the middle of a step"))
                self._slots.drop(answer.slot)

    def _guarded(self, *answers: Answer) -> Guard:
        return Guard(answers, self._slots)
