"""Layers for multi-token prediction in llama.cpp: what they compute and guess is what their weights say, and the text
stays the target's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.base import CARRIED, Head, Work
from localspec.backends.llamacpp import LlamaTarget, MtpHead, as_one, predictors
from localspec.control import Limits, Price
from localspec.drafters.base import Ask
from localspec.drafters.files import MTP
from localspec.drafters.head import HeadModel
from localspec.engine import Engine
from localspec.errors import OutOfMemory, UsageError
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import GenerationRequest, Tokens
from localspec.vocab import pair
from tests.engine.support import Outcome
from tests.real.support import (
    CHAIN,
    GREEDY,
    TREE,
    answer,
    check_all_ways,
    check_cells,
    exact_options,
    opened,
    single,
)
from tests.support.gguf_files import TinyModel, TokenizerKeys
from tests.support.gguf_mtp import TinyMtp

N_VOCAB = 2000
MODELS = {"one": TinyMtp(N_VOCAB, 1), "three": TinyMtp(N_VOCAB, 3, seed=1)}
ROUNDING = 1e-3
TEXT = (504, 1768, 282, 1649, 314, 1042, 28, 284, 260, 1768, 282, 1500)
STATE = SamplerState.start(GREEDY, seed=1, prompt=(), end_tokens=(), n_ctx=512)
FORK = TokenTree.grown((504, 9, 10, 11, 12, 13), (-1, 0, 0, 1, 2, 2), (1.0, 0.2, 0.6, 0.5, 0.1, 0.9), ("",) * 6)


@pytest.fixture(scope="module")
def tokenizer(smol_tokenizer: TokenizerKeys) -> TokenizerKeys:
    return smol_tokenizer.first(N_VOCAB)


@pytest.fixture(scope="module")
def folder(tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predictors")
    for name, model in MODELS.items():
        model.write(folder / f"{name}.gguf", tokenizer)
    return folder


@dataclass(frozen=True)
class Pair:
    target: LlamaTarget
    head: Head
    plain: TinyMtp

    @property
    def single(self) -> list[MtpHead]:
        return [head for head in single(self.head) if isinstance(head, MtpHead)]

    def states(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """The target's of ``tokens``, read into a sequence of their own."""
        seq = self.target.open()
        (rows,) = self.target.forward([Work.prompt(seq, tokens, features=(CARRIED,))])
        states = rows.features[CARRIED].copy()
        self.target.close(seq)
        return states

    def expected(self, text: Sequence[int], guesses: Sequence[int]) -> NDArray[np.float32]:
        """Scores behind ``text`` and ``guesses``, from the first token on and from the target's states alone."""
        states, read = self.states(text[:-1]), list(text[1:])
        for level in range(len(guesses) + 1):
            which = min(level, self.plain.predictors - 1)
            last = self.plain.carried(read, states, predictor=which)[-1:]
            states, read = np.concatenate([states, last]), [*read, *guesses[level : level + 1]]
        row: NDArray[np.float32] = self.plain.logits(last, predictor=which)[0]
        return row


@contextmanager
def paired(folder: Path, name: str, **changes: int) -> Iterator[Pair]:
    with opened(folder / f"{name}.gguf", sequences=3, predictors=True, **changes) as target:
        head = as_one(predictors(target.model, target._options, target), target._options)
        try:
            yield Pair(target, head, MODELS[name])
        finally:
            head.close_all()


@pytest.fixture(scope="module", params=sorted(MODELS))
def both(request: pytest.FixtureRequest, folder: Path) -> Iterator[Pair]:
    with paired(folder, request.param) as pair:
        yield pair


def close(got: NDArray[np.float32], wanted: NDArray[np.float32]) -> bool:
    return bool(np.abs(got - wanted).max() < ROUNDING)


def test_each_layer_computes_what_its_weights_say(both: Pair) -> None:
    assert len(both.single) == both.plain.predictors
    states = np.random.default_rng(0).standard_normal((len(FORK), both.plain.width)).astype(np.float32)
    for number, head in enumerate(both.single):
        seq = head.open()
        (rows,) = head.forward([Work(seq, FORK, states=states)])
        carried = both.plain.carried(FORK.tokens, states, FORK.parents, predictor=number)
        logits = both.plain.logits(carried, predictor=number)
        assert close(rows.features[CARRIED], carried)
        assert all(close(rows.logits(node), logits[node]) for node in range(len(FORK)))
        head.close(seq)


def test_states_come_in_the_order_of_the_nodes(both: Pair) -> None:
    """Rows of a tree are not computed in that order, and other sequences share the pass."""
    target = both.target
    chain = TokenTree.chain((700, 701, 702))
    work = [Work(target.open(), tree, features=(CARRIED,)) for tree in (FORK, chain)]
    given = [rows.features[CARRIED].copy() for rows in target.forward(work)]
    for item, states in zip(work, given, strict=True):
        for node in range(len(item.tree)):
            fresh = both.states([item.tree.tokens[i] for i in item.tree.path(node)])
            assert close(states[node], fresh[-1])
        target.commit(item.seq, ())
        target.close(item.seq)


# -- what they guess


def drafter(both: Pair) -> HeadModel:
    pairing = pair(both.target.vocab, both.target.vocab)
    assert pairing is not None
    return HeadModel(both.head, pairing, MTP)


def begun(both: Pair, text: Sequence[int]) -> tuple[HeadModel, int]:
    """A drafter and a sequence, of which both have the target's passes over ``text``."""
    guesser, target = drafter(both), both.target
    seq = target.open()
    guesser.open(seq)
    (rows,) = target.forward([Work.prompt(seq, text, (CARRIED,))])
    target.commit(seq, range(len(text)))
    guesser.prefill(seq, 0, text, rows.features)
    return guesser, seq


def test_every_guess_is_among_the_best_of_its_place(both: Pair) -> None:
    """Over a conversation in which guesses stand and fall, some steps ask for less, the text is cut, and answers go
    on."""
    target, text = both.target, list(TEXT)
    guesser, seq = begun(both, text[:-1])
    for step, limits in enumerate(
        [Limits(4, 4, 1), Limits(3, 9, 3), Limits(1, 2, 2), Limits(3, 9, 3), Limits(4, 4, 1), Limits(2, 6, 3)]
    ):
        assert guesser.gap(seq, len(text) - 1) == 0
        (draft,) = guesser.propose([Ask(seq, text, Price(limits, 0.0), STATE)])
        tree = draft.tree
        if limits.width == 1:
            assert tree.draft_n == min(limits.depth, both.head.deepest or limits.depth)
        for node in range(1, len(tree)):
            before = [tree.tokens[i] for i in tree.path(tree.parents[node])][1:]
            row = both.expected(text, before)
            best = np.partition(row, -limits.width)[-limits.width]
            assert row[tree.tokens[node]] >= best - ROUNDING
        # As if the target had accepted a branch of it.
        path = tree.path(len(tree) - 1)[1:][: step % 3]
        start = target.n_past(seq)
        (rows,) = target.forward([Work(seq, tree, features=(CARRIED,))])
        target.commit(seq, (0, *path))
        guesser.observe(seq, start, tree, path, rows)
        text += [*(tree.tokens[i] for i in path), 1000 + step]
        if step == 2:
            del text[-5:]
            target.truncate(seq, len(text) - 2)
            guesser.truncate(seq, len(text) - 2)
            (rows,) = target.forward([Work.prompt(seq, text[-2:-1], (CARRIED,))])
            target.commit(seq, (0,))
            guesser.prefill(seq, len(text) - 2, text[-2:-1], rows.features)
            if guesser.gap(seq, len(text) - 1):  # the state at the cut is gone: the target reads one more again
                target.truncate(seq, len(text) - 3)
                (rows,) = target.forward([Work.prompt(seq, text[-3:-1], (CARRIED,))])
                target.commit(seq, (0, 1))
                guesser.prefill(seq, len(text) - 3, text[-3:-1], rows.features)
        for head in both.single:
            check_cells(head)
    target.close(seq)
    guesser.close(seq)


def test_a_fork_goes_on_from_the_shared_text(both: Pair) -> None:
    target = both.target
    guesser, seq = begun(both, TEXT)
    ask = Ask(seq, (*TEXT, 77), Price(Limits(2, 2), 0.0), STATE)
    guesser.propose([ask])
    new = target.fork(seq, 8)
    guesser.fork(seq, new, 8)
    guesser.prefill(new, 7, TEXT[7:8], {CARRIED: both.states(TEXT[:8])[7:]})
    assert guesser.gap(new, 8) == 0
    one, other = guesser.propose([ask, replace(ask, seq=new, tokens=(*TEXT[:8], 88))])
    for draft, text in ((one, (*TEXT, 77)), (other, (*TEXT[:8], 88))):
        first, second = draft.tree.tokens[1], draft.tree.tokens[2:3]
        assert first == both.expected(text, ()).argmax()
        assert second == (() if both.head.deepest == 1 else (both.expected(text, (first,)).argmax(),))
    for one_seq in (seq, new):
        target.close(one_seq)
        guesser.close(one_seq)


def test_a_long_text_is_read_in_pieces(both: Pair) -> None:
    text = [int(token) for token in np.random.default_rng(1).integers(20, 1990, 150)]
    guesser, seq = begun(both, text[:-1])
    (draft,) = guesser.propose([Ask(seq, text, Price(Limits(2, 2), 0.0), STATE)])
    first, second = draft.tree.tokens[1:]
    assert first == both.expected(text, ()).argmax()
    assert second == both.expected(text, (first,)).argmax()
    both.target.close(seq)
    guesser.close(seq)


def test_a_pass_that_fails_leaves_the_text_alone(both: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of the layers it is that fails."""
    guesser, seq = begun(both, TEXT[:-1])
    ask = Ask(seq, TEXT, Price(Limits(3, 3), 0.0), STATE)
    last = both.single[-1]

    def fails(work: Sequence[Work]) -> list[object]:
        raise OutOfMemory("no room")

    with monkeypatch.context() as patch:
        patch.setattr(last, "forward", fails)
        with pytest.raises(OutOfMemory):
            guesser.propose([ask])
    for head in both.single:
        check_cells(head)
    (draft,) = guesser.propose([ask])
    assert draft.tree.tokens[1] == both.expected(TEXT, ()).argmax()
    assert draft.tree.tokens[2] == both.expected(TEXT, draft.tree.tokens[1:2]).argmax()
    both.target.close(seq)
    guesser.close(seq)


# -- in an engine


@contextmanager
def engine(folder: Path, name: str, **changes: Any) -> Iterator[Engine]:
    with load(exact_options(folder / f"{name}.gguf", spec_types=(MTP,), **changes)) as engine:
        yield engine


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_text_is_the_targets_own(folder: Path, name: str) -> None:
    """Greedy and drawn, chain and tree, a second turn, another answer, and two conversations at once."""
    plain = exact_options(folder / f"{name}.gguf", spec_types=("none",))
    with engine(folder, name, sequences=2) as one:
        check_all_ways(one, plain, TEXT, drafted=35)


def test_the_layers_are_the_targets(folder: Path) -> None:
    with engine(folder, "three") as one:
        assert one.info.drafters == (MTP,)
        assert one.info.draft is None
        assert [load.role for load in one.info.loads] == ["target", "predictors"]
        assert ("predictors", "3") in one.info.loads[1].settings


@pytest.mark.parametrize("name", sorted(MODELS))
def test_guesses_that_hold_are_kept(folder: Path, name: str) -> None:
    """A wish for one token over and over, of which guesses know as well."""
    sampling = replace(GREEDY, logit_bias=((40, 100.0),))
    wish = GenerationRequest(tokens=TEXT, max_tokens=30, sampling=sampling, spec=CHAIN)
    with engine(folder, name) as one:
        outcome = answer(one, wish)
        assert outcome.ids == (40,) * 30
        assert outcome.stats.accepted >= 20
        # What comes after is guessed from the right states: as from a text that was read anew.
        tokens = (*TEXT, *outcome.ids, 7)
        wish = replace(wish, tokens=tokens, sampling=GREEDY, max_tokens=8, trace=True)
        later = answer(one, wish)
    with engine(folder, name) as fresh:
        other = answer(fresh, wish)
    assert later.ids == other.ids
    assert guessed(later) == guessed(other)
    assert max(map(len, guessed(later))) > 2


def guessed(outcome: Outcome) -> list[tuple[int, ...]]:
    steps = [event.step for event in outcome.events if isinstance(event, Tokens)]
    return [step.tree.tokens for step in steps if step is not None and step.tree is not None]


def test_they_may_lie_in_a_file_beside_the_target(folder: Path, tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    """A target that was written without its layers, and a file that holds nothing else."""
    model = MODELS["three"]
    bare = replace(model, leaves_out=tuple(f"blk.{layer}." for layer in (2, 3, 4))).write(
        tmp_path / "bare.gguf", tokenizer
    )
    beside = replace(model, leaves_out=("blk.0.", "blk.1.")).write(tmp_path / "beside.gguf", tokenizer)
    wish = GenerationRequest(tokens=TEXT, max_tokens=12, sampling=GREEDY, spec=TREE)
    guessed = []
    for options in (
        exact_options(folder / "three.gguf", spec_types=(MTP,)),
        exact_options(bare, beside, spec_types=None),
    ):
        with load(options) as one:
            assert MTP in one.info.drafters
            outcome = answer(one, replace(wish, spec=replace(TREE, types=(MTP,))))
            guessed.append((outcome.ids, outcome.stats.draft_n, outcome.stats.tested))
    assert guessed[0] == guessed[1]
    refused(bare, r"bare.gguf has no layers for multi-token prediction \(3 announced, 0 in the file\)")
    other = TinyMtp(N_VOCAB, width=32).write(tmp_path / "other.gguf", tokenizer)
    refused(other, "the draft model: beside.gguf predicts for a target of architecture mimo2 and width 64", beside)


# -- what is refused


def refused(path: Path, words: str, draft: Path | None = None) -> None:
    beside = None if draft is None else ModelOptions(draft)
    options = EngineOptions(ModelOptions(path), draft=beside, spec_types=(MTP,), n_ctx=256, measure=False)
    with pytest.raises(UsageError, match=words):
        load(options)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (TinyModel(), r"draft-mtp: m.gguf has no layers for multi-token prediction$"),
        (
            TinyMtp(N_VOCAB, predictors=2, width=16, leaves_out=("blk.3.nextn",)),
            r"has no layers for multi-token prediction \(2 announced, 1 in the file\)",
        ),
        (TinyMtp(N_VOCAB, width=16, architecture="glm4"), "of the architecture glm4 none can be run"),
        (
            TinyMtp(N_VOCAB, width=16, architecture="qwen35"),
            "m.gguf has recurrent layers, which cannot take guesses back",
        ),
        (
            TinyMtp(N_VOCAB, predictors=2, width=16, architecture="glm4moe"),
            "of the architecture glm4moe one can be run",
        ),
    ],
    ids=["none", "lost", "not run", "recurrent", "several"],
)
def test_a_file_without_usable_layers_is_told_so(
    tmp_path: Path, tokenizer: TokenizerKeys, model: TinyModel | TinyMtp, words: str
) -> None:
    refused(model.write(tmp_path / "m.gguf", tokenizer), words)


def test_one_that_shares_the_cache_is_refused(tmp_path: Path, tokenizer: TokenizerKeys) -> None:
    model = TinyMtp(N_VOCAB, width=16, architecture="gemma4-assistant").write(tmp_path / "a.gguf", tokenizer)
    with pytest.raises(UsageError, match=r"a\.gguf guesses from its target's own cache"):
        load(EngineOptions(ModelOptions(model), draft=ModelOptions(model)))
