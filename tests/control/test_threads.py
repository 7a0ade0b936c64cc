"""The thread tuner on made-up machines: a model of how long a pass takes stands in for the clock."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from localspec.control.threads import ThreadTuner, core_count

Machine = Callable[[int], tuple[float, float]]  # threads → wall and CPU seconds of a pass


def quiet(threads: int) -> tuple[float, float]:
    wall = 0.02 / threads**0.8
    return wall, wall * threads


def busy(threads: int) -> tuple[float, float]:
    """Every core has a neighbour: one thread keeps most of its speed, threads that wait for each other do not."""
    wall = 0.03 if threads == 1 else 0.06 * threads / 2
    return wall, wall * threads * 0.5


def run(tuner: ThreadTuner, machine: Machine, passes: int, rows: int = 1) -> float:
    """Seconds that ``passes`` passes take."""
    return sum(step(tuner, machine, rows) for _ in range(passes))


def step(tuner: ThreadTuner, machine: Machine, rows: int) -> float:
    wall, cpu = machine(tuner.threads)
    tuner.observe(rows, wall, cpu)
    return wall


def test_nothing_is_tried_on_a_quiet_machine() -> None:
    tuner = ThreadTuner(4)
    for _ in range(500):
        step(tuner, quiet, 1)
        assert tuner.threads == 4


def test_a_busy_machine_gets_fewer_threads_and_keeps_most_of_the_best_speed() -> None:
    tuner = ThreadTuner(2)
    spent = run(tuner, busy, 300)
    assert tuner.threads in (1, 2)
    assert spent < 1.15 * 300 * busy(1)[0]


def test_threads_come_back_when_the_machine_is_quiet_again() -> None:
    tuner = ThreadTuner(4)
    run(tuner, busy, 100)
    run(tuner, quiet, 200)
    spent = run(tuner, quiet, 300)
    assert spent < 1.05 * 300 * quiet(4)[0]


def test_one_core_is_never_tuned() -> None:
    tuner = ThreadTuner(1)
    run(tuner, busy, 50)
    assert tuner.threads == 1


@pytest.mark.parametrize("seed", range(5))
def test_any_mix_of_rows_and_noise_stays_within_the_counts(seed: int) -> None:
    rng = random.Random(seed)
    tuner = ThreadTuner(6)
    for _ in range(400):
        wall, cpu = rng.choice((quiet, busy))(tuner.threads)
        assert tuner.observe(rng.randint(1, 40), wall * rng.uniform(0.5, 2), cpu) in (6, 3, 1)


def test_there_is_a_core() -> None:
    assert core_count() >= 1
