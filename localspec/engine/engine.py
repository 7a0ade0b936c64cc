"""The engine: many sequences, one loop of verify steps."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from queue import SimpleQueue

from localspec.backends.base import Rows, Target
from localspec.backends.memory import resident_bytes
from localspec.chat import ChatTemplate
from localspec.control import Controller, FixedController, Limits, LoadGuard, PassRecord, Price, Walk, Wish
from localspec.drafters import forced
from localspec.drafters.base import Ask, Draft, Drafter
from localspec.engine.answer import Answer, StepTimes
from localspec.engine.encode import Spelling, check_length, earlier_texts, encode, text_stream
from localspec.engine.guard import Guard
from localspec.engine.handle import Handle
from localspec.engine.info import bare_info
from localspec.engine.panel import Panel, idle_sources
from localspec.engine.passes import Pass, Passes, Piece
from localspec.engine.samplers import Samplers
from localspec.engine.scheduler import Scheduler
from localspec.engine.slots import Slots
from localspec.errors import Cancelled, EngineError, UsageError
from localspec.spec.tree import TokenTree
from localspec.types import EngineInfo, EngineStatus, Event, GenerationRequest


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
        load: hard limits of load beyond which nothing is guessed; by default none.
        most_running: answers at a time; by default as many as the target has sequences. What is left of these keeps
            conversations that prompts may begin like.
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
        load: LoadGuard | None = None,
        most_running: int | None = None,
        prompt_chunk: int = 256,
    ) -> None:
        self.target = target
        self._panel = Panel([*drafters, forced.Forced(target.vocab)] if drafters else ())
        self._check_needs()
        self._costly = self._panel.costly
        self._slots = Slots(target, self._panel, lambda seq: self.controller.forget(seq))
        self._samplers = Samplers(target.vocab, target.caps.n_ctx)
        self._template = template
        self.info = info or bare_info(target, drafters, template)
        #: Decides how much is guessed; may be another one between answers.
        self.controller: Controller = controller or FixedController()
        self._threads: int | None = None
        self._load = load or LoadGuard()
        self._requests = Scheduler(
            target,
            self._slots,
            most_running=target.caps.max_sequences if most_running is None else most_running,
            prompt_chunk=prompt_chunk,
        )
        self._passes = Passes(target, self._panel.needs)
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

    @property
    def status(self) -> EngineStatus:
        """How it stands between two steps."""
        passes = self._passes
        running = len(self._requests.running)
        return EngineStatus(
            running=running,
            waiting=len(self._requests.waiting),
            cells=self._slots.cells_used,
            n_ctx=self.target.caps.n_ctx,
            kept=len(self._slots) - running,
            guessing=self._load.allows,
            why=self._load.why,
            rows=passes.last.n_rows + passes.last.beside,
            guesses=passes.last.guesses,
            prompt_rows=passes.last.beside,
            passes=passes.count,
            prompt_computed=passes.prompt_computed,
            prompt_reused=self._requests.prompt_reused,
        )

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
        self._requests.add(answer)
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
        return not self._interrupted and self._requests.idle

    def _pump(self) -> None:
        """A round, when there is something to do."""
        if self.idle:
            self._woken.get()
        self.step()

    def step(self) -> None:
        """One round: cancelled requests leave, waiting ones come in; then one pass reads a piece of every prompt and
        verifies a tree of every sequence that has its prompt, and a step to make."""
        requests = self._requests
        if self._interrupted:
            self._drop_cancelled()
        self._admit()
        self._load.look(len(requests.running), len(requests.waiting))
        try:
            if not self.target.caps.mixes:
                self._read_prompts(requests.reading)
            ready = requests.ready
            going = requests.with_room([one for one in ready if one.pace.left != 0])
            reading = requests.reading if self.target.caps.mixes else []
            if going:
                self._advance(going, reading)
            else:
                self._read_prompts(reading)
            for answer in ready:
                if not answer.over:
                    answer.say_pace()
        except Cancelled:  # the next round finds out who
            self._interrupted = True
            for answer in requests.running:
                if not answer.over:
                    self._slots.cut(answer.slot, len(answer.slot.tokens))
        except BaseException:
            self._abort()
            raise
        finally:
            requests.drop_finished()

    def _advance(self, answers: list[Answer], reading: list[Answer]) -> None:
        """The seven words of the design page, in order. The pass reads prompts, too."""
        began = time.perf_counter()
        for answer in answers:
            answer.go_on(began)
        beside = self._requests.rows_to_read(reading, beside=True)
        room = self._room(len(answers), beside)
        wishes = [self._wish(answer, room) for answer in answers]
        prices = self.controller.plan(wishes, beside)
        proposals, draft_s = self._propose(answers, prices)
        drafts = self._choose(answers, wishes, proposals)
        drafted = time.perf_counter()
        with self._guarded(*answers, *reading):
            done = self._passes.verify(answers, drafts, self._pieces(reading, beside))
            self._take_in(done)
            token_s = None if done.beside else self.controller.plain_s
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
            step_s, cells = time.perf_counter() - began, self._slots.cells_used
            record = PassRecord(done.n_rows, cells, done.wall_s, done.cpu_s, draft_s, step_s, done.beside)
            self.controller.observe(record, walks)
            self._set_threads()
        self._pass_on_notices()

    # -- plan

    def _wish(self, answer: Answer, room: Limits) -> Wish:
        seq, spec = answer.slot.seq, answer.request.spec
        n_past = self.target.n_past(seq)
        lags = self._panel.lags(seq, n_past, spec.types, answer.idle)
        if answer.left is not None:
            room = replace(room, depth=min(answer.left - 1, room.depth))
        return Wish(seq, spec, room, n_past, lags, self._costly, answer.left)

    def _room(self, sharers: int, beside: int) -> Limits:
        """What load, batch, sequence ids and context leave to each for guesses."""
        caps = self.target.caps
        if caps.rollback is not None or not self._load.allows:
            return Limits(depth=0, nodes=0)
        cells = (caps.n_ctx - self._slots.cells_used) // sharers
        nodes = min(min(caps.max_outputs, caps.max_rows - beside) // sharers - 1, cells)
        if not caps.trees:
            return Limits(nodes, nodes, leaves=1)
        # Every open sequence holds a branch, whether it is in this pass or not.
        leaves = 1 + max(caps.max_leaves - caps.max_sequences, 0) // sharers
        return Limits(nodes, nodes, width=nodes, leaves=leaves)

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
        running = self._requests.running if notices else []
        owners = {answer.slot.seq: answer for answer in running if not answer.over}
        for seq, standing in notices:
            if seq in owners:  # nothing comes after an answer's end
                owners[seq].notice(standing)

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
        while (came := self._requests.next()) is not None:
            answer, slot = came
            stream = text_stream(answer.request, self.target.vocab, self._template)
            start = partial(self._samplers.start, answer.request.sampling, answer.prompt)
            answer.admit(slot, self.target.n_past(slot.seq), start, stream)
            if answer.left == 0:
                answer.stop("length")
                self._slots.release(slot)
                self._requests.drop_finished()

    def _drop_cancelled(self) -> None:
        # Before the answers are looked at: a cancellation that comes later interrupts again.
        self._interrupted = False
        self._interrupt(False)
        self._requests.drop_cancelled()

    def _pieces(self, reading: Sequence[Answer], rows: int) -> list[Piece]:
        return self._requests.pieces(reading, rows, self._panel.needs)

    def _read_prompts(self, reading: Sequence[Answer]) -> None:
        """A pass that reads prompts and nothing else."""
        if reading:
            pieces = self._pieces(reading, self._requests.rows_to_read(reading, beside=False))
            with self._guarded(*reading):
                self._take_in(self._passes.read(pieces))

    def _take_in(self, done: Pass) -> None:
        """Target and drafters keep what was read of prompts."""
        for (answer, work), rows in zip(done.pieces, done.read, strict=True):
            self.target.commit(work.seq, range(len(work.tree)))
            n_past = self.target.n_past(work.seq)
            self._panel.prefill(work.seq, n_past - len(work.tree), work.tree.tokens, rows.features)
            answer.prompt_read(n_past)

    def _abort(self) -> None:
        """Something came up in the middle of a round: no cache can be trusted."""
        for answer in self._requests.running:
            if not answer.over:
                answer.fail(EngineError("the engine was stopped in the middle of a step"))
                self._slots.drop(answer.slot)

    def _guarded(self, *answers: Answer) -> Guard:
        return Guard(answers, self._slots)
