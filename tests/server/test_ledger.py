"""What the server counts of its answers."""

from __future__ import annotations

from localspec.server.ledger import Ledger
from localspec.types import Finished, SpecStats, Started, Timings


def finished(tokens: int) -> Finished:
    timings = Timings(prompt_n=3, cache_n=0, prompt_s=0.1, ttft_s=0.1, predicted_n=tokens, predicted_s=0.1)
    return Finished(1, "cancelled", (1,) * tokens, None, timings, SpecStats())


def test_the_word_of_an_end_may_come_after_that_of_the_next_start() -> None:
    """Each answer tells of itself: there is still one slot, and it works on the later one."""
    ledger = Ledger(1)
    first, second = ledger.ask(speculative=True), ledger.ask(speculative=True)
    ledger.take(first, Started(1, prompt_n=3, cache_n=0, seed=1))
    ledger.take(second, Started(2, prompt_n=40, cache_n=0, seed=1))
    ledger.take(first, finished(5))
    reading = ledger.read()
    (slot,) = reading.slots
    assert (slot.task, slot.busy, slot.prompt_n) == (second, True, 40)
    assert (reading.running, reading.waiting, reading.longest) == (1, 0, 8)
    ledger.take(second, finished(1))
    assert ledger.read().running == 0
    assert ledger.read().ends == {"cancelled": 2}


def test_an_answer_is_shown_in_the_slot_that_it_asks_for_if_that_is_free() -> None:
    ledger = Ledger(3)
    numbers = [ledger.ask(speculative=True, slot=slot) for slot in (1, 5, 1)]
    for number in numbers:
        ledger.take(number, Started(number, prompt_n=3, cache_n=0, seed=1))
    assert [slot.task for slot in ledger.read().slots] == [numbers[2], numbers[0], numbers[1]]


def test_where_no_slot_is_free_the_oldest_one_is_over_whatever_is_asked_for() -> None:
    ledger = Ledger(2)
    first, second, third = (ledger.ask(speculative=True, slot=slot) for slot in (0, 1, 1))
    for number in (first, second, third):
        ledger.take(number, Started(number, prompt_n=3, cache_n=0, seed=1))
    assert [slot.task for slot in ledger.read().slots] == [third, second]
