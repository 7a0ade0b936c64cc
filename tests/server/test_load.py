"""Many clients at once, who come and go: every answer is the one that it would be alone."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

from scripts.soak import Client, Tally, expected
from tests.server.factories import Options
from tests.server.support import serving, until


def test_eight_clients_with_random_departures() -> None:
    with serving(Options(sequences=3, n_ctx=2000), queue=4) as site:
        words = [f"code{letter * 3}" for letter in "abcdefgh"]
        alone = {word: expected(site.url, word) for word in words}
        tally = Tally()
        with ThreadPoolExecutor(8) as pool:
            clients = [Client(site.url, word, alone, random.Random(at), tally) for at, word in enumerate(words)]
            for done in [pool.submit(client.run, rounds=8) for client in clients]:
                done.result(60)
        assert tally.wrong == []
        assert tally.same > 10
        assert tally.left > 0
        until(lambda: site.serving.desk.taken == 0)
        reading = site.serving.ledger.read()
        assert (reading.running, reading.waiting) == (0, 0)
        assert reading.restarts == 0
        assert site.client.get("/health").status_code == 200
