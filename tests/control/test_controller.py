"""Prices, limits, and the controller that hands out what is allowed."""

from __future__ import annotations

from localspec.control import FixedController, Limits, PassRecord, Price, ThreadTuner, Wish
from localspec.spec.tree import TokenTree
from localspec.types import SpecParams

ROOM = Limits(depth=5, nodes=6, width=3)


def wish(spec: SpecParams, room: Limits = ROOM, *names: str) -> Wish:
    return Wish(0, spec, room, n_past=3, drafters=dict.fromkeys(names, 0))


def test_a_price_says_which_guesses_pay() -> None:
    price = Price(Limits(3, 8), row_s=0.2, token_s=1.0)
    assert price.pays(0.21)
    assert not price.pays(0.2)
    assert Price(Limits(3, 8)).pays(1e-9)


def test_limits_are_the_requests_within_the_room() -> None:
    spec = SpecParams(depth=9, nodes=4, width=8, p_min=0.1)
    assert wish(spec).limits == Limits(5, 4, 3, 0.1)
    assert wish(spec, Limits(-1, -1, 0)).limits == Limits(0, 0, 1, 0.1)
    assert Limits(0, 4).none
    assert Limits(4, 0).none


def test_every_drafter_is_asked_unless_nothing_is_allowed() -> None:
    controller = FixedController()
    on, off = controller.plan([wish(SpecParams(), ROOM, "a", "b"), wish(SpecParams(depth=0), ROOM, "a")])
    assert on == dict.fromkeys("ab", Price(Limits(3, 6, 1)))
    assert off == {}


def test_proposals_are_merged_and_the_likeliest_kept() -> None:
    one = TokenTree((7, 1, 2), (-1, 0, 1), (1.0, 0.9, 0.8), ("", "a", "a"))
    two = TokenTree((7, 1, 5, 3), (-1, 0, 0, 1), (1.0, 0.95, 0.2, 0.1), ("", "b", "b", "b"))
    spec = SpecParams(depth=4, nodes=3, width=2)
    (tree,) = FixedController().choose([wish(spec)], [{"a": one, "b": two}])
    assert {(tree.tokens[n], tree.sources[n]) for n in range(1, len(tree))} == {(1, "b"), (2, "a"), (5, "b")}
    (chain,) = FixedController().choose([wish(SpecParams(depth=4, width=1))], [{"a": one, "b": two}])
    assert chain.tokens == (7, 1, 2)


def test_the_tuner_hears_of_every_pass() -> None:
    controller = FixedController(ThreadTuner(2))
    assert controller.threads == 2
    for _ in range(200):
        threads = controller.threads or 0
        controller.observe(PassRecord(1, 10, 0.01 * threads, 0.005 * threads, {}), [])
    assert controller.threads == 1
    assert FixedController().threads is None
