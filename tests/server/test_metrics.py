"""Metrics, the dashboard and the alerts made of them, and `localspec top` looking at a server of ours."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx2
import pytest

from localspec.client.prometheus import parse
from localspec.tools.bench.server import Server as Measured
from localspec.tools.bench.server import ServerRunner
from localspec.tools.prompts import Prompt
from localspec.tools.top.board import Board
from localspec.tools.top.source import Server
from localspec.types import SamplingParams
from tests.server.factories import Options
from tests.server.support import HELLO, Site, serving, until
from tests.server.test_life import LONG, raw

ALERTS = Path(str(files("localspec.server") / "alerts.yml"))
DASHBOARD = Path(str(files("localspec.server") / "dashboard.json"))


def samples(site: Site) -> dict[str, float]:
    """Every sample by its line's beginning."""
    text = site.client.get("/metrics").text
    return {one.name + "".join(f"[{key}={value}]" for key, value in one.labels): one.value for one in parse(text)}


@pytest.fixture(scope="module")
def counted() -> Any:
    """What the metrics say after a few answers, and the answers."""
    with serving() as site:
        fields = {"messages": HELLO, "max_tokens": 60, "speculative": "fixed"}
        answers = [site.ask("/v1/chat/completions", **fields) for _ in range(3)]
        yield samples(site), answers


def test_counters_add_up_to_what_clients_were_told(counted: Any) -> None:
    found, answers = counted
    timings = [answer["timings"] for answer in answers]
    guesses = [answer["speculation"] for answer in answers]
    assert found["llamacpp:tokens_predicted_total"] == 180
    assert found["llamacpp:prompt_tokens_total"] == sum(one["prompt_n"] for one in timings)
    assert found["llamacpp:prompt_tokens_cached_total"] == sum(one["cache_n"] for one in timings) > 0
    assert found["llamacpp:spec_decode_num_draft_tokens_total"] == sum(one["draft_n"] for one in timings)
    accepted = sum(one["draft_n_accepted"] for one in timings)
    assert found["llamacpp:spec_decode_num_accepted_tokens_total"] == accepted > 0
    assert found["llamacpp:spec_decode_num_drafts_total"] == sum(one["drafted_steps"] for one in guesses)
    places = [value for name, value in found.items() if "per_pos_total[position=" in name]
    assert sum(places) == accepted
    assert found["localspec:alpha"] == pytest.approx(accepted / sum(one["tested"] for one in guesses))
    assert found["localspec:acceptance"] == pytest.approx(
        accepted / found["llamacpp:spec_decode_num_draft_tokens_total"]
    )
    assert found["localspec:rows_total"] == sum(one["steps"] + one["draft_n"] for one in guesses)
    assert found["localspec:prompts_total"] == 3
    assert found["localspec:prefix_hits_total"] == 2
    assert found["localspec:answers_total[reason=length]"] == 3
    assert found["localspec:time_per_token_seconds_count"] == 180
    quantiles = [found[f"localspec:time_per_token_seconds[quantile={share}]"] for share in ("0.5", "0.99")]
    assert 0 < quantiles[0] <= quantiles[1]
    assert found["localspec:ready"] == found["localspec:guard_state"] == 1
    assert found["localspec:rows_per_pass"] >= 1
    assert found["localspec:passes_total"] > 3
    assert found["localspec:engine_memory_bytes"] > 1e6


def test_nothing_is_told_of_what_nobody_knows(site: Site) -> None:
    with serving() as fresh:
        found = samples(fresh)
    assert "localspec:alpha" not in found
    assert "localspec:drafter_memory_bytes" not in found
    assert found["llamacpp:tokens_predicted_total"] == 0


def named_in(text: str) -> set[str]:
    return {name.removesuffix("_sum") for name in re.findall(r"(?:localspec|llamacpp):\w+", text)}


@pytest.mark.parametrize("file", [ALERTS, DASHBOARD], ids=lambda file: file.name)
def test_what_is_shown_and_watched_is_told(counted: Any, file: Path) -> None:
    found = {name.partition("[")[0] for name in counted[0]}
    # Told when there is something to tell: a draft model, a drafter that does not pay.
    later = {"localspec:drafter_in_use", "localspec:drafter_memory_bytes"}
    assert named_in(file.read_text("utf-8")) - found - later == set()


def test_the_dashboard_is_whole() -> None:
    board = json.loads(DASHBOARD.read_text("utf-8"))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == 12
    assert all(panel["targets"] and panel["title"] for panel in panels)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places)


def promtool(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    return subprocess.run(["promtool", *arguments], input=text, capture_output=True, text=True, timeout=60)


def test_promtool_takes_the_alerts() -> None:
    done = promtool("check", "rules", str(ALERTS))
    assert done.returncode == 0, done.stderr
    assert "6 rules found" in done.stdout


def test_promtool_reads_the_metrics(site: Site) -> None:
    site.chat(max_tokens=40)
    done = promtool("check", "metrics", text=site.client.get("/metrics").text)
    # It reads them; that names have colons, as llama.cpp's do, and counters other units, it finds unusual.
    assert done.returncode in (0, 3), done.stderr
    assert "error while linting" not in done.stderr


@pytest.mark.slow
def test_prometheus_scrapes_and_watches(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")
    with serving() as site:
        site.chat(max_tokens=40, speculative="fixed")
        scrape = {"job_name": "localspec", "static_configs": [{"targets": [site.url.removeprefix("http://")]}]}
        config = {"global": {"scrape_interval": "1s"}, "rule_files": [str(ALERTS)], "scrape_configs": [scrape]}
        (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        process = subprocess.Popen(
            [
                "prometheus",
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                f"--web.listen-address={address}",
            ],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(lambda: _value(address, "llamacpp:tokens_predicted_total") == 40, 40)
            assert _value(address, 'localspec:time_per_token_seconds{quantile="0.99"}') is not None
            found = httpx2.get(f"http://{address}/api/v1/rules").json()["data"]["groups"]
            assert [rule["health"] for group in found for rule in group["rules"]].count("err") == 0
        finally:
            process.terminate()
            process.wait(20)


def _value(address: str, query: str) -> float | None:
    """What Prometheus knows; ``None`` before it knows it."""
    try:
        got = httpx2.get(f"http://{address}/api/v1/query", params={"query": query})
        found = got.raise_for_status().json()["data"]["result"]
    except httpx2.HTTPError:
        return None
    return float(found[0]["value"][1]) if found else None


def test_top_sees_an_answer_come_and_end() -> None:
    with serving(Options(pass_s=0.005)) as site:
        source = Server(site.url)
        board = Board(source.url)
        board.take(source.read())
        with raw(site, {**LONG, "max_tokens": 150}):
            until(lambda: site.serving.ledger.read().slots[0].decoded > 5)
            view = board.take(source.read())
            assert (view.model, view.missing, view.busy) == ("fake.gguf", (), 1)
            assert view.speed is not None
            assert view.speed > 0
            assert view.slots is not None
            assert view.slots[0].decoded > 5
            until(lambda: site.open == 0)
        view = board.take(source.read())
        source.close()
        assert (view.tokens, view.busy, view.waiting) == (150, 0, 0)
        site.chat(max_tokens=60, speculative="fixed")
        source = Server(site.url)
        guesses = board.take(source.read()).guesses
        source.close()
        assert guesses is not None
        assert guesses.accepted > 0
        assert guesses.by_depth


def test_bench_measures_it(site: Site) -> None:
    greedy = SamplingParams(temperature=0, seed=1)
    with ServerRunner({"way": Measured("way", site.url)}, greedy) as runner:
        run = runner.run("way", Prompt("1", "chat", "hello"), 40)
        assert (runner.models, runner.counted_by) == ({"way": "fake.gguf"}, {"usage"})
    assert run.tokens == 40
    assert run.text == site.chat(max_tokens=40)["choices"][0]["message"]["content"]
    assert run.stats is not None
    assert run.stats.draft_n > 0
