"""Texts that the user gives: what is taken, what is refused, and that they stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.backends.fake import FakeVocab
from localspec.drafters import corpus
from localspec.drafters.corpus import corpus_files, read_corpus
from localspec.drafters.options import TextOptions
from localspec.drafters.registry import MAKERS, Sources
from localspec.drafters.suffix import Suffix, SuffixCorpus
from localspec.engine import Engine
from localspec.errors import UsageError
from localspec.types import SamplingParams, SpecParams
from tests.drafters.support import guess
from tests.engine.support import alone, answer, fake, plain, request

few = settings(max_examples=60, deadline=None)
TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=20), max_size=3)


def opened(texts: list[list[int]]) -> SuffixCorpus:
    drafter = SuffixCorpus(texts)
    drafter.open(0)
    return drafter


@few
@given(TEXTS, st.lists(st.integers(0, 2), min_size=2, max_size=20), st.integers(0, 20))
def test_every_guess_stands_in_one_of_the_texts(texts: list[list[int]], tokens: list[int], keep: int) -> None:
    drafter = opened(texts)
    tree = guess(drafter, tokens)
    for node in range(1, len(tree)):
        run = [*tokens[-2:], *(tree.tokens[i] for i in tree.path(node)[1:])]
        assert any(text[i : i + len(run)] == run for text in texts for i in range(len(text)))
    goes_on = [text[i : i + 2] == tokens[-2:] and i + 2 < len(text) for text in texts for i in range(len(text))]
    assert bool(tree.draft_n) == any(goes_on)
    assert set(tree.sources[1:]) <= {"suffix-corpus"}
    drafter.truncate(0, keep)
    assert guess(drafter, [*tokens[:keep], *tokens]) == guess(opened(texts), [*tokens[:keep], *tokens])


def test_conversations_add_nothing() -> None:
    """E13: they share what the user gave, and no more."""
    drafter = opened([[7, 8, 9]])
    drafter.open(1)
    drafter.fork(0, 2, 3)
    assert guess(drafter, [5, 7, 8, 11, 12, 13, 7, 8]).tokens == (8, 9)
    for seq in (1, 2):
        assert guess(drafter, [7, 8], seq=seq).tokens == (8, 9)
        assert guess(drafter, [7, 8, 11, 12], seq=seq).draft_n == 0


def test_it_has_books_of_its_own() -> None:
    sampling = SamplingParams(temperature=0.8, seed=5, ignore_eos=True)
    wish = request([3, 4, 5, 3], sampling=sampling, spec=SpecParams(depth=6, types=("suffix",)), n=60)
    wanted = alone(fake(28, seed=2), plain(wish))
    engine = Engine(fake(28, seed=2), [Suffix(), SuffixCorpus([[3, 4, 5, 3, *wanted.ids]])])
    assert engine.info.drafters == ("suffix",)
    got = answer(engine, wish)
    assert got.told == wanted.told
    assert {one.name: one.accepted for one in got.stats.by_source}["suffix-corpus"] >= 40


def test_a_folder_of_texts(tmp_path: Path) -> None:
    for name, text in {"b.txt": "ab", "a/c.md": "\ufeffba", ".hidden": "x", ".git/config": "x"}.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
    assert corpus_files(tmp_path) == [tmp_path / "a" / "c.md", tmp_path / "b.txt"]
    assert read_corpus(tmp_path, FakeVocab()) == [[3, 2], [2, 3]]
    assert read_corpus(tmp_path / "b.txt", FakeVocab()) == [[2, 3]]


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not there"):
        corpus_files(tmp_path / "none")
    with pytest.raises(UsageError, match="has no files"):
        corpus_files(tmp_path)
    (tmp_path / "image").write_bytes(b"ab\xff")
    with pytest.raises(UsageError, match=r"image is not UTF-8 text \(byte 2\)"):
        read_corpus(tmp_path, FakeVocab())


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("abc" * 20)
    monkeypatch.setattr(corpus, "MOST_TOKENS", 59)
    with pytest.raises(UsageError, match="60 tokens, more than 59"):
        read_corpus(tmp_path, FakeVocab())
    with pytest.raises(UsageError, match="MiB, more than"):
        corpus_files(tmp_path, most=59)


def test_who_draws_on_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("abcdefghijkl")
    sources = Sources(TextOptions(corpus=tmp_path / "a"), FakeVocab())
    names = {name: [drafter.name for drafter in make(sources)] for name, make in MAKERS.items()}
    assert names["suffix"] == ["suffix", "earlier", "suffix-corpus"]
    (mod,) = MAKERS["ngram-mod"](sources)
    mod.open(0)
    assert guess(mod, range(2, 10)).tokens[:3] == (9, 10, 11)
    assert [one.name for one in MAKERS["suffix"](Sources(TextOptions(), FakeVocab()))] == ["suffix", "earlier"]
