"""The drafters that need no model, by their ``--spec-type``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from localspec.drafters.base import Drafter
from localspec.drafters.corpus import read_corpus
from localspec.drafters.lookahead import NAME as LOOKAHEAD
from localspec.drafters.lookahead import Lookahead
from localspec.drafters.ngram import NAME as SIMPLE
from localspec.drafters.ngram import NgramSimple
from localspec.drafters.ngram_cache import NAME as CACHE
from localspec.drafters.ngram_cache import Counts, NgramCache, read_lookup
from localspec.drafters.ngram_map import MAP_K, MAP_K4V, NgramMapK, NgramMapK4V
from localspec.drafters.ngram_mod import NAME as MOD
from localspec.drafters.ngram_mod import NgramMod
from localspec.drafters.options import TextOptions
from localspec.drafters.suffix import NAME as SUFFIX
from localspec.drafters.suffix import Earlier, Suffix, SuffixCorpus
from localspec.vocab import Vocab


class Sources:
    """What drafters are made from.

    Args:
        options: their settings.
        vocab: the target's.
    """

    def __init__(self, options: TextOptions, vocab: Vocab) -> None:
        self.options = options
        self._vocab = vocab

    @cached_property
    def corpus(self) -> list[list[int]]:
        """The tokens of each text of the corpus; raises as `read_corpus`."""
        return [] if self.options.corpus is None else read_corpus(self.options.corpus, self._vocab)

    def lookup(self, path: Path | None) -> Counts:
        """Raises as `read_lookup`."""
        return {} if path is None else read_lookup(path, self._vocab.n_tokens)


def _suffix(sources: Sources) -> list[Drafter]:
    return [Suffix(), Earlier(), *([SuffixCorpus(sources.corpus)] if sources.corpus else [])]


def _cache(sources: Sources) -> list[Drafter]:
    options = sources.options
    return [NgramCache(sources.lookup(options.lookup_dynamic), sources.lookup(options.lookup_static))]


MAKERS: Mapping[str, Callable[[Sources], list[Drafter]]] = {
    SUFFIX: _suffix,
    SIMPLE: lambda sources: [NgramSimple(sources.options.ngram_simple)],
    MAP_K: lambda sources: [NgramMapK(sources.options.ngram_map_k)],
    MAP_K4V: lambda sources: [NgramMapK4V(sources.options.ngram_map_k4v)],
    MOD: lambda sources: [NgramMod(sources.options.ngram_mod, sources.corpus)],
    CACHE: _cache,
    LOOKAHEAD: lambda sources: [Lookahead()],
}
