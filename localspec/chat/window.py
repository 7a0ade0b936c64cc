"""What of a conversation fits the context: the system message stays, whole oldest exchanges go.

An exchange is a question and all that follows it up to the next question. Nothing is cut in the middle, and nothing
is cut silently: `Fitted.dropped` is for the front end to show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from localspec.errors import UsageError
from localspec.types import Message

#: Tokens of a prompt made of these messages.
Count = Callable[[Sequence[Message]], int]


@dataclass(frozen=True, slots=True)
class Fitted:
    """The messages to send, and the exchanges left out, oldest first."""

    messages: tuple[Message, ...]
    dropped: tuple[tuple[Message, ...], ...] = ()


def room_for_prompt(n_ctx: int, max_tokens: int) -> int:
    """Tokens a prompt may have so that an answer has room too: the context less what the answer may take
    (``max_tokens``, negative for no limit), but never less than three quarters of it."""
    reserve = n_ctx // 4
    return n_ctx - (min(max_tokens, reserve) if max_tokens >= 0 else reserve)


def fit(
    messages: Sequence[Message],
    count: Count,
    room: int,
    *,
    limit: int | None = None,
    left_out: int = 0,
    spare: int = 0,
) -> Fitted:
    """Leaves out the oldest exchanges until the rest has at most ``room`` tokens. The last question always stays.

    ``count`` is called once if all fits, and otherwise a few times: the lengths of the texts say where to look.

    Args:
        count: must not grow when exchanges are left out.
        limit: the last question alone may have so many tokens (``room`` if not given).
        left_out: exchanges an earlier turn left out already. They stay out, so that the cache keeps its use: a
            prompt that loses its beginning anew in every turn is read anew in every turn.
        spare: if exchanges must go, so many tokens more are freed, for the turns to come.

    Raises:
        UsageError: the last question and the system message alone are too long.
    """
    head, exchanges = _exchanges(messages)
    cuts = _Cuts(head, exchanges, count)
    last = max(len(exchanges) - 1, 0)
    first = min(left_out, last)
    if cuts.tokens(first) > room:
        first = _search(cuts, first, last, room - spare)
        limit = room if limit is None else max(limit, room)
        if first == last and (tokens := cuts.tokens(last)) > limit:
            raise UsageError(
                f"the question has {tokens} tokens{' with the system message' if head else ''}, {limit} fit",
                hint="Shorten it, or raise -c.",
            )
    return Fitted(cuts.messages(first), tuple(tuple(exchange) for exchange in exchanges[:first]))


def _exchanges(messages: Sequence[Message]) -> tuple[list[Message], list[list[Message]]]:
    """System messages at the start, and exchanges; what stands before the first question belongs to it."""
    at = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
    exchanges: list[list[Message]] = []
    asked = False
    for message in messages[at:]:
        question = message.role == "user"
        if not exchanges or (question and asked):
            exchanges.append([])
        asked = asked or question
        exchanges[-1].append(message)
    return list(messages[:at]), exchanges


class _Cuts:
    """Prompts by the number of exchanges left out; each is counted once."""

    def __init__(self, head: list[Message], exchanges: list[list[Message]], count: Count) -> None:
        self._head = head
        self._exchanges = exchanges
        self._count = count
        self._known: dict[int, int] = {}
        self._chars = [0, *accumulate(sum(len(m.content) + 16 for m in exchange) for exchange in exchanges)]

    def messages(self, first: int) -> tuple[Message, ...]:
        return (*self._head, *chain.from_iterable(self._exchanges[first:]))

    def tokens(self, first: int) -> int:
        if first not in self._known:
            self._known[first] = self._count(self.messages(first))
        return self._known[first]

    def guess(self, low: int, high: int, room: int) -> int:
        """Where between two cuts ``room`` is met, if tokens go with characters."""
        too_many = self.tokens(low) - room
        span = self.tokens(low) - self.tokens(high)
        chars = self._chars[high] - self._chars[low]
        wanted = self._chars[low] + chars * too_many / max(span, 1)
        return next((i for i in range(low + 1, high) if self._chars[i] >= wanted), high - 1)


def _search(cuts: _Cuts, low: int, last: int, room: int) -> int:
    """The smallest cut from ``low`` on that fits, ``last`` if none does. ``low`` is known not to fit."""
    high = last
    if low == last or cuts.tokens(last) > room:
        return last
    tries = 0
    while high - low > 1:
        tries += 1
        # Guesses that are off to one side creep; every third step halves what is left.
        middle = (low + high) // 2 if tries % 3 == 0 else cuts.guess(low, high, room)
        if cuts.tokens(middle) > room:
            low = middle
        else:
            high = middle
    return high
