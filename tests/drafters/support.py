"""All drafters that need no model, set so that short texts are enough, and how to ask one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.control import Limits, Price
from localspec.drafters.base import Ask, Drafter
from localspec.drafters.lookahead import Lookahead
from localspec.drafters.ngram import NgramSimple
from localspec.drafters.ngram_cache import NgramCache
from localspec.drafters.ngram_map import NgramMapK, NgramMapK4V
from localspec.drafters.ngram_mod import NgramMod
from localspec.drafters.options import ModOptions, NgramOptions
from localspec.drafters.suffix import Suffix
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import SamplingParams

STATE = SamplerState.start(SamplingParams(), seed=0, prompt=(), end_tokens=(), n_ctx=64)
WIDE = Limits(depth=9, nodes=99, width=9)

#: By ``--spec-type``; each matches two tokens or fewer.
TEXT_DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "suffix": Suffix,
    "ngram-simple": lambda: NgramSimple(NgramOptions(size_n=2)),
    "ngram-map-k": lambda: NgramMapK(NgramOptions(size_n=2)),
    "ngram-map-k4v": lambda: NgramMapK4V(NgramOptions(size_n=2)),
    "ngram-mod": lambda: NgramMod(ModOptions(n_match=2)),
    "ngram-cache": NgramCache,
    "lookahead": Lookahead,
}


def ask(tokens: Sequence[int], limits: Limits = WIDE, seq: int = 0, row_s: float = 0.0) -> Ask:
    return Ask(seq, tokens, Price(limits, row_s), STATE)


def guess(
    drafter: Drafter, tokens: Sequence[int], limits: Limits = WIDE, seq: int = 0, row_s: float = 0.0
) -> TokenTree:
    (draft,) = drafter.propose([ask(tokens, limits, seq, row_s)])
    assert not draft.laws
    assert draft.out is None
    return draft.tree


def opened(name: str, *seqs: int) -> Drafter:
    drafter = TEXT_DRAFTERS[name]()
    for seq in seqs or (0,):
        drafter.open(seq)
    return drafter


def paths(tree: TokenTree) -> set[tuple[int, ...]]:
    return {tuple(tree.tokens[i] for i in tree.path(node))[1:] for node in range(1, len(tree))}
