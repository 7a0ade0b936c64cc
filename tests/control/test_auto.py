"""The controller on traces, with a clock that only costs advance: as good as the best fixed setting, never slower
than plain decoding."""

from __future__ import annotations

import random
from functools import cache

import pytest

from localspec.control import AutoController, CostCurve, FixedController, Limits, PassRecord, Walk, Wish
from localspec.control.belief import Beliefs, believed
from localspec.control.ledger import Ledger
from localspec.control.price import Price
from localspec.spec.tree import TokenTree
from localspec.types import SpecParams
from tests.control.simulation import CURVES, Source, run, source

N = 1536
AUTO = SpecParams(depth=12, nodes=16, width=4)
#: Kind of text → how often a draft model's and an n-gram's guess holds, and how much of the text n-grams can guess at.
TEXTS = {
    "prose": ([0.45] * N, [0.6] * N, 0.08),
    "code": ([0.78] * N, [0.93] * N, 0.3),
    "copy": ([0.97] * N, [0.97] * N, 0.95),
    "list": ([0.6] * N, [0.85] * N, 0.6),
    "switching": ([(0.9, 0.1)[i // 128 % 2] for i in range(N)], [(0.95, 0.2)[i // 128 % 2] for i in range(N)], 0.5),
    "always wrong": ([0.0] * N, [0.0] * N, 0.9),
}
DRAFT_PASS = {"Q4_1": 0.25, "F16": 0.25, "GPU": 0.08}


def sources(text: str, curve: str, seed: int) -> dict[str, Source]:
    alphas, by_ngrams, share = TEXTS[text]
    honest = text != "always wrong"
    return {
        "draft": source(alphas, seed, pass_s=DRAFT_PASS[curve], honest=honest),
        "ngram": source(by_ngrams, seed + 1, has=share, honest=honest),
    }


def fixed(depth: int) -> SpecParams:
    return SpecParams(depth=depth, nodes=16, mode="fixed")


@cache
def plainly(curve: str) -> float:
    return run(FixedController(), {}, CURVES[curve], N, spec=fixed(0)).seconds


@cache
def best_fixed(text: str, curve: str, name: str) -> float:
    mine = {name: sources(text, curve, seed=7)[name]}
    return min(
        run(FixedController(), mine, CURVES[curve], N, spec=fixed(depth)).seconds for depth in (1, 2, 3, 5, 8, 12)
    )


@pytest.mark.parametrize("names", [("ngram",), ("draft", "ngram")], ids="+".join)
@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("text", TEXTS)
def test_as_good_as_the_best_setting_and_never_slower(text: str, curve: str, names: tuple[str, ...]) -> None:
    cost, plain = CURVES[curve], plainly(curve)
    mine = {name: one for name, one in sources(text, curve, seed=7).items() if name in names}
    controller = AutoController(CostCurve({n: cost(n) for n in (1, 2, 4, 8, 16)}))
    auto = run(controller, mine, cost, N, spec=AUTO, noise=0.03)
    assert auto.seconds <= min(plain, *(best_fixed(text, curve, name) for name in names)) / 0.95
    assert auto.worst_window(plain / N, span=256, start=64) >= 0.98


@pytest.mark.parametrize("curve", ["Q4_1", "F16"])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("ask", "change"), [(0.02, 0.0), (0.03, 0.06)])
def test_small_costs_are_seen_too(text: str, curve: str, ask: float, change: float) -> None:
    """On a small model a look into the past takes some hundredths of a pass, and so does a new graph for another shape.
    Nobody can do without the first looks, and luck may be bad: some runs are looked at."""
    cost, plain = CURVES[curve], plainly(curve)
    alphas, share = TEXTS[text][1:]
    windows = []
    for seed in (8, 9, 10):
        mine = {"ngram": source(alphas, seed, has=share, honest=text != "always wrong", ask_s=ask)}
        settings = [run(FixedController(), mine, cost, N, spec=fixed(n), change=change).seconds for n in (1, 2, 4, 8)]
        controller = AutoController(CostCurve({n: cost(n) for n in (1, 2, 4, 8, 16)}, change))
        auto = run(controller, mine, cost, N, spec=AUTO, noise=0.03, change=change, seed=seed)
        assert auto.seconds <= min(plain, *settings) / 0.94
        windows.append(auto.worst_window(plain / N, span=256, start=64))
    assert sum(windows) / len(windows) >= 0.98
    assert min(windows) >= 0.97


@pytest.mark.parametrize("text", ["copy", "list"])
def test_a_pass_that_was_held_up_is_nobodys_fault(text: str) -> None:
    """One in twelve takes thirty times as long, as on a machine with more to do: guesses go on as before."""
    calm, busy = (
        run(
            AutoController(CostCurve({n: CURVES["Q4_1"](n) for n in (1, 2, 4, 8, 16)})),
            {"ngram": source(TEXTS[text][1], 8, has=TEXTS[text][2])},
            CURVES["Q4_1"],
            N,
            spec=AUTO,
            noise=0.03,
            stalls=stalls,
        )
        for stalls in (0.0, 0.08)
    )
    assert len(busy.steps) < 1.1 * len(calm.steps) < 0.95 * N


def test_it_learns_the_curve_where_none_was_measured() -> None:
    mine = sources("copy", "F16", seed=3)
    plain = run(FixedController(), {}, CURVES["F16"], N, spec=fixed(0)).seconds
    assert plain / run(AutoController(), mine, CURVES["F16"], N, spec=AUTO).seconds > 2


def test_a_disturbed_measurement_is_not_believed() -> None:
    """A point that nobody tries would never be corrected."""
    curve = CostCurve({1: 1.0, 4: 2.5, 8: 25.0, 16: 8.0})
    assert curve.seconds(8) == pytest.approx(5.0)
    assert curve.seconds(16) == pytest.approx(8.0)
    assert CostCurve({1: 3.0, 4: 2.5}).seconds(4) == pytest.approx(3.0)


def test_where_no_pass_of_one_row_was_undisturbed_one_is_still_no_less_than_its_share() -> None:
    """A line through the points of more rows would have it take nothing: plain decoding looked endlessly fast."""
    curve = CostCurve({2: 1.0, 4: 3.5})
    assert curve.seconds(1) == pytest.approx(0.5)
    controller = AutoController(curve)
    controller.plan([Wish(0, AUTO, Limits(8, 8), 16, {"suffix": 0})])
    controller.observe(PassRecord(1, 16, 0.6, 0.6, {}, 0.6), [Walk(0, {}, TokenTree.root(1), (2,))])
    assert curve.seconds(1) > 0.5


def test_passes_that_take_no_time_at_all_break_nothing() -> None:
    """A clock may be that coarse."""
    controller = AutoController(CostCurve())
    for _ in range(3):
        controller.plan([Wish(0, SpecParams(), Limits(8, 8), 16, {"suffix": 0})])
        controller.observe(PassRecord(1, 16, 0.0, 0.0, {}, 0.0), [Walk(0, {}, TokenTree.root(1), (2,))])
    assert controller.plan([Wish(0, AUTO, Limits(8, 8), 19, {"suffix": 0})])


def test_a_disturbed_price_of_change_is_not_believed() -> None:
    """It would explain away all that passes take, and the level with it."""
    curve = CostCurve({1: 1.0, 4: 2.0}, change_s=30.0)
    for i in range(40):
        curve.observe(*((1, 1.1), (4, 2.1))[i % 2])
    assert curve.seconds(1) == pytest.approx(1.0, rel=0.2)
    assert curve.change(4, home=1) < 1.0


def test_a_machine_that_slows_down_changes_no_decision() -> None:
    """The level of the curve follows, its shape stays: neighbours make plain decoding slower too."""
    curve = CostCurve({1: 1.0, 8: 2.0})
    for _ in range(60):
        curve.observe(1, 3.0)
    assert curve.seconds(8) == pytest.approx(6.0, rel=0.1)


def test_a_wrong_shape_is_corrected() -> None:
    curve = CostCurve({1: 1.0, 8: 2.0})
    for _ in range(300):
        curve.observe(1, 1.0)
        curve.observe(8, 5.0)
    assert curve.seconds(8) / curve.seconds(1) == pytest.approx(5.0, rel=0.1)


def test_a_single_slow_pass_moves_little() -> None:
    curve = CostCurve({1: 1.0, 4: 1.5})
    for seconds in (1.0, 1.0, 50.0, 40.0, 1.0):
        curve.observe(1, seconds)
    assert curve.seconds(1) == pytest.approx(1.0)
    assert curve.seconds(4) == pytest.approx(1.5)


def observed(curve: CostCurve, cells: int, n: int, *, read: float = 0.002, level: float = 1.0) -> CostCurve:
    """After ``n`` more passes of one row, which takes 1 s and ``read`` for every cell."""
    for _ in range(n):
        curve.observe(1, level * (1.0 + read * cells), cells)
    return curve


def test_in_a_long_context_every_row_reads_it_again() -> None:
    """Four rows read four times 4,000 cells, so they take 1.5 + 4 · 8 seconds and not 1.5 times 9."""
    curve = observed(CostCurve({1: 1.0, 4: 1.5}), 100, 50)
    assert curve.seconds(4) == pytest.approx(1.5, rel=0.25)
    observed(curve, 4000, 4)
    assert curve.seconds(1) == pytest.approx(9.0, rel=0.05)
    assert curve.seconds(4) == pytest.approx(33.5, rel=0.05)
    observed(curve, 100, 4)
    assert curve.seconds(4) == pytest.approx(1.5 + 4 * 0.2, rel=0.05)


def test_neighbours_in_a_long_context_are_no_slope_for_long() -> None:
    """They are taken for it at first, which makes rows dear: no loss. Where they stay, the level takes over."""
    curve = observed(CostCurve({1: 1.0, 4: 1.5}), 1000, 20, read=0.0, level=2.0)
    for cells in (2000, 3000, 4500, 6000):
        observed(curve, cells, 20, read=0.0, level=2.0)
    assert curve.seconds(1) == pytest.approx(2.0, rel=0.05)
    assert curve.seconds(4) < 5.0


def test_long_contexts_change_what_pays() -> None:
    """Where attention is most of a pass, guesses win nothing; and what is called plain is plain at this length."""
    mine = {"ngram": source([0.8] * N, 5, has=0.6)}
    read = 0.004  # 16 s a row at 4,000 cells, where the weights take one
    controller = AutoController(CostCurve({n: CURVES["F16"](n) for n in (1, 2, 4, 8, 16)}))
    early = run(controller, mine, CURVES["F16"], 200, spec=AUTO)
    plain = run(FixedController(), {}, CURVES["F16"], 200, spec=fixed(0))
    assert plain.seconds / early.seconds > 1.2
    late = run(controller, mine, CURVES["F16"], 200, spec=AUTO, read=read, before=4000)
    plain = run(FixedController(), {}, CURVES["F16"], 200, spec=fixed(0), read=read, before=4000)
    assert plain.seconds / late.seconds > 0.97
    assert controller.plain_s == pytest.approx(plain.steps[-1][0], rel=0.02)


def test_another_text_begins_in_doubt() -> None:
    """All guesses held in the last answer; in this one none does, and they look as good. One look costs a row, trust
    costs a whole tree."""
    controller = AutoController(CostCurve({n: CURVES["Q4_1"](n) for n in (1, 2, 4, 8, 16)}))
    copied = Source([True] * N, [0.95] * N, [True] * N)
    false = Source([False] * N, [0.95] * N, [True] * N)
    first = run(controller, {"ngram": copied}, CURVES["Q4_1"], 200, spec=AUTO)
    again = run(controller, {"ngram": copied}, CURVES["Q4_1"], 100, spec=AUTO)
    other = run(controller, {"ngram": false}, CURVES["Q4_1"], 100, spec=AUTO)
    assert len(first.steps) / 200 < 0.5
    assert len(again.steps) / 100 < 0.5, "one guess that holds is enough"
    assert sum(seconds for seconds, _ in other.steps) < 1.01 * 100 * (1.03 + 1e-4)


def test_modes() -> None:
    controller = AutoController(CostCurve({1: 1.0, 2: 1.1, 16: 2.0}))
    room = Limits(8, 8, 8)
    off, all_of_it, auto = (
        controller.plan([Wish(0, SpecParams(depth=4, mode=mode), room, 0, {"ngram": 0})])[0]
        for mode in ("off", "fixed", "auto")
    )
    assert off == {}
    assert all_of_it["ngram"].limits.depth == 4
    assert all_of_it["ngram"].believed(0.9) == 0.9
    assert auto["ngram"].believed(0.9) < 0.9, "nobody is taken at his word"


def test_what_is_believed_follows_what_held() -> None:
    beliefs = Beliefs()
    rng = random.Random(1)
    tree = TokenTree((0, 1, 2), (-1, 0, 1), (1.0, 0.99, 0.3), ("", "a", "a"))
    for _ in range(200):
        beliefs.learn(5, tree, (1, 2, 3) if rng.random() < 0.5 else (9,))
    doubted = believed(tree, beliefs.of(5))
    assert 0.2 < doubted.scores[1] < 0.7, "0.99 was claimed, half of them held"
    assert doubted.scores[2] > 0.6, "0.3 was claimed, all of them held"
    assert doubted.tokens == tree.tokens


def test_guesses_that_were_not_verified_teach_too() -> None:
    beliefs = Beliefs()
    tree = TokenTree.chain([0, 1, 2], [0.9, 0.9], "a")
    assert beliefs.learn(1, tree, (1,)) == (1, 1)
    assert beliefs.learn(1, tree, (1, 2, 3)) == (2, 2)
    assert beliefs.learn(1, tree, (7,)) == (0, 1)


def test_guesses_of_two_conversations_compete() -> None:
    """Rows are dear: the sure guesses of one are verified, the doubtful ones of the other are not."""
    controller = AutoController(CostCurve({2: 1.0, 3: 1.2, 4: 1.4, 8: 2.2}))
    sure = TokenTree.chain([0, 1, 2], [0.99, 0.99], "ngram")
    unsure = TokenTree.chain([0, 1, 2], [0.1, 0.1], "ngram")
    read = [10, 10]
    for _ in range(40):
        wishes = [Wish(seq, AUTO, Limits(8, 8, 8), read[seq], {"ngram": 0}) for seq in (0, 1)]
        controller.plan(wishes)
        trees = controller.choose(wishes, [{"ngram": sure}, {"ngram": unsure}])
        walks = [
            Walk(0, {"ngram": sure}, trees[0], (1, 2, 3)[: len(trees[0])]),
            Walk(1, {"ngram": unsure}, trees[1], (9,)),
        ]
        read = [n + len(walk.tokens) for n, walk in zip(read, walks, strict=True)]
        rows = sum(len(tree) for tree in trees)
        controller.observe(PassRecord(rows, 20, 0.6 + 0.2 * rows, 1.0, {"ngram": 1e-4}, 0.6 + 0.2 * rows), walks)
    assert trees[0].draft_n == 2
    assert trees[1].draft_n == 0


def test_the_user_hears_why() -> None:
    mine = {"draft": source([0.1] * N, 4, pass_s=0.5)}
    controller = AutoController(CostCurve({1: 1.0, 2: 1.4, 8: 4.0}))
    run(controller, mine, CURVES["Q4_1"], 200, spec=AUTO)
    ((seq, standing),) = controller.notices()
    assert (seq, standing.drafter, standing.state) == (0, "draft", "left alone")
    assert " % of its guesses hold" in standing.text
    assert controller.notices() == []


@pytest.mark.parametrize(
    ("lag", "left", "asked"), [(2, 40, True), (6000, None, False), (300, 16, False), (300, 400, True)]
)
def test_what_is_yet_to_be_read_must_be_won_back(lag: int, left: int | None, asked: bool) -> None:
    """A head that pays has not read the prompt of another conversation: for a short answer it is not worth it."""
    controller = AutoController(CostCurve({1: 1.0, 2: 1.1, 4: 1.3, 8: 2.0}))
    run(controller, {"draft": source([0.6] * N, 4, pass_s=0.07)}, CURVES["F16"], 400, spec=AUTO)
    (prices,) = controller.plan([Wish(1, AUTO, Limits(64, 64, 64), 0, {"draft": lag}, frozenset({"draft"}), left)])
    assert ("draft" in prices) == asked


class Counting:
    """A guesser that counts how often it is asked."""

    def __init__(self, guesser: Source) -> None:
        self._guesser = guesser
        self.pass_s, self.ask_s = guesser.pass_s, guesser.ask_s
        self.asks = 0

    def propose(self, name: str, at: int, price: Price) -> TokenTree:
        self.asks += 1
        return self._guesser.propose(name, at, price)


def test_what_cannot_pay_however_often_it_holds_is_hardly_ever_asked() -> None:
    """A draft model that takes as long as the target: two asks show what it costs."""
    draft = Counting(source([0.99] * N, 4, pass_s=1.0))
    controller = AutoController(CostCurve({1: 1.0, 2: 1.4, 8: 4.0}))
    run(controller, {"draft": draft}, CURVES["Q4_1"], 900, spec=AUTO)
    assert draft.asks == 2
    run(controller, {"draft": draft}, CURVES["Q4_1"], 900, spec=AUTO, seed=1)
    assert draft.asks <= 4, "after a thousand tokens it may be cheaper"


def test_a_trial_that_was_held_up_is_no_verdict() -> None:
    """The one pass that told what a draft model costs took twice as long: it is given the rest of its trial."""

    class HeldUp(Counting):
        @property
        def pass_s(self) -> float:
            return 1.0 if self.asks == 2 else 0.45

        @pass_s.setter
        def pass_s(self, _: float) -> None:
            pass

    draft = HeldUp(source([0.97] * N, 4, pass_s=0.45))
    controller = AutoController(CostCurve({1: 1.0, 2: 1.4, 4: 1.6, 8: 2.2}))
    run(controller, {"draft": draft}, lambda rows: {1: 1.0, 2: 1.4}.get(rows, 1.2 + 0.125 * rows), 300, spec=AUTO)
    assert draft.asks > 20


def test_the_ledger_forgets() -> None:
    ledger = Ledger()
    for _ in range(300):
        ledger.add(1, 2.0, 1.0)
    assert ledger.loss == pytest.approx(1.0)
    assert not ledger.affords(0.1)
    for _ in range(300):
        ledger.add(2, 1.0, 2.0)
    assert ledger.loss == pytest.approx(-0.5)
    assert ledger.affords(13.0)


def test_trials_leave_most_of_what_was_won() -> None:
    ledger = Ledger()
    for _ in range(300):
        ledger.add(2, 1.0, 2.0)
    won = 128.0  # over a span of 256 tokens
    assert not ledger.affords(0.2 * won)
    while ledger.affords(4.0):
        ledger.tries()
        ledger.add(0, 4.0, 0.0)
    assert -ledger.loss * 256 == pytest.approx((4.0 - 0.005 * 256) / 0.1, abs=4.0)


def test_what_trials_may_cost_adds_up_until_one_is_made() -> None:
    ledger = Ledger()
    for _ in range(2000):
        ledger.add(1, 1.0, 1.0)
    assert ledger.affords(9.5)
    assert not ledger.affords(10.5)
    ledger.tries()
    assert not ledger.affords(3.0)


def test_bad_luck_in_one_conversation_is_forgotten_in_those_that_follow() -> None:
    """Their answers are short, and a trial reads a prompt: it is made when a two-hundredth of the time pays for it."""
    controller, curve = AutoController(CostCurve({1: 1.0, 2: 1.1, 4: 1.3, 8: 2.0})), CURVES["F16"]
    run(controller, {"draft": source([0.0] * N, 1, pass_s=0.25, honest=False)}, curve, 256, spec=AUTO)
    asks, seconds = [], []
    for seq in range(1, 61):
        draft = Counting(source([0.97] * N, seq, pass_s=0.25))
        seconds.append(run(controller, {"draft": draft}, curve, 64, spec=AUTO, seq=seq, lag=200).seconds)
        asks.append(draft.asks)
    first = next(i for i, n in enumerate(asks) if n)
    assert all(asks[first:])
    plain = 64 * plainly("F16") / N
    assert sum(seconds[: first + 1]) < 1.02 * plain * (first + 1)
    assert sum(seconds[first + 1 :]) < 0.8 * plain * len(seconds[first + 1 :])


def test_answers_without_guesses_pay_for_no_trials() -> None:
    """Requests with guesses and without may come in turn: the latter make no more trials affordable."""

    def asks(between: int) -> int:
        controller, curve = AutoController(CostCurve({1: 1.0, 2: 1.1, 4: 1.3, 8: 2.0})), CURVES["F16"]
        draft = Counting(source([0.0] * N, 1, pass_s=0.25, honest=False))
        for seq in range(40):
            run(controller, {"draft": draft}, curve, 64, spec=AUTO, seq=seq, lag=50)
            run(controller, {"draft": draft}, curve, between, spec=SpecParams(mode="off"), seq=seq)
        return draft.asks

    assert asks(256) == asks(0)


def test_a_text_read_for_a_trial_makes_no_row_dearer() -> None:
    ledger = Ledger()
    for _ in range(100):
        ledger.add(1, 1.0, 1.0, kind="plain")
    ledger.add(2, 7.0, 2.0, reading=5.5)
    assert ledger.caution == 1.0
    assert not ledger.affords(0.0)  # and yet it was paid


def test_n_grams_guess_on_beside_a_draft_model_that_does_not_pay() -> None:
    def held(**more: Source) -> int:
        curve, found = CURVES["Q4_1"], 0
        controller = AutoController(CostCurve({n: curve(n) for n in (1, 2, 4, 8, 16)}))
        for seq in range(30):
            ngrams = source([0.6] * N, seq, has=0.3)
            steps = run(controller, {"ngram": ngrams, **more}, curve, 96, spec=AUTO, seq=seq, lag=150).steps
            found += sum(tokens - 1 for _, tokens in steps)
        return found

    alone = held()
    assert alone > 300
    assert held(draft=source([0.3] * N, 1, pass_s=0.3)) >= alone
