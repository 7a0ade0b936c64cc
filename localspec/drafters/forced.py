"""``grammar``: what a grammar leaves no choice about.

Where all texts of the grammar go on with the same bytes, they are spelt as the tokenizer spells them. The target may
spell them otherwise, unless one token is the only one allowed: such a guess is certain. The last token of the bytes is
guessed only then: it may well take in some of what follows.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.drafters.base import Ask, Draft, TextDrafter
from localspec.errors import UsageError
from localspec.grammar import Matcher
from localspec.spec.tree import TokenTree
from localspec.vocab import Vocab

NAME = "grammar"

_BYTES = 256  # looked ahead
_LIKELY = 0.9  # that a text is spelt as the tokenizer spells it


class Forced(TextDrafter):
    """Has no state: where the text stands in its grammar, the sampler's state knows."""

    name = NAME

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab

    def open(self, seq: int) -> None:
        pass

    def close(self, seq: int) -> None:
        pass

    def truncate(self, seq: int, n: int) -> None:
        pass

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> Draft:
        if ask.state.grammar is None:
            return Draft.nothing(ask)
        try:
            return self._forced(ask, ask.state.grammar)
        except UsageError:  # too complex further on; if the text goes that way it fails, guess or no guess
            return Draft.nothing(ask)

    def _forced(self, ask: Ask, place: Matcher) -> Draft:
        price, reach = ask.price, 1.0
        tokens, scores = [ask.tokens[-1]], list[float]()
        most = min(price.limits.depth, price.limits.nodes)
        spelt = self._spelt(place.forced(_BYTES))
        for token in spelt[:most]:
            is_certain = place.only == token
            score = 1.0 if is_certain else _LIKELY
            reach *= price.believed(score)
            after = place.follow(token)
            is_last = len(scores) + 1 == len(spelt)
            if after is None or (is_last and not is_certain) or not price.pays(reach):
                break
            place = after
            tokens.append(token)
            scores.append(score)
        return Draft(TokenTree.chain(tokens, scores, NAME))

    def _spelt(self, text: bytes) -> list[int]:
        return self._vocab.tokenize(text.decode("utf-8", "ignore")) if text else []
