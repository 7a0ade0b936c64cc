"""Batches on layers of SmolLM2: many at a time with guesses as one by one without; a system prompt is read once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from localspec.errors import ExitCode
from tests.batch.support import lines, records, told
from tests.cli.support import run

QUESTIONS = (
    "Name three rivers.",
    "What is bread made of?",
    "Count from one to nine.",
    "Say hello.",
    "Why do cats purr?",
)
SYSTEM = (
    "You are a patient librarian in a small town by the sea. You answer in one or two short sentences, you never make"
    " anything up, you like old maps and lighthouses, and you always stay polite, whatever you are asked."
)


def answers(model: Path, items: list[dict[str, Any]], *flags: str) -> dict[int, dict[str, Any]]:
    done = run("batch", "-", "-m", str(model), "-s", "3", "-n", "16", "-c", "2048", *flags, stdin=lines(items))
    assert done.returncode in (ExitCode.OK, ExitCode.PARTIAL), done
    return {record["line"]: record for record in records(done.stdout)}


def test_texts_are_the_same_for_any_number_at_a_time(beginning_f32: Path) -> None:
    """In F32, where rounding cannot make them part."""
    items = [{"prompt": text, "temp": 0.7 * (i % 2)} for i, text in enumerate(QUESTIONS)]
    alone = answers(beginning_f32, items, "-np", "1", "--spec", "off")
    many = answers(beginning_f32, items, "-np", "4", "--spec", "fixed")
    assert {line: told(record) for line, record in many.items()} == {n: told(alone[n]) for n in alone}


def test_a_system_prompt_is_read_once(beginning: Path) -> None:
    items = [{"id": i, "messages": [{"role": "user", "content": QUESTIONS[i % 5]}]} for i in range(10)]
    got = answers(beginning, items, "-np", "4", "-sys", SYSTEM, "--temp", "0")
    timings = [record["timings"] for record in got.values()]
    first = max(timing["prompt_n"] for timing in timings)
    others = sorted(timing["prompt_n"] for timing in timings)[:-1]
    assert first > 50
    assert all(computed < 25 for computed in others)  # the question, and what follows it
    assert all(timing["cache_n"] > 40 for timing in timings if timing["prompt_n"] != first)


def test_a_line_of_five_megabytes(beginning: Path) -> None:
    """I03: its tokens are counted, and the line beside it is answered."""
    got = answers(beginning, [{"prompt": "river bank " * 450_000}, {"prompt": "Once"}])
    assert "tokens, the context holds 2048" in got[1]["error"]["message"]
    assert got[2]["text"]
