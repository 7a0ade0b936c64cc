"""``--exact``: logits are the same to the bit, whatever is guessed and however the text came into the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.base import Work
from localspec.backends.llamacpp import LlamaTarget
from localspec.engine import Engine
from localspec.errors import UsageError
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.spec.tree import TokenTree
from localspec.types import GenerationRequest, Message, SamplingParams, SpecParams
from tests.engine.support import Outcome
from tests.real.support import CHAIN, GREEDY, PLAIN, TREE, answer, opened, read, step
from tests.support.gguf_files import TinyModel, TokenizerKeys
from tests.support.rpc import rpc_servers

Rows = NDArray[np.float32]
#: How many tokens come first. Behind 500 the cache has more than 512 cells, and a pass of one row shares them out among
#: the threads. SmolLM2 looks at them in the same way with any weights, so that one of its files needs a long text.
BEFORE = {"q4_1": 500, "f32": 100, "q4_k": 500}
SEEDED = SamplingParams(temperature=0.8, seed=7)


@pytest.fixture(scope="module")
def tiny(smol_tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel().write(tmp_path_factory.mktemp("tiny") / "tiny.gguf", smol_tokenizer)


@pytest.fixture(scope="module", params=list(BEFORE))
def weights(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def before(weights: str) -> int:
    return BEFORE[weights]


@pytest.fixture(scope="module")
def target(weights: str, beginning: Path, beginning_f32: Path, gemma_beginning: Path) -> Iterator[LlamaTarget]:
    path = {"q4_1": beginning, "f32": beginning_f32, "q4_k": gemma_beginning}[weights]
    with opened(
        path,
        exact=True,
        n_ctx=640,
        threads=None,
        threads_batch=None,
        flash_attn="auto",
        cache_type_k="f16",
        cache_type_v="f16",
    ) as target:
        yield target


@pytest.fixture(scope="module")
def text(target: LlamaTarget, before: int) -> list[int]:
    words = Path(__file__).resolve().parents[2].joinpath("docs", "architecture.md").read_text("utf-8")
    return target.vocab.tokenize(words)[: before + 16]


@pytest.fixture(scope="module")
def whole(target: LlamaTarget, text: list[int], before: int) -> int:
    """A sequence that has read what comes before."""
    seq = target.open()
    read(target, seq, text[:before], chunk=256)
    return seq


@pytest.fixture(scope="module")
def plain(target: LlamaTarget, text: list[int], before: int, whole: int) -> Rows:
    """One row a step, as plain decoding computes them."""
    return np.array([step(target, whole, token) for token in text[before:]])


@pytest.fixture
def seq(target: LlamaTarget, text: list[int], before: int, plain: Rows, whole: int) -> int:
    """The same sequence, its last tokens read again in other pieces."""
    target.truncate(whole, before - 17)
    read(target, whole, text[before - 17 : before], chunk=11)
    return whole


@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [2, 3, 5, 8, 13])
def test_chains_of_any_length(
    target: LlamaTarget, text: list[int], before: int, plain: Rows, seq: int, size: int
) -> None:
    for at in range(before, len(text), size):
        piece = text[at : at + size]
        rows = target.forward([Work(seq, TokenTree.chain(piece))])[0]
        for node in range(len(piece)):
            assert np.array_equal(rows.logits(node), plain[at - before + node])
        target.commit(seq, range(len(piece)))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("true_first", [True, False])
def test_trees_whichever_branch_is_kept(
    target: LlamaTarget, text: list[int], before: int, plain: Rows, seq: int, true_first: bool
) -> None:
    for at in range(before, len(text), 4):
        piece = text[at : at + 4]
        tree, path = branching(piece, true_first=true_first)
        rows = target.forward([Work(seq, tree)])[0]
        for place, node in enumerate(path):
            assert np.array_equal(rows.logits(node), plain[at - before + place])
        target.commit(seq, path)
        kept = target.n_past(seq) - at
        assert kept == (len(path) if true_first else 1)
        if kept < len(path):
            read(target, seq, piece[kept:])


def branching(tokens: Sequence[int], *, true_first: bool) -> tuple[TokenTree, list[int]]:
    """``tokens`` with a wrong guess beside each of them, likelier or not."""
    nodes, parents, scores, path = [tokens[0]], [-1], [1.0], [0]
    for token in tokens[1:]:
        parent = path[-1]
        path.append(len(nodes))
        nodes += [token, token + 1]
        parents += [parent, parent]
        scores += [0.9, 0.05] if true_first else [0.05, 0.9]
    return TokenTree(tuple(nodes), tuple(parents), tuple(scores), ("",) * len(nodes)), path


def test_a_text_that_is_gone_back_in(target: LlamaTarget, text: list[int], before: int, plain: Rows, seq: int) -> None:
    """Threads make no difference either, where a pass has more than one row."""
    for n, threads in ((before - 90, 1), (before - 40, 2), (before - 1, 1)):
        target._lib.llama_set_n_threads(target._ctx, threads, threads)
        assert target.truncate(seq, n) == n
        read(target, seq, text[n:before], chunk=29)
        assert np.array_equal(step(target, seq, text[before]), plain[0])


def test_what_is_set_aside_is_enough(tiny: Path) -> None:
    """The last tokens of a full context are filled up like all others."""
    with opened(tiny, exact=True, n_ctx=256) as target:
        assert target.caps.n_ctx == 256
        seq = target.open()
        read(target, seq, [5] * 255)
        step(target, seq, 5)
        assert target.n_past(seq) == 256


# The engine


@pytest.fixture(scope="module")
def engine(beginning: Path) -> Iterator[Engine]:
    model = ModelOptions(beginning)
    options = EngineOptions(model, draft=model, spec_types=("draft-simple", "suffix"), n_ctx=640, exact=True)
    with load(options) as engine:
        yield engine


def chat(*turns: str) -> GenerationRequest:
    roles = ("user", "assistant")
    messages = tuple(Message(roles[i % 2], turn) for i, turn in enumerate(turns))
    return GenerationRequest(messages=messages, max_tokens=24, sampling=GREEDY, logprobs=2)


def bits(outcome: Outcome) -> list[tuple[int, float | None]]:
    """Tokens, and log-probabilities to the last bit."""
    return [(info.id, info.logprob) for info in outcome.infos]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_answers_are_the_same_to_the_bit(engine: Engine, sampling: SamplingParams) -> None:
    wish = replace(chat("Repeat three times: the rain in Spain stays mainly in the plain."), sampling=sampling)
    engine.forget()
    plain = answer(engine, replace(wish, spec=PLAIN))
    for spec in (CHAIN, TREE, SpecParams(depth=16)):
        ours = answer(engine, replace(wish, spec=spec))
        assert bits(ours) == bits(plain)
        assert ours.stats.accepted > 0


@pytest.mark.timeout(300)
def test_a_conversation_that_goes_on_is_as_one_that_is_read_anew(engine: Engine) -> None:
    first = answer(engine, replace(chat("Name three rivers."), spec=TREE))
    again = replace(chat("Name three rivers.", first.text, "And three lakes?"), spec=CHAIN)
    gone_on = answer(engine, again)
    engine.forget()
    anew = answer(engine, replace(again, spec=PLAIN))
    assert gone_on.started.cache_n > first.started.prompt_n > anew.started.cache_n == 0
    assert bits(gone_on) == bits(anew)


def test_the_price_is_told(engine: Engine) -> None:
    exact = engine.info.exact
    assert exact is not None
    assert exact.rows == 8
    assert exact.price > 1
    assert f"--exact: {', '.join(exact.parts)}" in engine.info.warnings
    assert engine.controller.threads is None


# What is refused


def refused(path: Path, **changes: object) -> str:
    with pytest.raises(UsageError, match="--exact is not possible") as error:
        load(replace(EngineOptions(ModelOptions(path), n_ctx=256, exact=True), **changes))  # type: ignore[arg-type]
    return error.value.message


def test_recurrent_layers(smol_tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    mamba = TinyModel(architecture="mamba").write(tmp_path / "mamba.gguf", smol_tokenizer)
    assert "mamba.gguf has recurrent layers" in refused(mamba)


def test_experts(smol_tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    from tests.real.test_load_options import Experts

    path = Experts(width=128).write(tmp_path / "experts.gguf", smol_tokenizer)
    assert "experts.gguf has experts" in refused(path)


def test_several_conversations(tiny: Path) -> None:
    assert "several conversations share a cache" in refused(tiny, sequences=2)


def test_a_window_that_moves(gemma: Path) -> None:
    assert "a cache that is not kept whole" in refused(gemma, swa_full=False)


def test_other_devices(tiny: Path) -> None:
    with rpc_servers(1) as servers:
        assert "computes by the length of the context" in refused(tiny, rpc=servers)
        alone = replace(EngineOptions(ModelOptions(tiny, devices=("none",)), n_ctx=256, exact=True), rpc=servers)
        with load(alone) as engine:
            assert engine.info.exact is not None
