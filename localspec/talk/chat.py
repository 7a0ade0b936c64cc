"""A chat without any terminal: conversation, settings, attached files, statistics; questions in, events out."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Protocol

from localspec.chat.conversation import Conversation
from localspec.chat.conversation import Turn as PastTurn
from localspec.chat.notices import notices
from localspec.chat.reasoning import Reasoning, reasoning_of
from localspec.chat.window import Fitted, fit, room_for_prompt
from localspec.errors import UsageError
from localspec.options import Values, has_grammar, request, spec_params, template_kwargs
from localspec.talk.attach import Attachment, check_room, with_attachments
from localspec.talk.listener import Listener
from localspec.talk.mention import not_there, read_mentioned
from localspec.talk.running import Handle, Running
from localspec.talk.standing import Remarks, standings
from localspec.talk.totals import Totals
from localspec.talk.trace import AnswerTrace
from localspec.talk.turn import Answer, Asked, LeftOut, Turn
from localspec.types import (
    EngineInfo,
    Finished,
    GenerationRequest,
    Message,
    Notice,
    SpecStats,
)

SEEDS = 2**64
#: Tokens that might have stood in the place of one, as they are asked for where somebody watches.
RIVALS = 5


class Engine(Protocol):
    """What a chat asks of an engine: `localspec.engine.Engine`, `localspec.host.HostedEngine` and
    `localspec.client.engine.RemoteEngine` have it."""

    @property
    def info(self) -> EngineInfo: ...

    @property
    def memory(self) -> int | None: ...

    def submit(self, request: GenerationRequest) -> Handle: ...

    def encode(self, request: GenerationRequest) -> list[int]: ...


class Engines(Protocol):
    """The engine that runs, and how to get another."""

    @property
    def current(self) -> Engine: ...

    def load(self, values: Values) -> None:
        """Loads with other options; if that fails, the one before runs again.

        Raises:
            LocalspecError: why it failed.
        """

    def revive(self) -> None:
        """A new process in place of one that died; raises as `load`."""


class Chat:
    """One evening at the prompt.

    Args:
        engines: the engine and its replacements.
        values: options by name; the chat changes its own copy.
        conversation: where it starts.
        typed: names of the options that were given on the command line; a saved conversation changes none of them.
    """

    def __init__(
        self, engines: Engines, values: Values, conversation: Conversation, typed: Collection[str] = ()
    ) -> None:
        self.engines = engines
        self.values: dict[str, Any] = dict(values)
        self.given: Values = dict(values)
        self.typed = frozenset(typed)
        self.conversation = conversation
        self.listeners: list[Listener] = []
        self.attachments: list[Attachment] = []
        self.totals = Totals()
        self.last: Finished | None = None
        self.seed: int | None = None  # the last answer's
        self.types: tuple[str, ...] | None = None
        #: The last answer, step by step.
        self.trace = AnswerTrace()
        #: Who wants steps to bring the trees that were verified, and the target's probabilities.
        self.watchers: set[str] = set()
        self._left_out = 0
        self._again = 0
        #: The last question, if it brought nothing.
        self.unanswered: tuple[str, int, tuple[Attachment, ...]] | None = None
        self._noticed: set[str] = set()
        self._remarks = Remarks()
        self._reasoning: tuple[object, Reasoning] | None = None
        #: Stops the answer that runs, or lets it on step by step.
        self.running = Running()

    @property
    def engine(self) -> Engine:
        return self.engines.current

    # -- turns

    def ask(self, text: str, *, replacing: int = 0, typed: str = "") -> Turn:
        """A question and the events of its answer; files that wait, and those that are mentioned, are sent before the
        text.

        What was shown of the answer is part of the conversation as soon as the iterator ends or is closed, whatever
        ended it. A question that brought nothing leaves everything as it was.

        Args:
            replacing: so many last exchanges make place for this one.
            typed: what of the text may mention files: nothing that was pasted or piped in.

        Raises:
            LocalspecError: from the iterator: the question cannot be asked.
        """
        self._again = 0
        self.running.begin()
        return self._ask(text, replacing, typed)

    def regenerate(self, back: int = 1) -> Turn:
        """Asks a question again: the last, or the ``back``-th last with what followed it. After an answer a fixed seed
        moves on by one, or the same text would come.

        Raises:
            UsageError: there is none.
        """
        if back == 1 and self.unanswered is not None:
            return self._start(*self.unanswered)
        questions = [message.content for message in self.conversation.messages if message.role == "user"]
        if not questions:
            raise UsageError("this conversation has no question", hint="Write a message first.")
        if back > len(questions):
            raise UsageError(f"{back} is too far back: {len(questions)} were asked", hint="1 is the last.")
        self._again += 1
        return self._start(questions[-back], back, ())

    def last_request(self) -> GenerationRequest:
        """The last question once more, as the settings are now; what it brought is no part of it.

        Raises:
            UsageError: there is none.
            LocalspecError: as from `ask`.
        """
        waiting = None if self.unanswered is None else self.unanswered[0]
        question = waiting if waiting is not None else self.conversation.last_question()
        if question is None:
            raise UsageError("this conversation has no question", hint="Write a message first.")
        return self.request(self._asked_after(self._without(0 if waiting is not None else 1), question).messages)

    def stop(self) -> None:
        """From any thread or a signal handler: ends the running answer within one pass."""
        self.running.stop()

    def _ask(self, text: str, replacing: int, typed: str) -> Turn:
        waiting = {one.name for one in self.attachments}
        files = [one for one in read_mentioned(typed, self.engine.info.n_ctx) if one[0] not in waiting]
        sent = (*self.attachments, *self._counted(files, self._without(replacing)))
        yield from self._turn(with_attachments(sent, text), replacing, sent, not_there(typed))

    def _start(self, question: str, replacing: int, sent: tuple[Attachment, ...]) -> Turn:
        self.running.begin()
        return self._turn(question, replacing, sent)

    def _turn(self, question: str, replacing: int, sent: tuple[Attachment, ...], remarks: Sequence[str] = ()) -> Turn:
        try:
            yield Asked(question, replacing)
        except GeneratorExit:
            self.unanswered = (question, replacing, sent)
            raise
        for one in sent:
            if one not in self.attachments:  # else somebody has attached it, and was told
                yield Notice(0, f"{one.name}: {one.tokens:,} tokens")
        for line in remarks:
            yield Notice(0, line)
        kept = self._without(replacing)
        replaced = self.conversation.turns[len(kept.turns) :]
        fitted = self._asked_after(kept, question)
        if len(fitted.dropped) > self._left_out:
            yield LeftOut(len(fitted.dropped), exchanges(kept.messages) + 1)
        self._left_out = len(fitted.dropped)
        for line in self._notices(fitted.messages):
            yield Notice(0, line)
        reasoning = self.reasoning()
        answer = Answer(reasoning.splitter(), hides=self.values["reasoning"] == "off")
        steps = self.running.steps
        watched = bool(self.watchers) or steps is not None
        asked = replace(
            self.request(fitted.messages),
            draft_from=said(replaced),
            trace=watched,
            logprobs=RIVALS if watched else None,
            steps=steps,
        )
        handle = self.engine.submit(asked)
        self.running.runs(handle, asked)
        self.trace = trace = AnswerTrace()
        try:
            for listener in self.listeners:
                listener.asked(len(kept.turns), question)
            for event in handle:
                trace.hear(event)
                if isinstance(event, Notice):
                    self._remarks.hear(event)
                yield from answer.take(event)
        finally:
            self.running.over()
            self.unanswered = None if answer.worth_keeping else (question, replacing, sent)
            if answer.worth_keeping:
                self._keep(question, answer, replacing)
                self.attachments = [one for one in self.attachments if one not in sent]
            if answer.finished is not None and (answer.finished.n or answer.finished.reason != "cancelled"):
                self.last, self.seed = answer.finished, answer.seed
                self.totals = self.totals.plus(answer.finished)
            if answer.worth_keeping:
                for listener in self.listeners:
                    listener.answered(asked, answer.finished)
            else:
                self._tell_of_change()

    def _without(self, exchanges: int) -> Conversation:
        """A copy of the conversation without so many of its last exchanges."""
        kept = Conversation(self.conversation.system, self.conversation.messages)
        for _ in range(exchanges):
            kept.undo()
        return kept

    def _asked_after(self, kept: Conversation, question: str) -> Fitted:
        """What of that conversation and a question goes to the model."""
        return self._fitted((*kept.prompt(), Message("user", question)), self.engine.info.n_ctx - 1)

    def _notices(self, messages: Sequence[Message]) -> list[str]:
        """What this conversation has not been told yet of its template."""
        reasoning, info = self.reasoning().notice, self.engine.info
        # A server makes prompts by itself: what would be changed here need not be there.
        source = info.chat_template if info.server is None else None
        told = notices(source, messages, dict(template_kwargs(self.values)))
        fresh = [line for line in (*told, *([reasoning] if reasoning else ())) if line not in self._noticed]
        self._noticed.update(fresh)
        return fresh

    def _keep(self, question: str, answer: Answer, replacing: int) -> None:
        for _ in range(replacing):
            self.conversation.undo()
        self.conversation.add("user", question)
        self.conversation.add("assistant", answer.text, thinking=answer.thinking, stopped=answer.stopped)

    @property
    def stopping(self) -> bool:
        """Whether the user stopped the answer that runs, or the last one."""
        return self.running.stopping

    @property
    def left_out(self) -> int:
        """Oldest exchanges that no longer go along."""
        return self._left_out

    def _fitted(self, messages: Sequence[Message], limit: int) -> Fitted:
        """``limit``: tokens that the last exchange may have, all by itself."""
        n_ctx = self.engine.info.n_ctx
        return fit(
            messages,
            lambda some: len(self.engine.encode(self.request(tuple(some)))),
            room_for_prompt(n_ctx, self.values["n_predict"]),
            limit=limit,
            left_out=self._left_out,
            spare=n_ctx // 8,
        )

    def request(self, messages: tuple[Message, ...]) -> GenerationRequest:
        """The request for an answer to these messages, as the settings are now."""
        asked = request(self.values, messages=messages)
        told = tuple(self.reasoning().variables.items())
        spec = asked.spec if self.types is None else replace(asked.spec, types=self.types)
        sampling = asked.sampling
        if self._again and sampling.seed is not None:
            sampling = replace(sampling, seed=(sampling.seed + self._again) % SEEDS)
        return replace(asked, spec=spec, sampling=sampling, template_kwargs=told)

    def reasoning(self) -> Reasoning:
        """How the model thinks, by its template and the settings."""
        source, mode, told = self.engine.info.chat_template, self.values["reasoning"], template_kwargs(self.values)
        bound = has_grammar(self.values)
        if self._reasoning is None or self._reasoning[0] != (source, mode, told, bound):
            self._reasoning = ((source, mode, told, bound), reasoning_of(source, mode, dict(told), bound=bound))
        return self._reasoning[1]

    @property
    def guesses(self) -> bool:
        """Whether anything may be guessed ahead in the next turn; a server decides that by itself."""
        spec, info = spec_params(self.values), self.engine.info
        return spec.mode != "off" and spec.depth > 0 and bool(info.drafters or info.server)

    @property
    def drafters(self) -> tuple[str, ...]:
        """Those that may guess, of the ones that are loaded."""
        return self.engine.info.drafters if self.types is None else self.types

    @property
    def alone(self) -> dict[str, str]:
        """Drafters that may guess and are not asked, and why."""
        return self._remarks.alone(self.drafters, spec_params(self.values).mode) if self.guesses else {}

    def standings(self) -> list[tuple[str, str]]:
        """How each drafter stands; none where nothing may be guessed."""
        if not self.guesses:
            return []
        last = SpecStats() if self.last is None else self.last.stats
        return standings(self.drafters, self.alone, spec_params(self.values).mode, last, self.totals.stats)

    # -- the conversation

    def undo(self, most: int = 1) -> list[str]:
        """Takes back so many of the last exchanges, or all there are; returns their questions, the oldest first."""
        questions: list[str] = []
        while len(questions) < most and (removed := self.conversation.undo()):
            questions.insert(0, removed[0].content)
        self.unanswered = None
        self._left_out = self._again = 0
        self._tell_of_change()
        return questions

    def clear(self) -> None:
        """Forgets exchanges and waiting files; the system message stays."""
        self.start(Conversation(self.conversation.system))

    def start(self, conversation: Conversation, *, unanswered: str | None = None) -> None:
        """Goes on with another conversation; ``unanswered`` is a question after its end that has no answer yet."""
        self.conversation = conversation
        self.attachments.clear()
        self._noticed.clear()
        self.unanswered = None if unanswered is None else (unanswered, 0, ())
        self._left_out = self._again = 0
        self._tell_of_change()

    def engine_changed(self) -> None:
        """Another engine runs: what was chosen among the drafters of the old one, and how much fitted it, is void."""
        self.types = None
        self._left_out = 0
        self._noticed.clear()
        self._remarks.clear()

    def set_system(self, text: str | None) -> None:
        """The system message of the turns to come; ``None`` = none."""
        self.conversation.system = text
        self._tell_of_change()

    def _tell_of_change(self) -> None:
        for listener in self.listeners:
            listener.changed()

    # -- tokens

    def count(self, text: str) -> int:
        """Tokens of plain text.

        Raises:
            UsageError: there are more than the context holds.
        """
        if not text:
            return 0
        return len(self.engine.encode(replace(request(self.values, prompt=text), special=False)))

    def used(self, conversation: Conversation | None = None) -> int:
        """Tokens of the conversation, or of another, with its system message: what the next prompt begins with.

        Raises:
            LocalspecError: the template refuses it, or the engine has died.
        """
        conversation = conversation or self.conversation
        if not conversation.messages:
            return self.count(conversation.system or "")
        fitted = self._fitted(conversation.prompt(), sys.maxsize)
        return len(self.engine.encode(self.request(fitted.messages)))

    def attach(self, files: Sequence[tuple[str, str]]) -> list[Attachment]:
        """Puts files, as (name, text), before the next message; all of them or none.

        Raises:
            UsageError: they do not fit in what is left of the context.
        """
        new = self._counted(files, self.conversation)
        self.attachments += new
        return new

    def _counted(self, files: Sequence[tuple[str, str]], conversation: Conversation) -> list[Attachment]:
        """Files that are to follow a conversation; raises as `attach`."""
        new = [Attachment(name, text, self.count(Attachment(name, text, 0).block())) for name, text in files]
        if new:
            check_room(new, self.free(conversation), self.engine.info.n_ctx)
        return new

    def free(self, conversation: Conversation | None = None) -> int:
        """Tokens of the context that neither the conversation nor a waiting file takes; raises as `used`."""
        waiting = sum(one.tokens for one in self.attachments)
        return self.engine.info.n_ctx - self.used(conversation) - waiting


def said(turns: Sequence[PastTurn]) -> tuple[str, ...]:
    """What was thought and answered."""
    answers = [turn for turn in turns if turn.message.role == "assistant"]
    return tuple(text for turn in answers for text in (turn.thinking, turn.message.content) if text)


def exchanges(messages: Sequence[Message]) -> int:
    """Questions among the messages."""
    return sum(message.role == "user" for message in messages)
