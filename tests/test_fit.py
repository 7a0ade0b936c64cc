"""What fits on devices, with models of a few bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.fit import DEVICE_READS, STEP, Device, Fit, Model, Share, fit, unplanned
from localspec.types import Placement

TRAINED, LEAST = 8 * STEP, 2 * STEP


def model(flag: str = "-ngl", blocks: int = 10, size: int = 10, cell: int = 1, **changes: object) -> Model:
    """An output layer and ``blocks`` others of ``size`` bytes; ``cell`` more bytes of cache for each step of context,
    and 5 of buffers. Passes read a million times as much, for times that are more than none."""
    plain = Model(
        flag,
        sizes=lambda n_ctx: (size, *[size + cell * n_ctx // STEP] * blocks),
        buffers=lambda n_ctx: 5,
        read=(blocks + 1) * size * 10**6,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


TARGET, DRAFT = model(), model("-ngld", blocks=3, size=1, cell=0)


def card(room: int, name: str = "CUDA0") -> Device:
    return Device(name, room + 3, 3)


def fitted(room: int, *models: Model, n_ctx: int = 0) -> Fit | None:
    return fit(models or (TARGET,), [card(room)], n_ctx, TRAINED, LEAST)


def shares(found: Fit | None) -> list[tuple[int, ...]]:
    assert found is not None
    return [share.each for share in found.shares]


def test_where_all_fits_nothing_is_done() -> None:
    assert fitted(10 + 10 * 18 + 5) is None
    assert fitted(10 + 10 * 18 + 4) is not None


def test_a_context_that_was_not_given_is_shortened_first() -> None:
    found = fitted(10 + 10 * 18 + 4)
    assert found is not None
    assert (found.n_ctx, shares(found)) == (7 * STEP, [(11,)])
    assert found.told == "fit: -c 1792: 185 B of 197 B free on CUDA0; all layers find room so"
    shortest = fitted(10 + 10 * 12 + 5)
    assert shortest is not None
    assert (shortest.n_ctx, shares(shortest)) == (LEAST, [(11,)])


def test_layers_stay_on_the_cpu_where_that_does_not_help() -> None:
    found = fitted(10 + 10 * 12 + 4)
    assert found is not None
    assert (found.n_ctx, shares(found)) == (LEAST, [(10,)])
    # Nine of eleven layers leave a good tenth of the bytes to the CPU, at a tenth of the speed.
    gain = 130 / (12 + 118 / 10)
    assert found.told == (
        f"fit: -c 512 -ngl 10: 123 B of 137 B free on CUDA0; {gain:.1f} times as fast to be expected as the CPU alone"
    )


def test_a_context_that_was_given_stays() -> None:
    found = fitted(100, n_ctx=4 * STEP)
    assert found is not None
    assert (found.n_ctx, shares(found)) == (4 * STEP, [(7,)])
    assert found.told.startswith("fit: -ngl 7: ")


def test_a_small_draft_model_is_worth_layers_of_the_target() -> None:
    """It is read once for each guess; the target would take all of the room."""
    large, small = model(blocks=39, cell=0), model("-ngld", blocks=9, size=1, cell=0)
    found = fitted(10 + 380, large, small)
    assert found is not None
    assert shares(found) == [(37,), (10,)]
    assert found.told == (
        "fit: -c 512 -ngl 37 -ngld 10: 390 B of 393 B free on CUDA0;"
        " 1.2 times as fast to be expected as -ngl 38 -ngld 0"
    )


def test_layers_that_were_given_stay() -> None:
    given_draft = replace(DRAFT, fixed=0)
    found = fitted(10 + 10 + 3 * 14, TARGET, given_draft, n_ctx=4 * STEP)
    assert shares(found) == [(4,), (0,)]
    assert found is not None
    assert "-ngl 4: " in found.told
    assert "-ngld" not in found.told
    assert fitted(14, TARGET, replace(DRAFT, fixed=4), n_ctx=4 * STEP) is not None
    assert fitted(13, TARGET, replace(DRAFT, fixed=4), n_ctx=4 * STEP) is None, "llama.cpp has to say so"


def test_no_room_at_all() -> None:
    found = fitted(0)
    assert shares(found) == [(0,)]
    assert found is not None
    assert found.told == "fit: -c 512 -ngl 0: 5 B of 3 B free on CUDA0; not a layer finds room"


def test_several_devices_are_filled_one_after_the_other() -> None:
    target, draft = replace(TARGET, on=(0, 1)), replace(DRAFT, on=(1,))
    found = fit((target, draft), [card(5 + 30), card(10 + 36, "CUDA1")], 4 * STEP, TRAINED, LEAST)
    # Two blocks of 14 bytes here; there the draft model's 4, and beside it the output layer and one more block.
    assert shares(found) == [(2, 2), (4,)]
    assert found is not None
    assert [dict(share.bytes) for share in found.shares] == [{"CUDA0": 33, "CUDA1": 29}, {"CUDA1": 9}]
    assert "-ngl 4 -ngld 4 -ts 2,2: 33 B of 38 B free on CUDA0, 38 B of 49 B free on CUDA1" in found.told


def test_a_model_for_the_cpu_alone() -> None:
    found = fitted(100, TARGET, replace(DRAFT, on=()), n_ctx=4 * STEP)
    assert shares(found) == [(7,), ()]


models = st.builds(model, st.just("-ngl"), st.integers(0, 6), st.integers(1, 9), st.integers(0, 3))
drafts = st.none() | st.builds(model, st.just("-ngld"), st.integers(0, 3), st.integers(1, 4), st.integers(0, 2))


@given(models, drafts, st.integers(0, 120), st.integers(0, 120), st.sampled_from([0, LEAST, TRAINED]))
def test_it_is_never_over_the_room(target: Model, draft: Model | None, one: int, other: int, n_ctx: int) -> None:
    devices = [card(one), card(other, "CUDA1")]
    pair = [replace(each, on=(0, 1)) for each in (target, draft) if each is not None]
    found = fit(pair, devices, n_ctx, TRAINED, LEAST)
    if found is not None:
        for device in devices:
            buffers = 5 * len(pair)
            taken = sum(share.bytes[device.name] for share in found.shares)
            assert taken <= max(device.room, buffers)
        assert found.n_ctx == n_ctx or LEAST <= found.n_ctx <= TRAINED
        assert [share.layers for share in found.shares] == [sum(share.each) for share in found.shares]


@given(models, st.integers(0, 150), st.integers(0, 50))
def test_more_room_is_never_worse(target: Model, room: int, more: int) -> None:
    def outcome(room: int) -> tuple[int, int]:
        found = fitted(room, target)
        return (TRAINED, len(target.sizes(1))) if found is None else (found.n_ctx, found.shares[0].layers)

    (n_ctx, layers), (longer, greater) = outcome(room), outcome(room + more)
    assert longer >= n_ctx
    assert greater >= layers


def test_what_takes_more_than_was_planned_is_said() -> None:
    share = Share(3, (3,), {"CUDA0": 10**9})
    assert unplanned("draft", share, [Placement("CUDA0", 3, 8 * 10**8, 10**8, 2 * 10**8)]) == []
    (line,) = unplanned("draft", share, [Placement("CUDA0", 3, 9 * 10**8, 10**8, 2 * 10**8), Placement("CPU", 1, 9, 9)])
    assert line.startswith("fit: the draft takes 1.2 GB of CUDA0, 1.0 GB were planned: ")


def test_times_follow_from_bytes() -> None:
    part = replace(TARGET, read=int(DEVICE_READS)).part(STEP)
    assert (part.device(1), part.cpu(1)) == pytest.approx((1.0, 10.0))
    assert (part.device(2), part.cpu(2)) == pytest.approx((1.02, 11.0))
