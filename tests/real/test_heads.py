"""EAGLE-3 heads in llama.cpp: what they compute and guess is what their weights say, and the text stays the target's.

Heads are random: the worst case for a guess, and as good as any for whether it is the right one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.backends.base import CARRIED, Work
from localspec.backends.llamacpp import EagleHead, LlamaModel, LlamaTarget
from localspec.backends.llamacpp.hooks import Hooks
from localspec.control import Limits, Price
from localspec.drafters.base import Ask
from localspec.drafters.files import EAGLE3
from localspec.drafters.head import HeadModel
from localspec.engine import Engine
from localspec.errors import LocalspecError, PairingError, UsageError
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.models.demo import DEMO_HEAD, demo_drafter
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import GenerationRequest, Message, SamplingParams, SpecParams
from localspec.vocab import pair
from tests.engine.support import Outcome
from tests.real.support import CHAIN, GREEDY, PLAIN, TREE, answer, check_cells, exact_options, opened, together
from tests.support.gguf_files import TinyModel, TokenizerKeys
from tests.support.gguf_heads import TinyHead

TARGET = TinyModel(layers=4, width=64, seed=3)
ROUNDING = 1e-3
N_VOCAB = 2000
HEADS = {
    "plain": TinyHead(N_VOCAB, TARGET.width, (0, 1, 3)),
    "small vocabulary": TinyHead(N_VOCAB, TARGET.width, (1, 2, 3), guessable=tuple(range(3, 2000, 7)), seed=1),
    "norm before residual": TinyHead(N_VOCAB, TARGET.width, (2, 0, 3), norm_before_residual=True, seed=2),
    "one head": TinyHead(N_VOCAB, TARGET.width, (1, 2, 3), width=32, heads=1, kv_heads=1, seed=3),
}
TEXT = (504, 1768, 282, 1649, 314, 1042, 28, 284, 260, 1768, 282, 1500)
STATE = SamplerState.start(GREEDY, seed=1, prompt=(), end_tokens=(), n_ctx=512)


@pytest.fixture(scope="module")
def tokenizer(smol_tokenizer: TokenizerKeys) -> TokenizerKeys:
    return smol_tokenizer.first(N_VOCAB)


@pytest.fixture(scope="module")
def folder(tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heads")
    TARGET.write(folder / "target.gguf", tokenizer)
    for name, head in HEADS.items():
        head.write(folder / f"{name}.gguf", tokenizer)
    return folder


@dataclass(frozen=True)
class Pair:
    target: LlamaTarget
    head: EagleHead
    plain: TinyHead

    def features(self, tokens: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """The target's of ``tokens``, read into a sequence of their own."""
        seq = self.target.open()
        (rows,) = self.target.forward([Work.prompt(seq, tokens, features=self.head.layers)])
        features = {layer: states.copy() for layer, states in rows.features.items()}
        self.target.close(seq)
        return features

    def states(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """What the reference makes of these."""
        features = self.features(tokens)
        return self.plain.encode(np.concatenate([features[layer] for layer in self.plain.layers], axis=1))

    def expected(self, text: Sequence[int], guesses: Sequence[int]) -> NDArray[np.float32]:
        """Scores behind ``text`` and ``guesses``, from the first token on and from the target's states alone."""
        states, read = self.states(text[:-1]), list(text[1:])
        for guess in guesses:
            carried, _ = self.plain.states_and_logits(read, states)
            states, read = np.concatenate([states, carried[-1:]]), [*read, guess]
        _, logits = self.plain.states_and_logits(read, states)
        row: NDArray[np.float32] = logits[-1]
        return row


@contextmanager
def paired(folder: Path, name: str, **changes: int) -> Iterator[Pair]:
    with opened(folder / "target.gguf", sequences=3, **changes) as target:
        options = replace(target._options, path=folder / f"{name}.gguf")
        head = EagleHead(LlamaModel(target.model.native, options), options, target)
        try:
            yield Pair(target, head, HEADS[name])
        finally:
            head.close_all()


@pytest.fixture(scope="module", params=sorted(HEADS))
def both(request: pytest.FixtureRequest, folder: Path) -> Iterator[Pair]:
    with paired(folder, request.param) as pair:
        yield pair


def close(got: NDArray[np.float32], wanted: NDArray[np.float32]) -> bool:
    finite = np.isfinite(wanted)
    return bool((np.isfinite(got) == finite).all()) and bool(np.abs(got[finite] - wanted[finite]).max() < ROUNDING)


# -- what a pass computes


def test_states_and_scores_are_those_of_the_weights(both: Pair) -> None:
    seq = both.head.open()
    states = both.head.encode(seq, both.features(TEXT[:-1]))
    assert close(states, both.states(TEXT[:-1]))
    chain = TokenTree.chain(TEXT[1:])
    (rows,) = both.head.forward([Work(seq, chain, rows_from=len(chain) - 1, states=states)])
    carried, logits = both.plain.states_and_logits(TEXT[1:], states)
    assert close(rows.features[CARRIED], carried)
    assert close(rows.logits(len(chain) - 1), logits[-1])
    both.head.close(seq)


def test_siblings_do_not_see_each_other(both: Pair) -> None:
    tree = TokenTree.grown((504, 9, 10, 11, 12, 13), (-1, 0, 0, 1, 2, 2), (1.0, 0.2, 0.6, 0.5, 0.1, 0.9), ("",) * 6)
    states = np.random.default_rng(0).standard_normal((6, both.plain.width)).astype(np.float32)
    seq = both.head.open()
    (rows,) = both.head.forward([Work(seq, tree, states=states)])
    carried, logits = both.plain.states_and_logits(tree.tokens, states, tree.parents)
    assert close(rows.features[CARRIED], carried)
    assert all(close(rows.logits(node), logits[node]) for node in range(len(tree)))
    both.head.commit(seq, ())
    both.head.close(seq)


def test_a_long_text_is_encoded_in_pieces(folder: Path) -> None:
    with paired(folder, "plain") as both:
        text = [int(token) for token in np.random.default_rng(1).integers(20, 1990, 150)]
        seq = both.head.open()
        states = both.head.encode(seq, both.features(text))
        assert len(text) > both.head.caps.max_rows
        assert close(states, both.states(text))


def test_features_come_in_the_order_of_the_nodes(folder: Path) -> None:
    """Rows of a tree are not computed in that order, and other sequences share the pass."""
    with paired(folder, "plain") as both:
        target, layers = both.target, both.head.layers
        tree = TokenTree.grown((504, 9, 10, 11, 12), (-1, 0, 0, 2, 2), (1.0, 0.1, 0.8, 0.2, 0.7), ("",) * 5)
        work = [
            Work(target.open(), tree, features=layers),
            Work(target.open(), TokenTree.chain((700, 701, 702)), features=layers),
        ]
        given = [{layer: states.copy() for layer, states in rows.features.items()} for rows in target.forward(work)]
    with paired(folder, "plain") as both:
        for item, features in zip(work, given, strict=True):
            for node in range(len(item.tree)):
                fresh = both.features([item.tree.tokens[i] for i in item.tree.path(node)])
                assert all(np.abs(features[layer][node] - fresh[layer][-1]).max() < ROUNDING for layer in layers)


# -- what it guesses


def drafter(both: Pair) -> HeadModel:
    pairing = pair(both.target.vocab, both.head.vocab)
    assert pairing is not None
    return HeadModel(both.head, pairing, EAGLE3)


def begun(both: Pair, text: Sequence[int]) -> tuple[HeadModel, int]:
    """A drafter and a sequence, of which both have the target's passes over ``text``."""
    guesser, target = drafter(both), both.target
    seq = target.open()
    assert seq not in guesser._lanes
    guesser.open(seq)
    (rows,) = target.forward([Work.prompt(seq, text, both.head.layers)])
    target.commit(seq, range(len(text)))
    guesser.prefill(seq, 0, text, rows.features)
    return guesser, seq


def test_every_guess_is_among_the_best_of_its_place(both: Pair) -> None:
    """Over a conversation in which guesses stand and fall, the text is cut, and answers go on."""
    target, layers, text = both.target, both.head.layers, list(TEXT)
    guesser, seq = begun(both, text[:-1])
    for step, limits in enumerate(
        [Limits(4, 4, 1), Limits(3, 9, 3), Limits(3, 9, 3), Limits(4, 4, 1), Limits(2, 6, 3)]
    ):
        assert guesser.gap(seq, len(text) - 1) == 0
        (draft,) = guesser.propose([Ask(seq, text, Price(limits, 0.0), STATE)])
        tree = draft.tree
        assert tree.draft_n
        for node in range(1, len(tree)):
            before = [tree.tokens[i] for i in tree.path(tree.parents[node])][1:]
            row = both.expected(text, before)
            best = np.sort(row)[-limits.width]
            assert row[tree.tokens[node]] >= best - ROUNDING
        # As if the target had accepted a branch of it.
        path = tree.path(len(tree) - 1)[1:][: step % 3]
        start = target.n_past(seq)
        (rows,) = target.forward([Work(seq, tree, features=layers)])
        target.commit(seq, (0, *path))
        guesser.observe(seq, start, tree, path, rows)
        text += [*(tree.tokens[i] for i in path), 1000 + step]
        check_cells(both.head)
    target.close(seq)
    guesser.close(seq)


def test_a_cut_text_lacks_one_state_at_most(folder: Path) -> None:
    with paired(folder, "plain") as both:
        target, layers = both.target, both.head.layers
        guesser, seq = begun(both, TEXT)
        guesser.truncate(seq, 9)  # nothing was read yet
        assert (guesser.gap(seq, 9), guesser.lag(seq, 9)) == (0, 9)
        guesser.propose([Ask(seq, TEXT[:10], Price(Limits(2, 2), 0.0), STATE)])
        guesser.truncate(seq, 9)
        assert guesser.gap(seq, 9) == 0
        guesser.propose([Ask(seq, TEXT[:10], Price(Limits(2, 2), 0.0), STATE)])
        tree = TokenTree.root(TEXT[9])
        target.truncate(seq, 9)
        (rows,) = target.forward([Work(seq, tree, features=layers)])
        target.commit(seq, (0,))
        guesser.observe(seq, 9, tree, (), rows)
        guesser.truncate(seq, 6)
        assert guesser.gap(seq, 6) == 1
        (nothing,) = guesser.propose([Ask(seq, TEXT[:7], Price(Limits(2, 2), 0.0), STATE)])
        assert nothing.tree.draft_n == 0
        assert nothing.out is None
        target.truncate(seq, 5)
        (rows,) = target.forward([Work.prompt(seq, TEXT[5:6], layers)])
        target.commit(seq, (0,))
        guesser.prefill(seq, 5, TEXT[5:6], rows.features)
        assert guesser.gap(seq, 6) == 0
        (draft,) = guesser.propose([Ask(seq, TEXT[:7], Price(Limits(1, 1), 0.0), STATE)])
        assert draft.tree.tokens[1] == both.expected(TEXT[:7], ()).argmax()


def test_a_fork_goes_on_from_the_shared_text(folder: Path) -> None:
    with paired(folder, "plain") as both:
        target = both.target
        guesser, seq = begun(both, TEXT)
        new = target.fork(seq, 8)
        guesser.fork(seq, new, 8)
        assert guesser.gap(new, 8) == 0
        one, other = guesser.propose(
            [Ask(s, text, Price(Limits(1, 1), 0.0), STATE) for s, text in ((seq, (*TEXT, 77)), (new, (*TEXT[:8], 88)))]
        )
        assert one.tree.tokens[1] == both.expected((*TEXT, 77), ()).argmax()
        assert other.tree.tokens[1] == both.expected((*TEXT[:8], 88), ()).argmax()


def test_a_head_that_is_not_asked_makes_no_pass(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is used or not, every step of the target hands it states: they wait, and are encoded together."""
    with paired(folder, "plain") as both:
        passes = list[int]()
        encode = both.head.encode

        def counted(seq: int, features: Mapping[int, NDArray[np.float32]]) -> NDArray[np.float32]:
            passes.append(len(next(iter(features.values()))))
            return encode(seq, features)

        monkeypatch.setattr(both.head, "encode", counted)
        target, layers, text = both.target, both.head.layers, [*TEXT]
        guesser, seq = begun(both, text)
        for token in range(1000, 1020):
            tree = TokenTree.root(token)
            (rows,) = target.forward([Work(seq, tree, features=layers)])
            target.commit(seq, (0,))
            guesser.observe(seq, len(text), tree, (), rows)
            text.append(token)
        assert passes == []
        assert guesser.gap(seq, len(text)) == 0
        (draft,) = guesser.propose([Ask(seq, [*text, 77], Price(Limits(1, 1), 0.0), STATE)])
        assert passes == [len(text)]
        assert draft.tree.tokens[1] == both.expected([*text, 77], ()).argmax()


# -- in an engine


@contextmanager
def engine(folder: Path, name: str = "plain", **changes: object) -> Iterator[Engine]:
    options = exact_options(folder / "target.gguf", folder / f"{name}.gguf", spec_types=("draft-eagle3",), **changes)
    with load(options) as engine:
        yield engine


@pytest.mark.parametrize("spec", [CHAIN, TREE], ids=["chain", "tree"])
@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        SamplingParams(temperature=0.8, seed=5),
        SamplingParams(temperature=0.8, top_k=20, repeat_penalty=1.2, seed=6),
    ],
    ids=["greedy", "drawn", "penalties"],
)
def test_the_text_is_the_targets_own(folder: Path, spec: SpecParams, sampling: SamplingParams) -> None:
    wish = GenerationRequest(prompt="The capital of France is", max_tokens=40, sampling=sampling, spec=spec)
    with engine(folder) as one:
        guessed = answer(one, wish)
        assert guessed.ids == answer(one, replace(wish, spec=PLAIN)).ids
        assert guessed.stats.draft_n > 40


def test_by_ratio_too(folder: Path) -> None:
    """Under the rule ratio the text is another one; guesses of a head that is always wrong do no harm."""
    sampling = SamplingParams(temperature=0.8, seed=5)
    spec = replace(CHAIN, accept="ratio")
    with engine(folder) as one:
        outcome = answer(one, GenerationRequest(prompt="The capital", max_tokens=24, sampling=sampling, spec=spec))
        assert len(outcome.ids) == 24


def test_turns_and_neighbours(folder: Path) -> None:
    """A second turn, another answer to the first, and two conversations at once."""
    begun = GenerationRequest(tokens=TEXT, max_tokens=20, sampling=GREEDY, spec=TREE)
    with engine(folder, sequences=2) as one:
        first = answer(one, begun)
        wishes = [
            replace(begun, tokens=(*TEXT, *first.ids, 28, 284)),
            replace(begun, sampling=SamplingParams(temperature=1.0, seed=9)),
            replace(begun, tokens=TEXT[:8], spec=CHAIN),
        ]
        later = [*together(one, wishes[:2]), answer(one, wishes[2])]
        assert all(outcome.stats.draft_n > 40 for outcome in later)
    with engine(folder) as fresh:
        assert [one.ids for one in later] == [answer(fresh, replace(wish, spec=PLAIN)).ids for wish in wishes]


# -- what is refused


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (TinyHead(N_VOCAB, 32, (0, 1, 2)), "made for a target of width 32"),
        (TinyHead(N_VOCAB, TARGET.width, (0, 1, 4)), "reads layers 0, 1, 4"),
    ],
)
def test_a_head_for_another_target_is_refused(
    folder: Path, tmp_path: Path, tokenizer: TokenizerKeys, head: TinyHead, words: str
) -> None:
    path = head.write(tmp_path / "other.gguf", tokenizer)
    with pytest.raises(UsageError, match=words):
        load(EngineOptions(ModelOptions(folder / "target.gguf"), draft=ModelOptions(path), n_ctx=256))


def test_a_head_with_another_vocabulary_is_refused(folder: Path, tmp_path: Path, tokenizer: TokenizerKeys) -> None:
    tokens = list(tokenizer.tokens)
    tokens[500] = "otherwise"
    path = HEADS["plain"].write(tmp_path / "o.gguf", tokenizer.with_value("tokenizer.ggml.tokens", tokens))
    with pytest.raises(PairingError, match="has another vocabulary than the target"):
        load(EngineOptions(ModelOptions(folder / "target.gguf"), draft=ModelOptions(path), n_ctx=256))


def test_a_target_that_hands_out_nothing_is_named(folder: Path, gemma: Path) -> None:
    with pytest.raises(LocalspecError, match=r"another vocabulary|none of the architecture gemma3"):
        load(EngineOptions(ModelOptions(gemma), draft=ModelOptions(folder / "plain.gguf"), n_ctx=256))


def test_a_build_without_the_functions_is_told_by_name() -> None:
    class Library:
        def __getitem__(self, name: str) -> object:
            raise AttributeError(name)

    with pytest.raises(UsageError, match="llama_set_embeddings_layer_inp"):
        Hooks(Library())


@pytest.mark.parametrize(
    ("types", "words"),
    [
        (("draft-simple",), "plain.gguf is a head for draft-eagle3, not what --spec-type draft-simple asks for"),
        (("suffix",), "plain.gguf is a head for draft-eagle3, but --spec-type suffix does not use it"),
    ],
)
def test_the_type_has_to_be_the_files(folder: Path, types: tuple[str, ...], words: str) -> None:
    options = EngineOptions(
        ModelOptions(folder / "target.gguf"), draft=ModelOptions(folder / "plain.gguf"), spec_types=types
    )
    with pytest.raises(UsageError, match=words):
        load(options)


def test_a_head_is_known_by_its_file(folder: Path) -> None:
    options = EngineOptions(
        ModelOptions(folder / "target.gguf"), draft=ModelOptions(folder / "plain.gguf"), n_ctx=256, measure=False
    )
    with load(options) as one:
        assert one.info.drafters == ("suffix", "draft-eagle3")
        assert ("layers", "0,1,3") in one.info.loads[1].settings


def test_the_type_alone_needs_a_file(folder: Path) -> None:
    with pytest.raises(UsageError, match="draft-eagle3 needs a head"):
        load(EngineOptions(ModelOptions(folder / "target.gguf"), spec_types=("draft-eagle3",)))


# -- the demo model's own

QUESTIONS = ("Write a short poem about the sea.", "Explain what a prime number is.")


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=0.8, seed=5)], ids=["greedy", "drawn"])
def test_the_demo_models_head(smol_f32: Path, sampling: SamplingParams) -> None:
    """It guesses right now and then, and the text is what it would be without it."""
    with load(exact_options(smol_f32, demo_drafter(DEMO_HEAD), spec_types=(EAGLE3,))) as one:

        def told(question: str, spec: SpecParams) -> Outcome:
            message = Message("user", question)
            return answer(one, GenerationRequest(messages=(message,), max_tokens=24, sampling=sampling, spec=spec))

        plain = [told(question, PLAIN).ids for question in QUESTIONS]
        for spec in (CHAIN, TREE):
            outcomes = [told(question, spec) for question in QUESTIONS]
            assert [outcome.ids for outcome in outcomes] == plain
            right, tried = (
                sum(counts) for counts in zip(*(first_guesses(outcome) for outcome in outcomes), strict=True)
            )
            assert right > tried / 10


def first_guesses(outcome: Outcome) -> tuple[int, int]:
    """How many held, of how many."""
    return outcome.stats.accepted_at[0], outcome.stats.tested_at[0]
