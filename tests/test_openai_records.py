"""Log-probabilities as OpenAI's protocol has them."""

from __future__ import annotations

import json
import math

from localspec.openai_records import chat_logprobs, text_logprobs
from localspec.types import Alternative, TokenInfo

HALF = "é".encode()[:1]
TOKENS = (
    TokenInfo(1, b"ab", logprob=-0.5, top=(Alternative(2, b"c", -1.0),)),
    TokenInfo(3, HALF, logprob=-math.inf, top=(Alternative(4, b"d", -math.inf),)),
)


def test_every_number_is_one_of_json() -> None:
    """What cannot come has no logarithm."""
    told = json.dumps([chat_logprobs(TOKENS), text_logprobs(TOKENS)], allow_nan=False)
    assert "-9999.0" in told


def test_chat() -> None:
    first, second = chat_logprobs(TOKENS)["content"]
    assert first == {
        "token": "ab",
        "bytes": [97, 98],
        "logprob": -0.5,
        "top_logprobs": [{"token": "c", "bytes": [99], "logprob": -1.0}],
    }
    assert (second["token"], second["bytes"]) == ("\N{REPLACEMENT CHARACTER}", list(HALF))


def test_offsets_go_on_where_the_text_before_ended() -> None:
    assert text_logprobs(TOKENS)["text_offset"] == [0, 2]
    assert text_logprobs(TOKENS, 5)["text_offset"] == [5, 7]
