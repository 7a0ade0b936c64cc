"""The last question answered twice, with guesses and without: speed, and whether the tokens are the same."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Literal

from localspec.errors import EngineError, UsageError
from localspec.report import speed
from localspec.talk.chat import Chat
from localspec.talk.far import check_here
from localspec.talk.running import Handle
from localspec.text.printable import printable
from localspec.types import Failed, Finished, GenerationRequest, SpecParams, Tokens

Way = Literal["speculative", "plain"]
#: With guesses first: no drafter can have seen the plain answer then.
WAYS: tuple[Way, ...] = ("speculative", "plain")
#: Of an answer that is asked for twice, where chance is asked for and no answer has been drawn by one yet.
SEED = 1


@dataclass(frozen=True, slots=True)
class Said:
    """More text of one of the two."""

    way: Way
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One of the two, over: its tokens as ids and as bytes."""

    way: Way
    finished: Finished
    pieces: tuple[bytes, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        return self.finished.ids

    @property
    def speed(self) -> float | None:
        return self.finished.timings.tokens_per_second

    @property
    def line(self) -> str:
        """``142 tok · 61 tok/s``, and how its guesses fared."""
        stats = self.finished.stats
        parts = [f"{len(self.ids)} tok", *([] if self.speed is None else [speed(self.speed)])]
        if self.way == "speculative":
            parts.append(f"{stats.accepted}/{stats.draft_n} guesses held" if stats.draft_n else "nothing drafted")
        return " · ".join(parts)

    def token(self, position: int) -> str:
        """The text at a position; how it ended if it is no longer there."""
        if position >= len(self.ids):
            return f"({self.finished.reason})"
        piece = self.pieces[position] if position < len(self.pieces) else b""
        return repr(printable(piece.decode("utf-8", "replace"), keep="\n\t"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both, side by side. ``rule`` is how guesses were accepted, ``exact`` whether the engine promises every bit."""

    speculative: Answer
    plain: Answer
    rule: str
    exact: bool

    @property
    def ratio(self) -> float | None:
        """Speed against plain decoding; ``None`` where an answer is too short to tell."""
        mine, other = self.speculative.speed, self.plain.speed
        return mine / other if mine is not None and other else None

    @property
    def equal(self) -> int:
        """Tokens that are the same from the start on."""
        pairs = enumerate(zip(self.speculative.ids, self.plain.ids, strict=False))
        shorter = min(len(self.speculative.ids), len(self.plain.ids))
        return next((at for at, (one, other) in pairs if one != other), shorter)

    @property
    def same(self) -> bool:
        """The same tokens and the same end."""
        ends = self.speculative.finished.reason == self.plain.finished.reason
        return ends and self.speculative.ids == self.plain.ids

    @property
    def verdict(self) -> str:
        """One line."""
        if self.same:
            return f"same tokens: all {self.equal}"
        mine, other = self.speculative.token(self.equal), self.plain.token(self.equal)
        return f"{self.equal} tokens are the same, then position {self.equal} has {mine} for {other}"

    @property
    def why(self) -> str:
        """What may be behind a difference; nothing where there is none."""
        if self.same:
            return ""
        if self.rule == "ratio":
            return "the rule ratio draws other random numbers than plain decoding: as likely a text, not the same one"
        if self.exact:
            return "with --exact nothing may differ: localspec verify looks into it"
        return (
            "rounding can do this: a pass over several rows moves logits a little, more with quantised weights, and at"
            " a near-tie another token comes; localspec verify tells rounding from a fault"
        )

    def lines(self, width: int) -> list[str]:
        """What to show below the two answers."""
        ratio = [] if self.ratio is None else [f"{self.ratio:.2f}× plain decoding"]
        return [line for part in (*ratio, self.verdict, self.why) for line in wrap(part, width)]


Step = Said | Answer | Outcome


class Comparison:
    """Asks the last question of a chat twice; no turn of the chat may run meanwhile, and none is added to it."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._handle: Handle | None = None
        self._stopped = False

    def run(self) -> Generator[Step, None, None]:
        """Texts as they come, each answer when it is over, and the outcome. Ends early after `stop`.

        Raises:
            UsageError: there is no question, or nothing that guesses.
            EngineError: an answer failed.
            LocalspecError: as from `localspec.talk.chat.Chat.ask`.
        """
        requests = self._requests()
        answers: dict[Way, Answer] = {}
        for way in WAYS:
            for step in self._answer(way, requests[way]):
                if isinstance(step, Answer):
                    answers[way] = step
                yield step
            if self._stopped:
                return
        info, rule = self._chat.engine.info, requests["speculative"].spec.accept
        yield Outcome(answers["speculative"], answers["plain"], rule, info.exact is not None)

    def stop(self) -> None:
        """From any thread: ends the answer that runs within one pass, and the comparison with it."""
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()

    def _requests(self) -> dict[Way, GenerationRequest]:
        check_here(self._chat.engine.info, "a comparison", "localspec bench compares servers.")
        asked = self._chat.last_request()
        if asked.spec.off or not self._chat.drafters:
            raise UsageError("nothing guesses ahead, so there is nothing to compare", hint="Turn it on with /spec on.")
        if asked.sampling.seed is None:
            seed = SEED if self._chat.seed is None else self._chat.seed
            asked = replace(asked, sampling=replace(asked.sampling, seed=seed))
        return {"speculative": asked, "plain": replace(asked, spec=SpecParams(mode="off"))}

    def _answer(self, way: Way, request: GenerationRequest) -> Iterator[Said | Answer]:
        pieces: list[bytes] = []
        self._handle = handle = self._chat.engine.submit(request)
        if self._stopped:
            handle.cancel()
        try:
            for event in handle:
                if isinstance(event, Failed):
                    raise EngineError(f"the {way} answer failed: {event.message}", hint=event.hint)
                if isinstance(event, Tokens):
                    pieces += [token.piece for token in event.tokens]
                    if event.text:
                        yield Said(way, event.text)
                if isinstance(event, Finished):
                    yield Answer(way, event, tuple(pieces))
        finally:
            self._handle = None
