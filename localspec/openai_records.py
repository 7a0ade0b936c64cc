"""Log-probabilities in the form of OpenAI's protocol, for whoever answers in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localspec.types import Alternative, TokenInfo

Record = dict[str, Any]
#: What stands for the logarithm of nought: there is no such number in JSON.
_NEVER = -9999.0


def spelt(piece: bytes) -> str:
    """A token's text; half a character is a sign that says so, and ``bytes`` has what it is."""
    return piece.decode("utf-8", "replace")


def likelihood(logprob: float | None) -> float:
    return _NEVER if logprob is None or not logprob > _NEVER else logprob


def entry(one: TokenInfo | Alternative) -> Record:
    return {"token": spelt(one.piece), "bytes": list(one.piece), "logprob": likelihood(one.logprob)}


def chat_logprobs(tokens: Sequence[TokenInfo]) -> Record:
    """Those of a chat's answer."""
    return {"content": [{**entry(token), "top_logprobs": [entry(one) for one in token.top]} for token in tokens]}


def text_logprobs(tokens: Sequence[TokenInfo], start: int = 0) -> Record:
    """Those of a completed text, of which ``start`` characters came before."""
    texts, offsets = [spelt(token.piece) for token in tokens], []
    for text in texts:
        offsets.append(start)
        start += len(text)
    return {
        "tokens": texts,
        "token_logprobs": [likelihood(token.logprob) for token in tokens],
        "top_logprobs": [{spelt(one.piece): likelihood(one.logprob) for one in token.top} for token in tokens],
        "text_offset": offsets,
    }
