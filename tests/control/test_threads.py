"""The thread tuner on made-up machines: a model of how long a pass takes stands in for the clock."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from localspec.control.threads import ThreadTuner, core_count, idle_seconds

Machine = Callable[[int], tuple[float, float]]  # threads → wall and CPU seconds of a pass


def told_nothing(most: int) -> ThreadTuner:
    """On a machine that does not tell whether it is idle."""
    return ThreadTuner(most, idle_s=lambda: None)


def quiet(threads: int) -> tuple[float, float]:
    wall = 0.02 / threads**0.8
    return wall, wall * threads


def busy(threads: int) -> tuple[float, float]:
    """Every core has a neighbour: one thread keeps most of its speed, threads that wait for each other do not."""
    wall = 0.03 if threads == 1 else 0.06 * threads / 2
    return wall, wall * threads * 0.5


#: Milliseconds of passes on two threads beside two loops that never sleep, as they were measured.
BESIDE_HOGS = (
    *(57, 34, 99, 24, 23, 19, 18, 51, 27, 18, 22, 22, 18, 18, 89, 53, 200, 199, 100, 18, 119, 19, 26, 22, 119, 18, 18),
    *(63, 23, 18, 147, 19, 39, 18, 122, 23, 23, 27, 20, 19, 111, 24, 19, 19, 78, 24, 23, 24, 26, 54, 19, 19, 99, 20),
    *(125, 22, 89, 226, 24, 65, 110, 23, 24, 24, 25, 198, 24, 24, 25, 25, 28, 265, 99, 19, 24, 24, 852, 33, 24, 26, 32),
)


def run(tuner: ThreadTuner, machine: Machine, passes: int, rows: int = 1) -> float:
    """Seconds that ``passes`` passes take."""
    return sum(step(tuner, machine, rows) for _ in range(passes))


def step(tuner: ThreadTuner, machine: Machine, rows: int) -> float:
    wall, cpu = machine(tuner.threads)
    tuner.observe(rows, wall, cpu)
    return wall


def test_nothing_is_tried_on_a_quiet_machine() -> None:
    tuner = told_nothing(4)
    for _ in range(500):
        step(tuner, quiet, 1)
        assert tuner.threads == 4


def test_a_busy_machine_gets_fewer_threads_and_keeps_most_of_the_best_speed() -> None:
    tuner = told_nothing(2)
    spent = run(tuner, busy, 300)
    assert tuner.threads in (1, 2)
    assert spent < 1.15 * 300 * busy(1)[0]


def test_threads_come_back_when_the_machine_is_quiet_again() -> None:
    tuner = told_nothing(4)
    run(tuner, busy, 100)
    run(tuner, quiet, 200)
    spent = run(tuner, quiet, 300)
    assert spent < 1.05 * 300 * quiet(4)[0]


@pytest.mark.parametrize("start", range(0, len(BESIDE_HOGS), 9))
def test_a_few_slow_passes_count_for_what_they_take(start: int) -> None:
    """Two threads are faster in most passes here, and slower by half in all: 36 ms on one thread."""
    slow = itertools.cycle((*BESIDE_HOGS[start:], *BESIDE_HOGS[:start]))

    def hogs(threads: int) -> tuple[float, float]:
        wall = 0.036 if threads == 1 else next(slow) / 1000
        return wall, wall * (0.65 if threads == 1 else 1.0)

    tuner = told_nothing(2)
    run(tuner, hogs, 20)
    assert run(tuner, hogs, 300) < 1.15 * 300 * 0.036


@pytest.mark.parametrize("seed", range(3))
def test_a_burst_of_load_is_forgotten(seed: int) -> None:
    rng = random.Random(seed)
    tuner = told_nothing(2)
    for _ in range(5):
        run(tuner, busy, rng.randint(3, 40))
        run(tuner, quiet, 140)
        assert tuner.threads == 2


class Watched:
    """A machine of two cores that tells how long they had nothing to do; ``load``: cores that others use."""

    def __init__(self, load: int) -> None:
        self.load, self.idle_s, self.tried = load, 0.0, 0
        self.tuner = ThreadTuner(2, idle_s=lambda: self.idle_s)

    def run(self, passes: int) -> None:
        for _ in range(passes):
            threads = self.tuner.threads
            self.tried += threads == 2
            wall, cpu = (busy if self.load else quiet)(threads)
            self.idle_s += max(2 - threads - self.load, 0) * wall
            # One thread beside others that are let in turn has a core for itself.
            self.tuner.observe(1, wall, wall if threads == 1 else cpu)


def test_more_threads_are_tried_only_where_cores_have_nothing_to_do() -> None:
    machine = Watched(load=2)
    machine.run(50)
    assert machine.tuner.threads == 1
    tried = machine.tried
    machine.run(2000)
    assert machine.tried == tried, "a single pass may take seconds there"
    machine.load = 0
    machine.run(60)
    assert machine.tuner.threads == 2


def test_idle_cores_are_seen() -> None:
    seconds = idle_seconds()
    assert seconds is None or seconds > 0


def test_one_core_is_never_tuned() -> None:
    tuner = told_nothing(1)
    run(tuner, busy, 50)
    assert tuner.threads == 1


@pytest.mark.parametrize("seed", range(5))
def test_any_mix_of_rows_and_noise_stays_within_the_counts(seed: int) -> None:
    rng = random.Random(seed)
    tuner = told_nothing(6)
    for _ in range(400):
        wall, cpu = rng.choice((quiet, busy))(tuner.threads)
        assert tuner.observe(rng.randint(1, 40), wall * rng.uniform(0.5, 2), cpu) in (6, 3, 1)


def test_there_is_a_core() -> None:
    assert core_count() >= 1
