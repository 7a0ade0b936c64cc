"""Layers for multi-token prediction in llama.cpp: what they compute and guess is what their weights say, and the text
stays the target's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

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
from localspec.types import GenerationRequest, SamplingParams
from localspec.vocab import pair
from tests.real.support import CHAIN, GREEDY, PLAIN, TREE, answer, check_cells, exact_options, opened, single, together
from tests.support.gguf_files import TinyModel, TokenizerKeys
from tests.support.gguf_mtp import TinyMtp

N_VOCAB = 49152
MODELS = {"one": TinyMtp(N_VOCAB, 1), "three": TinyMtp(N_VOCAB, 3, seed=1)}
ROUNDING = 1e-3
TEXT = (504, 2768, 282, 4649, 314, 7042, 28, 284, 260, 2768, 282, 6500)
STATE = SamplerState.start(GREEDY, seed=1, prompt=(), end_tokens=(), n_ctx=512)
FORK = TokenTree.grown((504, 9, 10, 11, 12, 13), (-1, 0, 0, 1, 2, 2), (1.0, 0.2, 0.6, 0.5, 0.1, 0.9), ("",) * 6)


@pytest.fixture(scope="module")
def folder(smol_tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predictors")
    for name, model in MODELS.items():
        model.write(folder / f"{name}.gguf", smol_tokenizer)
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
        head = as_one(predictors(target, target._options), target._options)
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
        assert guesser.lag(seq, len(text) - 1) == 0
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
            if guesser.lag(seq, len(text) - 1):  # the state at the cut is gone: the target reads one more again
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
    assert guesser.lag(new, 8) == 0
    one, other = guesser.propose([ask, replace(ask, seq=new, tokens=(*TEXT[:8], 88))])
    for draft, text in ((one, (*TEXT, 77)), (other, (*TEXT[:8], 88))):
        first, second = draft.tree.tokens[1], draft.tree.tokens[2:3]
        assert first == both.expected(text, ()).argmax()
        assert second == (() if both.head.deepest == 1 else (both.expected(text, (first,)).argmax(),))
    for one_seq in (seq, new):
        target.close(one_seq)
        guesser.close(one_seq)


def test_a_long_text_is_read_in_pieces(both: Pair) -> None:
    text = [int(token) for token in np.random.default_rng(1).integers(5, 49000, 150)]
    guesser, seq = begun(both, text[:-1])
    (draft,) = guesser.propose([Ask(seq, text, Price(Limits(2, 2), 0.0), STATE)])
    first, second = draft.tree.tokens[1:]
    assert (first, second) == (both.expected(text, ()).argmax(), both.expected(text, (first,)).argmax())
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
def engine(folder: Path, name: str, **changes: object) -> Iterator[Engine]:
    with load(exact_options(folder / f"{name}.gguf", spec_types=(MTP,), **changes)) as engine:
        yield engine


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_text_is_the_targets_own(folder: Path, name: str) -> None:
    """Greedy and drawn, chain and tree, a second turn, another answer, and two conversations at once."""
    begun = GenerationRequest(tokens=TEXT, max_tokens=20, sampling=GREEDY, spec=TREE)
    drawn = SamplingParams(temperature=0.8, seed=5)
    with engine(folder, name, sequences=2) as one:
        first = answer(one, begun)
        wishes = [
            replace(begun, tokens=(*TEXT, *first.ids, 28, 284)),
            replace(begun, sampling=drawn),
            replace(begun, tokens=TEXT[:8], spec=CHAIN),
            replace(begun, sampling=replace(drawn, repeat_penalty=1.2), spec=CHAIN),
        ]
        later = [*together(one, wishes[:2]), *together(one, wishes[2:])]
        assert all(outcome.stats.draft_n > 15 for outcome in later)
        by_ratio = replace(begun, sampling=drawn, spec=replace(CHAIN, accept="ratio"))
        assert len(answer(one, by_ratio).ids) == 20
    with load(exact_options(folder / f"{name}.gguf", spec_types=("none",))) as plain:
        assert [one.ids for one in (first, *later)] == [
            answer(plain, replace(wish, spec=PLAIN)).ids for wish in (begun, *wishes)
        ]


def test_the_layers_are_the_targets(folder: Path) -> None:
    with engine(folder, "three") as one:
        assert one.info.drafters == (MTP,)
        assert one.info.draft is None
        assert [load.role for load in one.info.loads] == ["target", "predictors"]
        assert ("predictors", "3") in one.info.loads[1].settings


# -- what is refused


def refused(path: Path, words: str, **changes: object) -> None:
    options = EngineOptions(ModelOptions(path), spec_types=(MTP,), n_ctx=256, measure=False)
    with pytest.raises(UsageError, match=words):
        load(replace(options, **changes))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (TinyModel(), r"draft-mtp: m.gguf has no layers for multi-token prediction$"),
        (
            TinyMtp(N_VOCAB, 2, leaves_out="blk.3.nextn.eh_proj.weight"),
            r"has no layers for multi-token prediction \(2 announced, 1 in the file\)",
        ),
        (TinyMtp(N_VOCAB, architecture="glm4"), "llama.cpp runs none of the architecture glm4"),
        (TinyMtp(N_VOCAB, 2, architecture="glm4moe"), "llama.cpp runs one of the architecture glm4moe"),
    ],
    ids=["none", "lost", "not run", "several"],
)
def test_a_file_without_usable_layers_is_told_so(
    tmp_path: Path, smol_tokenizer: TokenizerKeys, model: TinyModel | TinyMtp, words: str
) -> None:
    refused(model.write(tmp_path / "m.gguf", smol_tokenizer), words)
