"""Texts that a grammar allows: GBNF and JSON schemas, and what may come next as tokens of a vocabulary."""

from __future__ import annotations

from localspec.grammar.gbnf import parse
from localspec.grammar.matcher import Grammars, Matcher
from localspec.grammar.schema import schema_grammar

__all__ = ["Grammars", "Matcher", "parse", "schema_grammar"]
