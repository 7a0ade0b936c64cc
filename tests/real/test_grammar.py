"""Grammars with a real vocabulary and real answers."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import llama_cpp.llama_cpp as lib
import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.llamacpp import LlamaTarget
from localspec.backends.llamacpp.vocab import LlamaVocab
from localspec.engine import Engine
from localspec.grammar import schema_grammar
from localspec.types import GenerationRequest, Message, SamplingParams
from scripts.grammar import SCHEMAS, is_valid
from tests.grammar.test_gbnf import LLAMA_JSON
from tests.real.support import CHAIN, PLAIN, TREE, grammars, running, ties, together

GRAMMARS = {
    "json": (LLAMA_JSON, ["", '{"name": ', '{"name": "Ada', '{"a": [1, {"ü": "', '{"a":12.', '{"a": [true', "{}"]),
    "lines": ('root ::= ("- " [^\\n]+ "\\n"){2,3}', ["", "- a", "- é\n", "- a\n- b\n", "- a\n- b\n- c\n"]),
    "choice": ('root ::= "yes" | "no" | "no, " [a-zà-ÿ ]{1,20} "."', ["", "n", "no", "no, nev"]),
}


@pytest.fixture(scope="module")
def engine(smol: Path) -> Iterator[Engine]:
    with running(smol, spec_types=("none",)) as engine:
        yield engine


def native_mask(vocab: LlamaVocab, grammar: str, tokens: Sequence[int]) -> NDArray[np.bool_]:
    """What llama.cpp's own grammar sampler leaves."""
    n = vocab.n_tokens
    sampler = lib.llama_sampler_init_grammar(vocab._handle, grammar.encode(), b"root")
    assert sampler
    for token in tokens:
        lib.llama_sampler_accept(sampler, token)
    items = (lib.llama_token_data * n)()
    view = np.frombuffer(items, dtype=[("id", "i4"), ("logit", "f4"), ("p", "f4")])
    view["id"] = np.arange(n)
    array = lib.llama_token_data_array(data=items, size=n, selected=-1, sorted=False)
    lib.llama_sampler_apply(sampler, ctypes.byref(array))
    allowed = np.zeros(n, bool)
    allowed[view["id"]] = view["logit"] > -1e30
    lib.llama_sampler_free(sampler)
    return allowed


def is_odd(piece: bytes) -> bool:
    """Not the bytes of whole characters: there llama.cpp allows what no text can be."""
    try:
        return not piece.decode()
    except UnicodeDecodeError:
        return True


@pytest.mark.parametrize("name", GRAMMARS)
def test_the_same_tokens_are_allowed_as_by_llama_cpp(engine: Engine, name: str) -> None:
    """But for control tokens, which are no text, and for pieces of characters that do not fit together."""
    vocab = engine.target.vocab
    assert isinstance(vocab, LlamaVocab)
    grammar, texts = GRAMMARS[name]
    own = grammars(vocab)
    for text in texts:
        tokens = vocab.tokenize(text)
        place = own.start(grammar)
        for token in tokens:
            place = place.advance(token)
        ours = place.ban(np.zeros(vocab.n_tokens, np.float32)) == 0
        differing = np.flatnonzero(ours != native_mask(vocab, grammar, tokens)).tolist()
        assert [token for token in differing if not is_odd(vocab.piece(token))] == [], text
        assert len(differing) < 200
        for token in (*range(0, vocab.n_tokens, 997), *differing):
            assert place.allows(token) == ours[token]


def wish(number: int, name: str) -> GenerationRequest:
    text = f"Write a JSON object ({name}) about {('Ada Lovelace', 'the sea')[number % 2]}."
    sampling = SamplingParams(
        temperature=(0.0, 0.8)[number % 2], seed=number, grammar=schema_grammar(json.dumps(SCHEMAS[name]))
    )
    return GenerationRequest(messages=(Message("user", text),), max_tokens=60, sampling=sampling)


@pytest.mark.timeout(400)
def test_answers_by_schema_are_valid_and_the_target_s_own(smol_f32: Path, smol: Path) -> None:
    names = ("person", "choice", "shape", "code") * 2
    asked = [replace(wish(number, name), spec=(CHAIN, TREE)[number // 4]) for number, name in enumerate(names)]
    with running(smol_f32, smol, spec_types=("draft-simple", "suffix"), sequences=9, n_ctx=2048) as engine:
        plain = together(engine, [replace(one, spec=PLAIN) for one in asked])
        ours = together(engine, asked)
        target = engine.target
        assert isinstance(target, LlamaTarget)
        pairs = zip(asked, ours, plain, strict=True)
        parted = sum(ties(target, one, engine.encode(one), got, wanted) for one, got, wanted in pairs)
    assert parted <= 1
    ended = [(got.text, SCHEMAS[name]) for name, got in zip(names, ours, strict=True) if got.finished.reason == "stop"]
    assert len(ended) >= 5
    assert [text for text, schema in ended if not is_valid(text, schema)] == []
    sources = {by.name for one in ours for by in one.stats.by_source if by.accepted}
    assert {"grammar", "draft-simple"} <= sources
    assert sum(one.stats.steps for one in ours) < 0.6 * sum(one.stats.steps for one in plain)
