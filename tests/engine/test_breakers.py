"""DRY's sequence breakers: where a text stands in tokens."""

from __future__ import annotations

from localspec.backends.fake import FakeVocab
from localspec.engine.breakers import breakers

#: Ids of the vocabulary below: letters are 2 (a) to 27 (z), then " ", ".", ",", "\n".
A, B, C = 2, 3, 4


def vocab(**names: str) -> FakeVocab:
    return FakeVocab(40, renamed={int(token.removeprefix("t")): text for token, text in names.items()})


def test_tokens_that_hold_a_breaker_are_breakers() -> None:
    found = breakers(vocab(t35="xa", t36="ab", t37="cab"), ("a",))
    assert found.tails == {A: ((),), 35: ((),), 36: ((),), 37: ((),)}


def test_a_breaker_may_begin_in_one_token_and_go_on_in_the_next() -> None:
    found = breakers(vocab(t35="xab", t36="xa", t37="abca"), ("abc",))
    assert found.tails == {A: ((B, C),), 35: ((C,),), 36: ((B, C),), 37: ((),)}


def test_ways_to_begin_differ_in_length() -> None:
    found = breakers(vocab(t35="aa"), ("aab",))
    assert found.tails == {A: ((A, B),), 35: ((A, B), (B,))}


def test_control_tokens_by_their_names() -> None:
    assert breakers(vocab(), ("<end>",)).tails == {0: ((),)}


def test_bytes_within_a_character_begin_nothing() -> None:
    assert breakers(vocab(t35="é", t36="xÃ"), ("é",)).tails == {35: ((),)}


def test_none() -> None:
    assert breakers(vocab(), ()).tails == {}
