"""Where answers get the sampler's state that they begin with: what options need of a vocabulary is worked out here."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import cached_property

from localspec.engine.breakers import breakers
from localspec.grammar import Grammars, Matcher
from localspec.params import check
from localspec.sampling import SamplerState
from localspec.types import SamplingParams
from localspec.vocab import Vocab


class Samplers:
    """Makes states for one model.

    Args:
        vocab: the model's tokens.
        n_ctx: tokens a text may have.
    """

    def __init__(self, vocab: Vocab, n_ctx: int) -> None:
        self._vocab = vocab
        self._n_ctx = n_ctx

    def check(self, params: SamplingParams) -> None:
        """Refuses what cannot be honoured.

        Raises:
            UsageError: an option that makes no sense, or a grammar that cannot be followed.
        """
        check(params, n_vocab=self._vocab.n_tokens)
        self._grammar(params)

    def start(self, params: SamplingParams, prompt: Sequence[int]) -> SamplerState:
        """The state for the first token after ``prompt``; the seed is drawn where there is none."""
        return SamplerState.start(
            params,
            seed=secrets.randbits(32) if params.seed is None else params.seed,
            prompt=prompt,
            end_tokens=self._vocab.end_tokens,
            n_ctx=self._n_ctx,
            breakers=breakers(self._vocab, params.dry_sequence_breakers) if params.dry_multiplier > 0 else None,
            grammar=self._grammar(params),
        )

    def _grammar(self, params: SamplingParams) -> Matcher | None:
        return None if params.grammar is None else self._grammars.start(params.grammar)

    @cached_property
    def _grammars(self) -> Grammars:
        vocab = self._vocab
        return Grammars([vocab.piece(token) for token in range(vocab.n_tokens)], vocab.end_tokens)
