"""Several drafters at once: what each guessed, what is believed of it and whether it is asked are its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from localspec.control import AutoController, CostCurve, Limits, PassRecord, Walk, Wish
from localspec.control.controller import merged
from localspec.spec.tree import TokenTree
from localspec.types import SpecParams

SPEC = SpecParams(depth=8, nodes=16, width=4)
ROOM = Limits(16, 16, 16)


def chain(name: str, *tokens: int, score: float = 0.9) -> TokenTree:
    return TokenTree.chain([0, *tokens], [score] * len(tokens), name)


def steps(
    proposals: Mapping[str, TokenTree], came: Sequence[int], *, row_s: float = 0.05, whole: bool = False
) -> tuple[AutoController, list[TokenTree]]:
    """A controller after some steps in which the same was guessed, and ``came``; the trees it chose. ``whole``: all
    guesses were verified, whatever was chosen."""
    controller = AutoController(CostCurve({1: 1.0, 17: 1.0 + 16 * row_s}))
    at, chosen = 0, []
    for _ in range(40):
        wish = Wish(0, SPEC, ROOM, at, dict.fromkeys(proposals, 0))
        (prices,) = controller.plan([wish])
        made = {name: tree for name, tree in proposals.items() if name in prices}
        tree = controller.choose([wish], [made])[0] if made else TokenTree.root(0)
        if whole and made:
            tree = merged(wish.limits, list(made.values()))
        tokens, node = list[int](), 0
        for token in came:
            tokens.append(token)
            if (child := tree.children[node].get(token)) is None:
                break
            node = child
        wall = 1.0 + row_s * tree.draft_n
        record = PassRecord(len(tree), at, wall, wall, dict.fromkeys(prices, 1e-6), wall)
        controller.observe(record, [Walk(0, made, tree, tuple(tokens))])
        at += len(tokens)
        chosen.append(tree)
    return controller, chosen


def gains(controller: AutoController) -> dict[str, float]:
    return {name: watch.gain for name, watch in controller._chats[0].watches.items()}


def test_a_guess_of_two_stands_once_and_teaches_both() -> None:
    controller, chosen = steps({"one": chain("one", 5, 6), "two": chain("two", 5, 7)}, [5, 6, 9])
    assert any(tree.draft_n for tree in chosen)
    for tree in chosen:
        assert len(set(zip(tree.parents, tree.tokens, strict=True))) == len(tree)
    one, two = (controller._beliefs[name].of(0)(0.9) for name in ("one", "two"))
    assert one > 0.9, "both of its guesses held, whoever they were booked on"
    assert 0.3 < two < 0.7, "every second one held"


def test_who_is_believed_more_has_the_guess() -> None:
    """Also where the other claims more."""
    _, chosen = steps({"boaster": chain("boaster", 5, 7, 8, score=0.99), "modest": chain("modest", 5, 6)}, [5, 6, 9])
    assert {tree.sources[tree.children[0][5]] for tree in chosen[-5:] if tree.draft_n} == {"modest"}


def test_an_ask_that_read_a_whole_prompt_is_no_measure() -> None:
    """A drafter whose first ask took the time of ten passes is asked again at once."""
    controller = AutoController(CostCurve({1: 1.0, 17: 1.8}))
    asked = []
    for step in range(8):
        prices = controller.plan([Wish(0, SPEC, ROOM, step, {"one": 0})])[0]
        asked.append("one" in prices)
        seconds = dict.fromkeys(prices, 0.001 if step else 10.0)
        walk = Walk(0, {}, TokenTree.root(0), (1,))
        controller.observe(PassRecord(1, step, 1.0, 1.0, seconds, 1.0 + sum(seconds.values())), [walk])
    assert all(asked)


@pytest.mark.parametrize("row_s", [0.02, 0.05])
def test_nobody_pays_for_the_rows_of_another(row_s: float) -> None:
    """A drafter beside one whose guesses never hold is worth what it is worth alone."""
    right = chain("right", 5, 6)
    alone, _ = steps({"right": right}, [5, 6, 9], row_s=row_s, whole=True)
    both = {"right": right, "wrong": chain("wrong", 7, 8, 8, 8, 8, 8)}
    beside, _ = steps(both, [5, 6, 9], row_s=row_s, whole=True)
    assert gains(beside)["right"] == pytest.approx(gains(alone)["right"], abs=0.1)
    assert gains(beside)["wrong"] < 0


def test_what_two_guess_is_won_once() -> None:
    """One guesses further than the other, and wrongly: what held is not its doing."""
    alone, _ = steps({"one": chain("one", 5, 6)}, [5, 6, 9], whole=True)
    both, _ = steps({"one": chain("one", 5, 6), "two": chain("two", 5, 6, 7)}, [5, 6, 9], whole=True)
    assert gains(both)["one"] == pytest.approx(gains(alone)["one"], abs=0.1)
    assert gains(both)["two"] < 0.1
