"""Our samplers beside llama.cpp's own, over the same rows and texts."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.backends.base import Row
from localspec.backends.llamacpp import Native
from localspec.backends.llamacpp.vocab import LlamaVocab
from localspec.engine import Engine
from localspec.engine.breakers import breakers
from localspec.sampling import Breakers, SamplerState
from localspec.types import SamplingParams
from tests.real.support import running

N_VOCAB = 500


@pytest.fixture(scope="module")
def lib() -> Any:
    return Native().lib


@pytest.fixture(scope="module")
def engine(smol: Path) -> Iterator[Engine]:
    with running(smol, spec_types=("none",)) as engine:
        yield engine


@contextmanager
def native(lib: Any, sampler: Any) -> Iterator[Any]:
    yield sampler
    lib.llama_sampler_free(sampler)


def applied(lib: Any, sampler: Any, row: Row, ids: Collection[int] | None = None) -> tuple[dict[int, float], int]:
    """Token → logit of what llama.cpp's sampler leaves of ``ids`` (of all), and the token it chose, if it chooses."""
    ids = range(len(row)) if ids is None else ids
    cells = (lib.llama_token_data * len(ids))(*((i, float(row[i]), 0.0) for i in ids))
    candidates = lib.llama_token_data_array(cells, len(ids), -1, False)
    lib.llama_sampler_apply(sampler, ctypes.byref(candidates))
    left = [candidates.data[i] for i in range(candidates.size)]
    return {one.id: one.logit for one in left if one.logit > -np.inf}, left[candidates.selected].id


def ours(state: SamplerState, row: Row) -> dict[int, float]:
    scores = state._scores(row)
    ids = range(len(scores.logits)) if scores.ids is None else scores.ids.tolist()
    return dict(zip(ids, scores.logits.tolist(), strict=True))


def start(params: SamplingParams, prompt: Sequence[int] = (), found: Breakers | None = None) -> SamplerState:
    return SamplerState.start(params, seed=1, prompt=prompt, end_tokens=(), n_ctx=512, breakers=found)


def random_row(seed: int, n: int = N_VOCAB, spread: float = 3.0) -> Row:
    return (np.random.default_rng(seed).normal(size=n) * spread).astype(np.float32)


FILTERS: list[tuple[Callable[[Any], Any], SamplingParams]] = [
    *(
        (
            lambda lib, n=n: lib.llama_sampler_init_top_n_sigma(n),
            SamplingParams(top_n_sigma=n, samplers=("top_n_sigma",)),
        )
        for n in (0.5, 1.0, 2.5, -1.0)
    ),
    *(
        (
            lambda lib, t=t: lib.llama_sampler_init_xtc(1.0, t, 0, 1),
            SamplingParams(xtc_probability=1.0, xtc_threshold=t, samplers=("xtc",)),
        )
        for t in (0.0, 0.02, 0.1, 0.3, 0.5, 0.6)
    ),
    *(
        (
            lambda lib, t=t, spread=spread, power=power: lib.llama_sampler_init_temp_ext(t, spread, power),
            SamplingParams(temperature=t, dynatemp_range=spread, dynatemp_exponent=power, samplers=("temperature",)),
        )
        for t, spread, power in ((0.8, 0.5, 1.0), (1.0, 0.3, 2.0), (0.0, 1.0, 0.5), (0.5, 2.0, 1.0), (0.7, 0.0, 1.0))
    ),
]


@pytest.mark.parametrize("at", range(len(FILTERS)))
@pytest.mark.parametrize("spread", [1.0, 4.0])
def test_filters(lib: Any, at: int, spread: float) -> None:
    make, params = FILTERS[at]
    for seed in range(5):
        row = random_row(seed, spread=spread)
        with native(lib, make(lib)) as sampler:
            want, _ = applied(lib, sampler, row)
        got = ours(start(params), row)
        assert got.keys() == want.keys()
        np.testing.assert_allclose(list(got.values()), [want[i] for i in got], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("tau", "eta"), [(5.0, 0.1), (1.0, 0.5), (0.3, 1.0)])
def test_mirostat(lib: Any, tau: float, eta: float) -> None:
    state = start(SamplingParams(temperature=1.0, mirostat=2, mirostat_tau=tau, mirostat_eta=eta))
    sizes = set()
    with native(lib, lib.llama_sampler_init_mirostat_v2(7, tau, eta)) as sampler:
        for i in range(40):
            row = random_row(i)
            want, token = applied(lib, sampler, row)
            assert ours(state, row).keys() == want.keys()
            sizes.add(len(want))
            lib.llama_sampler_accept(sampler, token)
            state = state.advance(token, lambda: row)  # noqa: B023
    assert len(sizes) > 2


@pytest.mark.parametrize(("target", "decay"), [(0.3, 0.9), (0.05, 0.5), (1.0, 0.99), (0.0, 0.0)])
def test_adaptive_p(lib: Any, target: float, decay: float) -> None:
    state = start(
        SamplingParams(temperature=1.0, samplers=("adaptive_p",), adaptive_target=target, adaptive_decay=decay)
    )
    with native(lib, lib.llama_sampler_init_adaptive_p(target, decay, 7)) as sampler:
        for i in range(40):
            row = random_row(i, 60)
            want, token = applied(lib, sampler, row)
            got = ours(state, row)
            assert got.keys() == want.keys()
            np.testing.assert_allclose(list(got.values()), [want[t] for t in got], rtol=1e-3, atol=2e-3)
            lib.llama_sampler_accept(sampler, token)
            state = state.advance(token, lambda: row)  # noqa: B023


TEXT = (
    "The cat sat on the mat: the cat sat on the mat, and the dog sat on the mat.\n"
    'He said "no", she said "no", they said "no". One * two * three * one * two * three '
    "the cat sat on the mat the cat sat on the mat\nthe cat sat on"
)


@pytest.mark.parametrize(
    ("texts", "allowed", "last_n", "base"),
    [
        (SamplingParams().dry_sequence_breakers, 2, 64, 1.75),
        (SamplingParams().dry_sequence_breakers, 1, 300, 1.2),
        ((), 2, 300, 1.75),
        (("sat on", " the cat"), 2, 300, 1.5),
        ((" mat the cat", ". One"), 1, 300, 1.0),
        (("at",), 0, 20, 2.0),
    ],
)
def test_dry(lib: Any, engine: Engine, texts: tuple[str, ...], allowed: int, last_n: int, base: float) -> None:
    vocab = engine.target.vocab
    assert isinstance(vocab, LlamaVocab)
    tokens = vocab.tokenize(TEXT)
    rng = random.Random(1)
    tokens += [rng.choice(tokens) for _ in range(60)] + tokens[:40]
    params = SamplingParams(
        dry_multiplier=0.8,
        dry_base=base,
        dry_allowed_length=allowed,
        dry_penalty_last_n=last_n,
        dry_sequence_breakers=texts,
        samplers=("dry",),
    )
    state = start(params, tokens[:10], breakers(vocab, texts))
    row = np.zeros(vocab.n_tokens, dtype=np.float32)
    raw = (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))
    penalised = 0
    with native(lib, lib.llama_sampler_init_dry(vocab._handle, 0.8, base, allowed, last_n, raw, len(texts))) as sampler:
        for token in tokens[:10]:
            lib.llama_sampler_accept(sampler, token)
        for i, token in enumerate(tokens[10:]):
            lib.llama_sampler_accept(sampler, token)
            state = state.advance(token)
            want = applied(lib, sampler, row, sorted(set(tokens)))[0]
            few = {t: x for t, x in want.items() if x != 0}
            logits = state._scores(row).logits
            got = {t: float(logits[t]) for t in np.flatnonzero(logits).tolist()}
            assert got == pytest.approx(few, rel=1e-5), f"after {i + 11} tokens"
            penalised += bool(few)
    assert penalised > 5
