"""Events on their way to a slow reader."""

from __future__ import annotations

import threading
from dataclasses import fields

from localspec.errors import EngineDied
from localspec.host.inbox import LIMIT, Inbox
from localspec.types import (
    Event,
    Failed,
    Finished,
    Notice,
    Prefill,
    SpecStats,
    Started,
    StepStats,
    Timings,
    TokenInfo,
    Tokens,
    TreeTrace,
)

LAST = Finished(1, "stop", (), None, Timings(1, 0, 0.0, 0.0, 0, 0.0), SpecStats())


def tokens(i: int) -> Tokens:
    tree = TreeTrace((i,), (-1,), (1.0,), ("",), ())
    return Tokens(1, f"{i},", (TokenInfo(i, b""),), StepStats(3, 2, 1, 2, 0, 0.25, 0.5, 1.0, tree))


def everything(inbox: Inbox) -> list[Event]:
    got = [inbox.take()]
    while not isinstance(got[-1], Finished | Failed):
        got.append(inbox.take())
    return got


def test_events_come_as_they_were_while_the_reader_keeps_up() -> None:
    inbox = Inbox()
    sent: list[Event] = [Started(1, 9, 0, 1), Prefill(1, 4, 9), Prefill(1, 9, 9), *map(tokens, range(200)), LAST]
    for event in sent:
        inbox.put(event)
    assert everything(inbox) == sent


def test_a_reader_left_behind_gets_the_same_in_fewer_events() -> None:
    inbox, n = Inbox(), 20 * LIMIT
    inbox.put(Started(1, 9, 0, 1))
    for i in range(n):
        inbox.put(tokens(i))
        assert len(inbox._events) <= LIMIT
    inbox.put(LAST)
    first, *middle, last = everything(inbox)
    assert (first, last) == (Started(1, 9, 0, 1), LAST)
    joined = [event for event in middle if isinstance(event, Tokens)]
    assert len(joined) == len(middle) <= LIMIT
    assert "".join(event.text for event in joined) == "".join(f"{i}," for i in range(n))
    assert [info.id for event in joined for info in event.tokens] == list(range(n))
    steps = [event.step for event in joined if event.step is not None]
    one = tokens(0).step
    for field in fields(StepStats):
        if field.name == "t_plain":
            assert [step.t_plain for step in steps] == [None] * len(steps)
        elif field.name != "tree":
            assert sum(getattr(step, field.name) for step in steps) == n * getattr(one, field.name)
    assert steps[-1].tree == TreeTrace((n - 1,), (-1,), (1.0,), ("",), ())


def test_only_neighbours_of_a_kind_are_joined() -> None:
    inbox = Inbox()
    for i in range(3 * LIMIT):
        inbox.put(Prefill(1, i, 3 * LIMIT))
    inbox.put(Notice(1, "a line"))
    inbox.put(Tokens(1, "a", (), None))
    for i in range(3 * LIMIT):
        inbox.put(tokens(i))
    inbox.put(LAST)
    got = everything(inbox)
    notice = got.index(Notice(1, "a line"))
    assert all(isinstance(event, Prefill) for event in got[:notice])
    assert got[notice - 1] == Prefill(1, 3 * LIMIT - 1, 3 * LIMIT)
    assert all(isinstance(event, Tokens) for event in got[notice + 1 : -1])


def test_the_last_event_stays_the_last_and_stays() -> None:
    inbox = Inbox()
    over = [inbox.over]
    inbox.put(LAST)
    over.append(inbox.over)
    assert over == [False, True]
    inbox.put(tokens(1))
    inbox.put(Failed.of(1, EngineDied("too late")))
    assert [inbox.take(), inbox.take()] == [LAST, LAST]


def test_a_waiting_reader_wakes_up_for_every_event() -> None:
    inbox, n = Inbox(), 2000
    got: list[Event] = []
    reader = threading.Thread(target=lambda: got.extend(everything(inbox)))
    reader.start()
    for i in range(n):
        inbox.put(tokens(i))
    inbox.put(LAST)
    reader.join(20)
    assert not reader.is_alive()
    ids = [info.id for event in got if isinstance(event, Tokens) for info in event.tokens]
    assert ids == list(range(n))
    assert got[-1] == LAST
