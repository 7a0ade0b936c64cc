"""A request's prompt as tokens, and its stop conditions."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.chat import ChatTemplate, encode_chat
from localspec.errors import ModelError, PromptError, UsageError
from localspec.text.stream import TextStream
from localspec.text.thinking import named_tags
from localspec.types import GenerationRequest
from localspec.vocab import Vocab

_ANCHOR = 8  # tokens of the prompt's end


def encode(request: GenerationRequest, vocab: Vocab, template: ChatTemplate | None) -> list[int]:
    """The prompt as tokens, with BOS exactly once where the model wants it; of any length.

    Raises:
        UsageError: nothing to start from, or a token that does not exist.
        ModelError: there is no chat template, or it refuses the messages.
    """
    tokens = _tokens(request, vocab, template)
    if not tokens:
        raise PromptError(
            "the prompt is empty and this model has no token that opens a text",
            hint="Give it some text to go on with.",
        )
    return tokens


def check_length(tokens: list[int], n_ctx: int) -> list[int]:
    """``tokens``, if the context holds them.

    Raises:
        UsageError: it does not.
    """
    if len(tokens) > n_ctx:
        raise PromptError(
            f"the prompt has {len(tokens)} tokens, the context holds {n_ctx}",
            hint="Shorten it, or raise -c.",
            facts=(("n_prompt_tokens", len(tokens)), ("n_ctx", n_ctx)),
        )
    return tokens


def earlier_texts(
    request: GenerationRequest, prompt: Sequence[int], vocab: Vocab, n_ctx: int
) -> tuple[tuple[int, ...], ...]:
    """The texts to draft from as tokens, each behind the end of the prompt, where it began when it was an answer to the
    like; no more of it than the context holds."""
    texts = (vocab.tokenize(text)[:n_ctx] for text in request.draft_from if request.spec.mode != "off")
    return tuple((*prompt[-_ANCHOR:], *tokens) for tokens in texts if tokens)


def _tokens(request: GenerationRequest, vocab: Vocab, template: ChatTemplate | None) -> list[int]:
    if request.messages is not None:
        if template is None:
            raise ModelError(
                "this model has no chat template: it is a base model, not a chat model",
                hint="Use a plain prompt, a model that was tuned for chat, or --chat-template chatml.",
            )
        return encode_chat(template, request.messages, vocab, dict(request.template_kwargs))
    if request.tokens is not None:
        wrong = next((token for token in request.tokens if not 0 <= token < vocab.n_tokens), None)
        if wrong is not None:
            raise UsageError(f"token {wrong} is outside the vocabulary of {vocab.n_tokens}", hint="Check the ids.")
        return list(request.tokens)
    tokens = vocab.tokenize(request.prompt or "", special=request.special)
    if vocab.bos is not None and tokens[:1] != [vocab.bos]:
        tokens.insert(0, vocab.bos)
    return tokens


def text_stream(request: GenerationRequest, vocab: Vocab, template: ChatTemplate | None) -> TextStream:
    """The answer's text. A stop string that names a control token stops at that token too. The mark that the chat
    template writes behind answers stops as well, where it is no end token: files get that wrong, and a model with a
    template that is not its own may have to spell it."""
    stops = list(request.stop)
    stop_ids = {token: stop for stop in stops if (token := _control(stop, vocab)) is not None}
    if request.messages is not None and template is not None:
        end = template.turn_end(bos=vocab.bos_text, eos=vocab.eos_text) or ""
        token = _control(end, vocab)
        if end and token is None:
            stops.append(end)
        elif token is not None and token not in vocab.end_tokens and not _in_tags(end, template):
            stop_ids.setdefault(token, end)
    return TextStream(stops=stops, stop_ids=stop_ids, end_ids=vocab.end_tokens)


class Spelling:
    """A vocabulary's pieces for one answer. The control tokens by which a model tells its thinking from its answer
    are spelt out: some models use such tokens where others use plain text."""

    def __init__(self, request: GenerationRequest, vocab: Vocab, template: ChatTemplate | None) -> None:
        self._vocab = vocab
        self._shown: frozenset[int] = frozenset()
        if request.messages is not None and template is not None and named_tags(template.source):
            names = vocab.control_tokens - vocab.end_tokens
            self._shown = frozenset(token for token in names if _in_tags(vocab.text(token), template))

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """As `Vocab.piece`."""
        return self._vocab.piece(token, special=special or token in self._shown)


def _in_tags(name: str, template: ChatTemplate) -> bool:
    """Whether a control token is part of what opens or closes thinking."""
    return name != "" and any(name in text for pair in named_tags(template.source) for text in pair)


def _control(text: str, vocab: Vocab) -> int | None:
    """The control token of that name."""
    ids = vocab.tokenize(text, special=True)
    return ids[0] if len(ids) == 1 and ids[0] in vocab.control_tokens else None
