"""Writes text that no chat model talks like: a service's log. ``python -m scripts.log_corpus FOLDER [-n LINES]``.

``train.txt`` is for `localspec train --corpus`, ``prompts.jsonl`` (other lines, the first of each as the prompt) for
`localspec bench --prompts`: what a drafter guesses of a domain, before it has learnt from it and after.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

SERVICES = ("gateway", "billing", "inventory", "mailer", "search", "auth-proxy")
ROUTES = ("/v2/orders", "/v2/orders/{id}", "/v2/carts/{id}/items", "/healthz", "/v1/login", "/v2/search")
FAULTS = (
    "connection reset by peer",
    "upstream timed out after {ms}ms",
    "deadlock detected, retrying transaction {id}",
    "certificate expires in {days} days",
    "queue depth {depth} above high-water mark",
)
LINES_OF_A_PROMPT = 12


def lines(random: Random) -> Iterator[str]:
    """Line after line of one service's log, for ever."""
    now = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=random.randrange(10**7))
    service, host = random.choice(SERVICES), f"node-{random.randrange(24):02d}"
    while True:
        now += timedelta(milliseconds=random.randrange(5, 4000))
        stamp = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        trace = f"{random.getrandbits(32):08x}"
        if random.random() < 0.8:
            route = random.choice(ROUTES).format(id=random.randrange(1000, 99999))
            verb = random.choice(("GET", "GET", "GET", "POST", "PUT"))
            status = random.choice((200, 200, 200, 201, 304, 404, 503))
            what = f'INFO request="{verb} {route}" status={status} duration_ms={random.randrange(1, 900)}'
        else:
            fault = random.choice(FAULTS).format(
                ms=random.randrange(500, 30000),
                id=random.randrange(10**6),
                days=random.randrange(1, 30),
                depth=random.randrange(1000, 9000),
            )
            what = f'WARN message="{fault}" attempt={random.randrange(1, 5)}'
        yield f"{stamp} {host} {service}[{random.randrange(100, 9999)}]: trace={trace} {what}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/log_corpus.py", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-n", type=int, default=4000, help="lines to train on")
    parser.add_argument("--prompts", type=int, default=12)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    random = Random(0)
    with (args.folder / "train.txt").open("w", encoding="utf-8") as out:
        written = 0
        while written < args.n:
            stretch = min(random.randrange(40, 400), args.n - written)
            for _, line in zip(range(stretch), lines(random), strict=False):
                out.write(line + "\n")
            out.write("\n")
            written += stretch
    with (args.folder / "prompts.jsonl").open("w", encoding="utf-8") as out:
        for n in range(args.prompts):
            text = "\n".join(line for _, line in zip(range(LINES_OF_A_PROMPT), lines(random), strict=False))
            prompt = f"Go on with this log in the same form, line after line:\n\n{text}\n"
            out.write(json.dumps({"id": f"log-{n + 1}", "category": "log", "prompt": prompt}) + "\n")


if __name__ == "__main__":
    main()
