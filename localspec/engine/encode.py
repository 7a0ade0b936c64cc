"""A request's prompt as tokens, and its stop conditions."""

from __future__ import annotations

from localspec.chat import ChatTemplate, encode_chat
from localspec.errors import ModelError, UsageError
from localspec.text.stream import TextStream
from localspec.types import GenerationRequest
from localspec.vocab import Vocab


def encode(request: GenerationRequest, vocab: Vocab, template: ChatTemplate | None, n_ctx: int) -> list[int]:
    """The prompt as tokens, with BOS exactly once where the model wants it.

    Raises:
        UsageError: nothing to start from, a token that does not exist, or more tokens
            than the context holds.
        ModelError: there is no chat template, or it refuses the messages.
    """
    tokens = _tokens(request, vocab, template)
    if not tokens:
        raise UsageError(
            "the prompt is empty and this model has no token that opens a text",
            hint="Give a prompt (-p, -f or stdin).",
        )
    if len(tokens) > n_ctx:
        raise UsageError(
            f"the prompt has {len(tokens)} tokens, the context holds {n_ctx}", hint="Shorten it, or raise -c."
        )
    return tokens


def _tokens(request: GenerationRequest, vocab: Vocab, template: ChatTemplate | None) -> list[int]:
    if request.messages is not None:
        if template is None:
            raise ModelError(
                "this model has no chat template: it is a base model, not a chat model",
                hint="Use a plain prompt, or a model that was tuned for chat.",
            )
        return encode_chat(template, request.messages, vocab)
    if request.tokens is not None:
        wrong = next((token for token in request.tokens if not 0 <= token < vocab.n_tokens), None)
        if wrong is not None:
            raise UsageError(f"token {wrong} is outside the vocabulary of {vocab.n_tokens}", hint="Check the ids.")
        return list(request.tokens)
    tokens = vocab.tokenize(request.prompt or "", special=request.special)
    if vocab.bos is not None and tokens[:1] != [vocab.bos]:
        tokens.insert(0, vocab.bos)
    return tokens


def text_stream(request: GenerationRequest, vocab: Vocab) -> TextStream:
    """The answer's text. A stop string that names a control token stops at that token too."""
    stop_ids = {}
    for stop in request.stop:
        ids = vocab.tokenize(stop, special=True)
        if len(ids) == 1 and ids[0] in vocab.control_tokens:
            stop_ids[ids[0]] = stop
    return TextStream(stops=request.stop, stop_ids=stop_ids, end_ids=vocab.end_tokens)
