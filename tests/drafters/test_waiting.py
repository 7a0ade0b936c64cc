"""Hidden states that wait to be taken in together."""

from __future__ import annotations

import numpy as np

from localspec.drafters.waiting import Waiting


def test_rows_come_out_in_order_and_in_one_piece() -> None:
    waiting = Waiting()
    assert not waiting, "nothing waits"
    for start, n in ((0, 2), (2, 1), (3, 4)):
        rows = np.arange(start, start + n, dtype=np.float32)[:, None]
        waiting.add({1: rows, 5: rows + 100})
    assert len(waiting) == 7
    assert waiting.whole[1].ravel().tolist() == list(range(7))
    assert waiting.whole[5].ravel().tolist() == list(range(100, 107))
    waiting.clear()
    assert not waiting


def test_what_the_target_writes_over_is_kept() -> None:
    states = np.ones((1, 3), np.float32)
    waiting = Waiting()
    waiting.add({0: states})
    states[:] = 7
    assert waiting.whole[0].tolist() == [[1.0, 1.0, 1.0]]


def test_it_is_full_before_it_takes_much_memory() -> None:
    waiting = Waiting()
    while not waiting.is_full:
        waiting.add({0: np.zeros((8, 2), np.float32)})
    assert 8 < len(waiting) <= 512
