"""Batches over an engine without weights, and what they wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.cli.support import Done, run

FAKE = "tests.batch.fake_main"
#: The model is no file; a seed makes runs comparable.
USUAL = ("-m", "any.gguf", "-s", "7", "-n", "12")


def batch(*arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Done:
    return run("batch", *arguments, *USUAL, module=FAKE, stdin=stdin, env=env)


def lines(items: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def records(data: bytes | Path) -> list[dict[str, Any]]:
    """The lines of an output."""
    data = data.read_bytes() if isinstance(data, Path) else data
    assert not data or data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def told(record: Mapping[str, Any]) -> tuple[object, ...]:
    """What of an output line must be the same in every run."""
    names = ("line", "id", "text", "thinking", "finish_reason", "stop", "seed", "tokens", "usage", "error")
    return tuple(record.get(name) if name != "usage" else str(record.get(name)) for name in names)


def some_lines(n: int) -> list[dict[str, Any]]:
    """Prompts of several lengths, some of which begin alike, with settings of their own here and there."""
    head = "abcdefghijklmnopqrstuvwxyz" * 2
    items: list[dict[str, Any]] = []
    for i in range(n):
        question = [{"role": "user", "content": head[: 3 + i % 9]}]
        own: list[dict[str, Any]] = [
            *({}, {"temp": 0}, {"n_predict": 3 + i % 5}, {"spec": "off"}),
            {"messages": question, "prompt": None},
        ]
        items.append({"id": f"line {i}", "prompt": head[: 1 + 7 * i % 50] + "abc"[: i % 3], **own[i % 5]})
    return items
