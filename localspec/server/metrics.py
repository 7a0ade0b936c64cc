"""``/metrics``: llama.cpp's names, so that dashboards made for it just work, and ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from localspec.server.ledger import Reading
from localspec.types import EngineInfo, EngineStatus, SpecStats

Kind = Literal["counter", "gauge", "summary"]
Labels = Mapping[str, str]
Sample = tuple[Labels, str, float | None]


@dataclass(frozen=True, slots=True)
class _Family:
    """Makes metrics of one value each."""

    prefix: str
    kind: Kind

    def __call__(self, name: str, text: str, value: float | None) -> Metric:
        return Metric(f"{self.prefix}:{name}", self.kind, text, (({}, "", value),))


@dataclass(frozen=True, slots=True)
class Metric:
    """One family. ``samples`` are labels, what is put behind the name, and the value; those without a value are left
    out."""

    name: str
    kind: Kind
    help: str
    samples: tuple[Sample, ...]

    def lines(self) -> Iterable[str]:
        told = [(labels, end, value) for labels, end, value in self.samples if value is not None]
        if told:
            yield f"# HELP {self.name} {self.help}"
            yield f"# TYPE {self.name} {self.kind}"
        for labels, end, value in told:
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            yield f"{self.name}{end}{f'{{{inside}}}' if inside else ''} {value:.15g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(frozen=True, slots=True)
class Standing:
    """The engine, as far as it is known: bytes that its process holds, and how it stands."""

    info: EngineInfo
    memory: int | None
    status: EngineStatus | None


def page(reading: Reading, engine: Standing | None) -> str:
    """The text that Prometheus reads; without an engine, what was counted."""
    families = [*_llamacpp(reading), *_speculation(reading.totals.stats), *_ours(reading), *_engine(engine)]
    return "\n".join(line for metric in families for line in metric.lines()) + "\n"


def _llamacpp(reading: Reading) -> list[Metric]:
    totals, stats = reading.totals, reading.totals.stats
    computed = totals.prompt_n - totals.cache_n
    depths = tuple(({"position": str(at)}, "", float(n)) for at, n in enumerate(stats.accepted_at))
    busy = reading.busy_steps / reading.steps if reading.steps else 0.0
    count, gauge = _Family("llamacpp", "counter"), _Family("llamacpp", "gauge")
    return [
        count("prompt_tokens_total", "Prompt tokens that were computed.", computed),
        count("prompt_tokens_cached_total", "Prompt tokens that were in the cache.", totals.cache_n),
        count("prompt_seconds_total", "Seconds spent on prompts.", totals.prompt_s),
        count("tokens_predicted_total", "Tokens of answers.", totals.tokens),
        count("tokens_predicted_seconds_total", "Seconds between first and last tokens.", totals.predicted_s),
        count("n_decode_total", "Verify steps of answers.", reading.steps),
        gauge("n_tokens_max", "Longest prompt and answer together, in tokens.", reading.longest),
        count("spec_decode_num_draft_tokens_total", "Tokens that were drafted and verified.", stats.draft_n),
        count("spec_decode_num_accepted_tokens_total", "Drafted tokens that were accepted.", stats.accepted),
        count("spec_decode_num_drafts_total", "Verify steps with drafted tokens.", stats.drafted_steps),
        Metric(
            "llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
            "counter",
            "Drafted tokens that were accepted, by their place in the draft.",
            depths,
        ),
        gauge("prompt_tokens_seconds", "Prompt tokens a second.", _rate(computed, totals.prompt_s)),
        gauge("predicted_tokens_seconds", "Tokens of answers a second.", totals.tokens_per_second or 0.0),
        gauge("requests_processing", "Answers that run.", reading.running),
        gauge("requests_deferred", "Answers that wait for their turn.", reading.waiting),
        gauge("n_busy_slots_per_decode", "Answers that ran while one made a step, on average.", busy),
    ]


def _speculation(stats: SpecStats) -> list[Metric]:
    count, gauge = _Family("localspec", "counter"), _Family("localspec", "gauge")
    rows = stats.steps + stats.draft_n
    return [
        gauge("acceptance", "Accepted / drafted tokens since the start.", stats.acceptance),
        gauge("alpha", "Accepted / tested guesses since the start.", stats.alpha),
        gauge("mean_accepted_length", "1 + accepted / steps with guesses.", stats.mean_length),
        gauge("tokens_per_step", "Tokens of a verify step.", stats.tokens_per_step),
        gauge("speedup", "Measured time of plain decoding / time taken.", stats.speedup),
        gauge("rows_per_step", "Rows that an answer has in a pass.", rows / stats.steps if stats.steps else None),
        count("tested_tokens_total", "Guesses that were tested.", stats.tested),
        count("accepted_tokens_total", "Guesses that were accepted.", stats.accepted),
        count("plain_seconds_total", "Seconds that plain decoding takes, where it is known.", stats.t_plain),
        count("judged_seconds_total", "Seconds taken for the same tokens.", stats.t_judged),
        count("draft_seconds_total", "Seconds of drafters.", stats.t_draft),
        count("verify_seconds_total", "Seconds of verify passes.", stats.t_verify),
        count("host_seconds_total", "Seconds of the rest of the steps.", stats.t_host),
        count("rows_total", "Rows of verify passes.", rows),
        Metric(
            "localspec:drafted_tokens_total",
            "counter",
            "Tokens that were drafted and verified, by drafter.",
            tuple(({"drafter": one.name}, "", float(one.draft_n)) for one in stats.by_source),
        ),
        Metric(
            "localspec:drafter_accepted_tokens_total",
            "counter",
            "Drafted tokens that were accepted, by drafter.",
            tuple(({"drafter": one.name}, "", float(one.accepted)) for one in stats.by_source),
        ),
    ]


def _ours(reading: Reading) -> list[Metric]:
    count = _Family("localspec", "counter")
    states = tuple(({"drafter": one.drafter}, "", float(one.state == "in use")) for one in reading.standings)
    quantiles = tuple(({"quantile": f"{share:g}"}, "", reading.quantile(share)) for share in (0.5, 0.99))
    sums: tuple[Sample, ...] = (({}, "_sum", reading.token_sum_s), ({}, "_count", float(reading.token_n)))
    ends = tuple(({"reason": reason}, "", float(n)) for reason, n in sorted(reading.ends.items()))
    return [
        Metric(
            "localspec:time_per_token_seconds",
            "summary",
            f"Seconds a token; quantiles of the last {len(reading.token_s)} steps.",
            (*quantiles, *sums),
        ),
        Metric("localspec:drafter_in_use", "gauge", "1: the drafter is asked; 0: it does not pay.", states),
        count("prompts_total", "Prompts.", reading.prompts),
        count("prefix_hits_total", "Prompts that began like a text in the cache.", reading.hits),
        Metric("localspec:answers_total", "counter", "Answers that are over, by why they ended.", ends),
        count("refused_total", "Requests that found no place.", reading.refused),
        count("engine_restarts_total", "Times the engine was started anew.", reading.restarts),
    ]


def _engine(engine: Standing | None) -> list[Metric]:
    count, gauge = _Family("localspec", "counter"), _Family("localspec", "gauge")
    ready = gauge("ready", "1: the engine takes requests.", engine is not None)
    if engine is None:
        return [ready]
    told = [
        ready,
        gauge("drafter_memory_bytes", "Weights and cache of the draft model.", _drafter_bytes(engine.info)),
        gauge("engine_memory_bytes", "What the engine's process holds.", engine.memory),
    ]
    if (status := engine.status) is None:
        return told
    return [
        *told,
        gauge("guard_state", "1: guesses are allowed; 0: too many answers run or wait.", status.guessing),
        gauge("rows_per_pass", "Rows of the last pass, of all answers.", status.rows),
        gauge("guesses_per_pass", "Guesses among them.", status.guesses),
        gauge("prompt_rows_per_pass", "Rows of prompts among them.", status.prompt_rows),
        count("passes_total", "Passes of the target.", status.passes),
        gauge("cache_cells", "Cells of the cache that are in use or promised.", status.cells),
        gauge("kept_conversations", "Conversations in the cache that prompts may begin like.", status.kept),
    ]


def _rate(n: int, seconds: float) -> float:
    return n / seconds if seconds > 0 else 0.0


def _drafter_bytes(info: EngineInfo) -> float | None:
    places = [place for load in info.loads if load.role == "draft" for place in load.placement]
    return float(sum(place.bytes_weights + place.bytes_cache for place in places)) if places else None
