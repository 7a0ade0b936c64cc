"""Hidden states that wait to be taken in together."""

from __future__ import annotations

import numpy as np

from localspec.drafters.waiting import Waiting


def test_rows_come_out_in_order_and_in_one_piece() -> None:
    waiting = Waiting((1, 5))
    assert not waiting, "nothing waits"
    start = 0
    for n, rows in ((2, range(2)), (3, (0, 2)), (400, range(1, 400)), (1, (0,))):
        states = np.arange(start, start + n, dtype=np.float32)[:, None]
        waiting.take({1: states, 5: states + 1000, 7: states}, rows, 0)
        start += n
    told = [0, 1, 2, 4, *range(6, 405), 405]
    assert len(waiting) == len(told)
    assert {layer: states.ravel().tolist() for layer, states in waiting.whole.items()} == {
        1: told,
        5: [1000 + n for n in told],
    }


def test_what_no_longer_stands_is_cut_off() -> None:
    waiting = Waiting((0,))
    waiting.take({0: np.arange(5, dtype=np.float32)[:, None]}, range(5), 0)
    waiting.cut(9)
    assert len(waiting) == 5
    waiting.cut(2)
    waiting.take({0: np.full((1, 1), 8, np.float32)}, (0,), 0)
    assert waiting.whole[0].ravel().tolist() == [0, 1, 8]
    waiting.cut(0)
    assert not waiting


def test_what_is_taken_in_from_the_front_is_dropped() -> None:
    waiting = Waiting((0, 2))
    states = np.arange(5, dtype=np.float32)[:, None]
    waiting.take({0: states, 2: states + 10}, range(5), 0)
    waiting.drop(2)
    waiting.take({0: states, 2: states + 10}, (0,), 0)
    assert {layer: rows.ravel().tolist() for layer, rows in waiting.whole.items()} == {
        0: [2, 3, 4, 0],
        2: [12, 13, 14, 10],
    }
    waiting.drop(4)
    assert not waiting


def test_what_the_target_writes_over_is_kept() -> None:
    states = np.ones((1, 3), np.float32)
    waiting = Waiting((0,))
    waiting.take({0: states}, (0,), 0)
    states[:] = 7
    assert waiting.whole[0].tolist() == [[1.0, 1.0, 1.0]]


def test_it_is_full_before_it_takes_much_memory() -> None:
    """Narrow states may be many: a head that is never asked for guesses never reads them."""
    for width, most in ((65536, 64), (4096, 128), (512, 1024)):
        waiting = Waiting((0, 3))
        states = np.zeros((8, width), np.float32)
        while not waiting.take({0: states, 3: states}, range(8), 0):
            pass
        assert len(waiting) == most


def test_what_is_known_is_skipped_and_nothing_is_taken_behind_a_gap() -> None:
    waiting, given = Waiting((0,)), {0: np.arange(4, dtype=np.float32)[:, None]}
    for skipped in (-1, 3, 9):
        waiting.take(given, (0, 2, 3), skipped)
    assert not waiting
    waiting.take(given, (0, 2, 3), 1)
    assert waiting.whole[0].ravel().tolist() == [2, 3]
