"""What a trace tells of an answer equals what the engine counted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.engine import Engine
from localspec.host.inbox import LIMIT, Inbox
from localspec.talk.trace import AnswerTrace
from localspec.types import (
    Event,
    Finished,
    GenerationRequest,
    Notice,
    SamplingParams,
    SpecParams,
    Standing,
    StepStats,
    Tokens,
    TreeTrace,
)
from tests.engine.support import draft_model, fake, ngrams

PROMPT = (3, 4, 5, 3)


def events_of(
    *,
    seed: int = 0,
    n: int = 40,
    spec: SpecParams | None = None,
    stop: tuple[str, ...] = (),
    trace: bool = True,
    n_ctx: int = 512,
    **sampling: object,
) -> list[Event]:
    """One answer of a fake engine whose draft model agrees with it now and then."""
    target = fake(12, seed=seed, n_ctx=n_ctx)
    wish = GenerationRequest(
        tokens=PROMPT,
        max_tokens=n,
        stop=stop,
        trace=trace,
        logprobs=2,
        sampling=SamplingParams(temperature=0.7, seed=seed, ignore_eos=True, **sampling),  # type: ignore[arg-type]
        spec=spec or SpecParams(depth=4, width=2, nodes=8),
    )
    with Engine(target, [draft_model(target, seed=seed, noise=1.5), ngrams(1)]) as engine:
        return list(engine.submit(wish))


def heard(events: Iterable[Event], **arguments: int) -> AnswerTrace:
    trace = AnswerTrace(**arguments)
    for event in events:
        trace.hear(event)
    return trace


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 99),
    spec=st.builds(SpecParams, depth=st.integers(0, 5), width=st.integers(1, 3), nodes=st.integers(0, 12)),
    n=st.integers(0, 30),
    stop=st.sampled_from([(), ("a",), ("ab", "c")]),
)
def test_statistics_before_the_end_are_the_engines_own(
    seed: int, spec: SpecParams, n: int, stop: tuple[str, ...]
) -> None:
    *events, last = events_of(seed=seed, spec=spec, n=n, stop=stop)
    trace = heard(events)
    assert isinstance(last, Finished)
    assert trace.finished is None
    assert trace.stats == last.stats
    trace.hear(last)
    assert trace.stats == last.stats
    assert tuple(token.id for token in trace.tokens) == last.ids
    assert {one.name for one in last.stats.by_source if one.accepted} <= set(trace.drafters)


def test_each_step_has_its_tokens_and_its_tree() -> None:
    trace = heard(events_of())
    assert [token for step in trace.steps for token in trace.tokens_of(step)] == trace.tokens
    for number, step in enumerate(trace.steps, 1):
        assert (step.number, step.joined, step.stats.tree) == (number, 1, None)
        tree, tokens = trace.tree(step), trace.tokens_of(step)
        assert (tree is None) == (step.stats.draft_n == 0)
        held = tokens[: step.stats.accepted]
        if tree is not None:
            assert [tree.tokens[node] for node in tree.path][: len(held)] == [token.id for token in held]
        drawn = trace.drawn(step)
        if step.stats.cut == 0:
            assert drawn is tokens[-1]
            assert (drawn.source, drawn.depth) == ("", 0)
    assert trace.last_draft is max((step for step in trace.steps if step.stats.draft_n), key=lambda step: step.number)
    assert any(step.stats.accepted for step in trace.steps)


def test_refused_guesses_are_known_at_the_targets_own_tokens() -> None:
    trace = heard(events_of(), trees=2)  # they outlive their trees
    named = 0
    for place, token in enumerate(trace.tokens):
        refused = trace.refused(place)
        if token.source:
            assert refused is None
        elif refused:
            named += 1
            assert token.id not in {one.token for one in refused}
            assert all(one.source and one.target_p is not None for one in refused)
            assert [one.draft_p for one in refused] == sorted((one.draft_p for one in refused), reverse=True)
    assert trace.refusals == named > 2


def test_without_a_trace_all_but_drafters_and_trees_is_known_while_it_comes() -> None:
    *events, last = events_of(trace=False)
    trace = heard(events)
    assert isinstance(last, Finished)
    assert trace.stats.by_source == ()
    assert trace.stats.lengths == last.stats.lengths
    assert trace.last_draft is not None
    assert trace.tree(trace.last_draft) is None


def test_only_the_newest_trees_are_kept() -> None:
    trace = heard(events_of(), trees=3)
    drafted = [step for step in trace.steps if step.stats.draft_n]
    assert len(drafted) > 3
    assert [step for step in trace.steps if trace.tree(step) is not None] == drafted[-3:]


def test_a_reader_that_was_far_behind_gets_exact_totals_in_the_end() -> None:
    events = events_of(n=2 * LIMIT, n_ctx=4 * LIMIT, spec=SpecParams(depth=1))
    inbox = Inbox()
    for event in events:
        inbox.put(event)
    got = [inbox.take()]
    while not isinstance(got[-1], Finished):
        got.append(inbox.take())
    assert len(got) < len(events)
    trace, exact = heard(got), heard(events)
    assert trace.stats == exact.stats
    assert trace.tokens == exact.tokens
    assert sum(step.joined for step in trace.steps) == exact.stats.steps
    assert any(step.joined > 1 for step in trace.steps)
    assert [token for step in trace.steps for token in trace.tokens_of(step)] == trace.tokens
    assert [record["step"] for record in trace.records()] == [step.number for step in trace.steps]


def test_acceptance_over_time_adds_up() -> None:
    trace = heard(events_of(n=60))
    count = len(trace.steps)
    each = trace.acceptance(count)
    assert [rate is None for rate in each] == [step.stats.draft_n == 0 for step in trace.steps]
    assert each == [step.stats.accepted / step.stats.draft_n if step.stats.draft_n else None for step in trace.steps]
    assert trace.acceptance(1) == [trace.stats.acceptance]
    for points in range(1, count + 3):
        assert 0 < len(trace.acceptance(points)) <= points
    assert trace.acceptance(0) == []
    assert AnswerTrace().acceptance(10) == []


def test_stretches_that_are_complete_stay_as_they_are() -> None:
    trace, shown = AnswerTrace(), []
    for accepted in (1, 0, 1, 1, 0, 1, 0, 0):
        trace.hear(Tokens(1, "", (), StepStats(1, 1, accepted, accepted + 1, 0, 0.0, 0.0, 0.0)))
        shown.append(trace.acceptance(4))
    assert shown[3] == [1, 0, 1, 1]
    assert shown[4] == [0.5, 1, 0]
    assert shown[5] == [0.5, 1, 0.5]
    assert shown[7] == [0.5, 1, 0.5, 0]


def step(accepted: int, *, plain: float | None, t: float = 1.0) -> Tokens:
    return Tokens(1, "", (), StepStats(3, 3, accepted, accepted + 1, 0, t / 4, t / 2, t / 4, t_plain=plain))


def test_time_saved_is_what_was_measured() -> None:
    trace = heard([step(3, plain=None)])
    assert (trace.stats.speedup, trace.saved) == (None, None)
    trace = heard([step(3, plain=4.0), step(0, plain=1.0, t=2.0)])
    assert trace.stats.speedup == pytest.approx(5 / 3)
    assert trace.saved == pytest.approx(2.0)
    assert trace.times == pytest.approx({"draft": 0.75, "verify": 1.5, "host": 0.75})


def test_records_are_json_and_hold_every_token() -> None:
    trace = heard(events_of(logit_bias=((7, float("-inf")),)))
    lines = [json.dumps(record, allow_nan=False) for record in trace.records()]
    records = [json.loads(line) for line in lines]
    assert len(records) == trace.stats.steps
    tokens = [token for record in records for token in record["tokens"]]
    assert [token["id"] for token in tokens] == [token.id for token in trace.tokens]
    assert [bytes(token["bytes"]) for token in tokens] == [token.piece for token in trace.tokens]
    assert all(len(token["top_logprobs"]) == 2 for token in tokens)
    assert {token["drafter"] for token in tokens} == {*trace.drafters, None}
    for key, total in (("draft_n", trace.stats.draft_n), ("draft_n_accepted", trace.stats.accepted)):
        assert sum(record[key] for record in records) == total
    for record, one in zip(records, trace.steps, strict=True):
        tree = trace.tree(one)
        assert record["at"] == one.at
        assert (record["tree"] and record["tree"]["parents"]) == (tree and list(tree.parents))


def said(drafter: str) -> Notice:
    standing = Standing(drafter, "left alone", "it does not pay")
    return Notice(1, standing.text, standing)


def test_what_is_said_of_drafters_stands_at_its_step() -> None:
    events: Sequence[Event] = [
        said("early"),
        Notice(1, "about nobody"),
        step(1, plain=None),
        said("one"),
        step(0, plain=None),
        step(0, plain=None),
        said("three"),
        said("more"),
    ]
    trace = heard(events)
    assert [(remark.after, remark.standing.drafter) for remark in trace.remarks] == [
        (0, "early"),
        (1, "one"),
        (3, "three"),
        (3, "more"),
    ]
    assert [[one["name"] for one in record["drafters"]] for record in trace.records()] == [
        ["early", "one"],
        [],
        ["three", "more"],
    ]


def test_drafters_are_met_in_trees_before_one_of_their_guesses_holds() -> None:
    tree = TreeTrace((5, 6, 7), (-1, 0, 1), (1.0, 0.5, 0.5), ("", "slow", "quick"), ())
    trace = heard([Tokens(1, "", (), StepStats(2, 1, 0, 1, 0, 0.0, 0.0, 0.0, tree))])
    assert trace.drafters == ["slow", "quick"]
