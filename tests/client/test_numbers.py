"""What servers tell of guesses, as statistics of ours."""

from __future__ import annotations

import pytest

from localspec.client import counters
from localspec.client.engine import RemoteEngine
from localspec.client.numbers import drafted, statistics
from localspec.client.site import Site
from localspec.report import finite, speculation_record, status_line, timings_record
from localspec.types import Finished, SourceStats, SpecStats, Timings
from tests.client.server import Script, says, serving
from tests.client.support import USUAL, end

OURS = SpecStats(
    steps=9,
    drafted_steps=6,
    draft_n=20,
    tested=15,
    accepted=11,
    emitted=20,
    t_draft=0.25,
    t_verify=1.5,
    t_host=0.125,
    t_plain=3.0,
    t_judged=1.5,
    accepted_at=(6, 5),
    tested_at=(8, 7),
    lengths=(1, 2, 3),
    by_source=(SourceStats("suffix", 20, 11),),
)
CLOCK = Timings(7, 3, 0.25, 0.3, 20, 2.0, first_n=2)


def test_what_our_server_tells_comes_back_whole() -> None:
    told = finite(speculation_record(OURS))
    assert statistics(told, timings_record(CLOCK, OURS)) == OURS


@pytest.mark.parametrize("told", [{}, {"draft_n": 0}, {"draft_n": "9"}, {"draft_n": True}])
def test_servers_that_tell_nothing(told: dict[str, object]) -> None:
    assert drafted(told) is None
    assert statistics({}, told) == SpecStats()


def test_the_status_line_says_what_is_known() -> None:
    """Two counts are no α and no length; and of a server that tells nothing, nobody knows whether it guesses."""
    counted = Finished(1, "stop", (), None, CLOCK, SpecStats(draft_n=20, accepted=11))
    assert status_line(counted) == "20 tok · 9 tok/s · accepted 55 % (11/20) · 3/7 prompt tokens reused"
    silent = Finished(1, "stop", (), None, CLOCK, SpecStats())
    assert status_line(silent) == "20 tok · 9 tok/s · 3/7 prompt tokens reused"


def metrics(drafts: int, drafted: int, held: tuple[int, ...], running: int = 0) -> str:
    """vLLM's page, with labels on everything; each engine has lines of its own."""
    labels = '{engine="0",model_name="m"}'
    lines = [f"vllm:num_requests_running{labels} {running}"]
    for name, value in (("drafts", drafts), ("draft_tokens", drafted), ("accepted_tokens", sum(held))):
        lines.append(f"vllm:spec_decode_num_{name}_total{labels} {value}.0")
    for place, value in enumerate(held):
        lines.append(f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{place}"}} {value}.0')
    return "\n".join(lines)


def test_guesses_of_vllm_from_its_metrics() -> None:
    pages = iter([metrics(10, 30, (5, 2)), metrics(14, 42, (8, 4))])
    script = Script([says("a", "b")], owner="vllm", pages={"/metrics": lambda _body: next(pages)})
    with serving(script) as url, RemoteEngine(url) as engine:
        stats = end(list(engine.submit(USUAL))).stats
    assert (stats.drafted_steps, stats.draft_n, stats.accepted, stats.accepted_at) == (4, 12, 5, (3, 2))
    assert stats.mean_length == pytest.approx(1 + 5 / 4)


def test_nothing_is_known_of_guesses_beside_those_of_others() -> None:
    with serving(Script([says("a")], pages={"/metrics": metrics(9, 9, (9,), running=1)})) as url:
        site = Site(url)
        busy = counters.read(site)
        site.close()
    assert busy.since(counters.Counters()) == SpecStats()
    assert counters.Counters().since(busy) == SpecStats()
