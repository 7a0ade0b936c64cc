"""Block drafters in llama.cpp: what they compute and guess is what their weights say, and the text stays the
target's.
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

from localspec.backends.base import CARRIED, Work
from localspec.backends.llamacpp import LlamaBlock, LlamaModel, LlamaTarget
from localspec.control import Limits, Price
from localspec.drafters.base import Ask
from localspec.drafters.block import BlockModel
from localspec.drafters.files import DFLASH, DSPARK
from localspec.engine import Engine
from localspec.errors import UsageError
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.spec_types import draft_type
from localspec.types import GenerationRequest, SpecParams
from localspec.vocab import pair
from tests.real.support import (
    GREEDY,
    answer,
    check_all_ways,
    check_cells,
    exact_options,
    opened,
)
from tests.support.gguf_blocks import TinyBlock
from tests.support.gguf_files import TinyModel, TokenizerKeys

TARGET = TinyModel(layers=4, width=64, seed=3)
N_VOCAB = 2000
FEW = tuple(range(3, 2000, 7))
BLOCKS = {
    "dflash": TinyBlock(N_VOCAB, TARGET.width, (1, 2, 3), borrows=TARGET),
    "dflash of few": TinyBlock(N_VOCAB, TARGET.width, (0, 2), guessable=FEW, seed=1),
    "dflash 2": TinyBlock(N_VOCAB, TARGET.width, (0, 1, 3), candidates=4, borrows=TARGET, seed=4),
    "dspark": TinyBlock(N_VOCAB, TARGET.width, (1, 3), rank=8, confident=True, borrows=TARGET, seed=2),
    "dspark behind": TinyBlock(N_VOCAB, TARGET.width, (1, 2, 3), rank=8, from_anchor=False, guessable=FEW, seed=3),
}
TYPES = {name: DSPARK if block.rank else DFLASH for name, block in BLOCKS.items()}
ROUNDING = 1e-3
TEXT = (504, 1768, 282, 1649, 314, 1042, 28, 284, 260, 1768, 282, 1500)
STATE = SamplerState.start(GREEDY, seed=1, prompt=(), end_tokens=(), n_ctx=512)


@pytest.fixture(scope="module")
def tokenizer(smol_tokenizer: TokenizerKeys) -> TokenizerKeys:
    return smol_tokenizer.first(N_VOCAB)


@pytest.fixture(scope="module")
def folder(tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("blocks")
    TARGET.write(folder / "target.gguf", tokenizer)
    for name, block in BLOCKS.items():
        block.write(folder / f"{name}.gguf", tokenizer)
    return folder


@dataclass(frozen=True)
class Pair:
    target: LlamaTarget
    block: LlamaBlock
    plain: TinyBlock
    name: str

    def features(self, tokens: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """The target's of ``tokens``, read into a sequence of their own."""
        seq = self.target.open()
        (rows,) = self.target.forward([Work.prompt(seq, tokens, features=self.block.layers)])
        features = {layer: states.copy() for layer, states in rows.features.items()}
        self.target.close(seq)
        return features

    def expected(self, text: Sequence[int], n: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Scores and confidence of a block of ``n`` tokens; the last token of ``text`` is pending."""
        features = self.features(text[:-1])
        return self.plain.rows(np.concatenate([features[layer] for layer in self.plain.layers], axis=1), text[-1], n)

    def drafter(self) -> BlockModel:
        pairing = pair(self.target.vocab, self.block.vocab)
        assert pairing is not None
        return BlockModel(self.block, pairing, TYPES[self.name])


@contextmanager
def paired(folder: Path, name: str, **changes: Any) -> Iterator[Pair]:
    with opened(folder / "target.gguf", sequences=3) as target:
        options = replace(target._options, path=folder / f"{name}.gguf", **changes)
        block = LlamaBlock(LlamaModel(target.model.native, options), options, target)
        try:
            yield Pair(target, block, BLOCKS[name], name)
        finally:
            block.close_all()


@pytest.fixture(scope="module", params=sorted(BLOCKS))
def both(request: pytest.FixtureRequest, folder: Path) -> Iterator[Pair]:
    with paired(folder, request.param) as pair:
        yield pair


def close(got: NDArray[np.float32], wanted: NDArray[np.float32]) -> bool:
    finite = np.isfinite(wanted)
    return bool((np.isfinite(got) == finite).all()) and bool(np.abs(got[finite] - wanted[finite]).max() < ROUNDING)


# -- what a pass computes


def test_blocks_are_what_the_weights_say(both: Pair) -> None:
    """Of two conversations in one pass, one of which has come in pieces."""
    block, other = both.block, (*TEXT[4:], 900, 901, 902)
    one, two = block.open(), block.open()
    features = both.features(TEXT)
    for piece in (slice(5), slice(5, 9), slice(9, None)):
        block.take_in(one, {layer: states[piece] for layer, states in features.items()})
    block.take_in(two, both.features(other))
    for n in (both.plain.size, 3):
        asked = (CARRIED,) if block.has_confidence else ()
        work = [Work(seq, TokenTree.chain((77, *[block.mask] * (n - 1))), features=asked) for seq in (one, two)]
        for rows, text in zip(block.forward(work), (TEXT, other), strict=True):
            logits, sure = both.expected((*text, 77), n)
            first = block.first_row
            # A selector reads other rows, of which guesses are made.
            assert both.block.candidates or all(close(rows.logits(row), logits[row]) for row in range(first, n))
            if block.has_confidence:
                assert close(rows.features[CARRIED][first:, 0], sure[first:])
        for seq in (one, two):
            block.commit(seq, ())
        check_cells(block)
    for seq in (one, two):
        block.close(seq)


def test_a_long_text_is_taken_in_in_pieces(folder: Path) -> None:
    with paired(folder, "dflash") as both:
        text = [int(token) for token in np.random.default_rng(1).integers(20, 1990, 150)]
        seq = both.block.open()
        both.block.take_in(seq, both.features(text[:-1]))
        assert both.block.n_past(seq) == len(text) - 1 > both.block.caps.max_rows
        tree = TokenTree.chain((text[-1], *[both.block.mask] * 5))
        (rows,) = both.block.forward([Work(seq, tree)])
        logits, _ = both.expected(text, 6)
        assert all(close(rows.logits(row), logits[row]) for row in range(1, 6))


# -- what it guesses


def begun(both: Pair, text: Sequence[int]) -> tuple[BlockModel, int]:
    """A drafter and a sequence, of which both have the target's passes over ``text``."""
    guesser, target = both.drafter(), both.target
    seq = target.open()
    guesser.open(seq)
    (rows,) = target.forward([Work.prompt(seq, text, both.block.layers)])
    target.commit(seq, range(len(text)))
    guesser.prefill(seq, 0, text, rows.features)
    return guesser, seq


def test_the_chain_is_the_best_of_each_row(both: Pair) -> None:
    """Over a conversation in which guesses stand and fall, and the text is cut."""
    target, layers, text, plain = both.target, both.block.layers, list(TEXT), both.plain
    guesser, seq = begun(both, text[:-1])
    for step, limits in enumerate([Limits(4, 4), Limits(2, 2), Limits(9, 9), Limits(3, 9, 3), Limits(4, 4)]):
        assert guesser.gap(seq, len(text) - 1) == 0
        (draft,) = guesser.propose([Ask(seq, text, Price(limits, 0.0), STATE)])
        tree, depth = draft.tree, min(limits.depth, both.block.guesses)
        logits, sure = both.expected(text, depth + plain.first_row)
        best = logits[plain.first_row :].argmax(axis=1)
        spine, node = [0], 0
        while tree.children[node]:
            node = tree.children[node][int(best[len(spine) - 1])]
            spine.append(node)
        assert len(spine) == depth + 1 or limits.width > 1
        for level, node in enumerate(spine[1:]):
            row = np.sort(logits[plain.first_row + level])[-limits.width :]
            beside = tree.children[spine[level]]
            assert all(logits[plain.first_row + level][token] >= row[0] - ROUNDING for token in beside)
            if plain.confident:
                assert abs(tree.scores[node] - sure[level]) < ROUNDING
                assert sum(tree.scores[child] for child in beside.values()) < 1 + ROUNDING
        # As if the target had accepted a part of it.
        path = spine[1:][: step % 3]
        start = target.n_past(seq)
        (rows,) = target.forward([Work(seq, tree, features=layers)])
        target.commit(seq, (0, *path))
        guesser.observe(seq, start, tree, path, rows)
        text += [*(tree.tokens[i] for i in path), 1000 + step]
        if step == 3:
            del text[-4:-1]
            for reader in (target, guesser):
                reader.truncate(seq, len(text) - 1)
        check_cells(both.block)
    target.close(seq)
    guesser.close(seq)


def test_conversations_share_a_pass_and_a_beginning(both: Pair) -> None:
    target = both.target
    guesser, seq = begun(both, TEXT)
    new = target.fork(seq, 8)
    guesser.fork(seq, new, 8)
    assert guesser.gap(new, 8) == 0
    texts = ((*TEXT, 77), (*TEXT[:8], 88))
    limits = (Limits(2, 2), Limits(4, 4))
    asks = [Ask(s, text, Price(most, 0.0), STATE) for s, text, most in zip((seq, new), texts, limits, strict=True)]
    # Both blocks are as long as the longer one has to be.
    n = 4 + both.plain.first_row
    for draft, text, most in zip(guesser.propose(asks), texts, limits, strict=True):
        logits, _ = both.expected(text, n)
        assert draft.tree.tokens[1:] == tuple(logits[both.plain.first_row :].argmax(axis=1)[: most.depth])
    for one in (seq, new):
        target.close(one)
        guesser.close(one)


def test_what_was_missed_is_told_and_mended(folder: Path) -> None:
    with paired(folder, "dflash") as both:
        guesser, seq = begun(both, TEXT[:6])
        features = both.features(TEXT)
        guesser.prefill(seq, 8, TEXT[8:], {layer: states[8:] for layer, states in features.items()})
        assert guesser.gap(seq, 12) == 6
        (nothing,) = guesser.propose([Ask(seq, (*TEXT, 77), Price(Limits(2, 2), 0.0), STATE)])
        assert (nothing.tree.draft_n, nothing.out) == (0, None)
        guesser.prefill(seq, 4, TEXT[4:], {layer: states[4:] for layer, states in features.items()})
        assert guesser.gap(seq, 12) == 0
        (draft,) = guesser.propose([Ask(seq, (*TEXT, 77), Price(Limits(2, 2), 0.0), STATE)])
        logits, _ = both.expected((*TEXT, 77), 3)
        assert draft.tree.tokens[1:] == tuple(logits[1:].argmax(axis=1))


def test_a_drafter_with_a_short_context_says_so(folder: Path) -> None:
    with paired(folder, "dflash", n_ctx=256) as both:
        text = [int(token) for token in np.random.default_rng(1).integers(20, 1990, 300)]
        guesser, seq = begun(both, text[:200])
        rest = both.target.forward([Work.prompt(seq, text[200:], both.block.layers)])[0]
        guesser.prefill(seq, 200, text[200:], rest.features)
        (nothing,) = guesser.propose([Ask(seq, text, Price(Limits(2, 2), 0.0), STATE)])
        assert nothing.out == "the draft model's context of 256 tokens is full"


# -- in an engine


@contextmanager
def engine(folder: Path, name: str, **changes: Any) -> Iterator[Engine]:
    options = exact_options(folder / "target.gguf", folder / f"{name}.gguf", spec_types=(TYPES[name],), **changes)
    with load(options) as engine:
        yield engine


@pytest.mark.parametrize("name", ["dflash", "dflash 2", "dspark"])
def test_the_text_is_the_targets_own(folder: Path, name: str) -> None:
    """Greedy and drawn, chain and tree, a second turn, another answer, and two conversations at once."""
    plain = exact_options(folder / "target.gguf", spec_types=("none",))
    with engine(folder, name, sequences=2) as one:
        check_all_ways(one, plain, TEXT, drafted=40)


def test_guesses_that_hold_are_kept(folder: Path, tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    """A target that says one token for ever, and a drafter that knows no other."""
    block = TinyBlock(N_VOCAB, TARGET.width, (1, 2), guessable=(40, 41), rank=4, confident=True, seed=5)
    path = block.write(tmp_path / "few.gguf", tokenizer)
    sampling = replace(GREEDY, logit_bias=((40, 100.0),))
    wish = GenerationRequest(tokens=TEXT, max_tokens=30, sampling=sampling, spec=SpecParams(depth=5, nodes=5))
    options = exact_options(folder / "target.gguf", path, spec_types=(DSPARK,))
    with load(options) as one:
        outcome = answer(one, replace(wish, spec=replace(wish.spec, mode="fixed")))
    assert outcome.ids == (40,) * 30
    assert outcome.stats.accepted >= 20


@pytest.mark.parametrize("name", ["dflash", "dspark"])
def test_the_kind_is_known_by_its_file(folder: Path, name: str) -> None:
    path = folder / f"{name}.gguf"
    assert draft_type(path) == TYPES[name]
    options = EngineOptions(ModelOptions(folder / "target.gguf"), draft=ModelOptions(path), n_ctx=256, measure=False)
    with load(options) as one:
        assert one.info.drafters == ("suffix", TYPES[name])
        assert ("layers", ",".join(map(str, BLOCKS[name].layers))) in one.info.loads[1].settings


# -- what is refused


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (TinyBlock(N_VOCAB, 32, (0, 1), borrows=TARGET), "made for a target of width 32"),
        (TinyBlock(N_VOCAB, TARGET.width, (0, 4), borrows=TARGET), "reads layers 0, 4"),
        (TinyBlock(N_VOCAB, TARGET.width, (0, 1), mask=None, borrows=TARGET), "does not say which token is its mask"),
    ],
    ids=["width", "layers", "mask"],
)
def test_one_that_cannot_be_driven_is_refused(
    folder: Path, tmp_path: Path, tokenizer: TokenizerKeys, block: TinyBlock, words: str
) -> None:
    path = block.write(tmp_path / "other.gguf", tokenizer)
    with pytest.raises(UsageError, match=words):
        load(EngineOptions(ModelOptions(folder / "target.gguf"), draft=ModelOptions(path), n_ctx=256))


def test_the_type_has_to_be_the_files(folder: Path) -> None:
    options = EngineOptions(
        ModelOptions(folder / "target.gguf"), draft=ModelOptions(folder / "dflash.gguf"), spec_types=(DSPARK,)
    )
    words = "dflash.gguf is a head for draft-dflash, not what --spec-type draft-dspark asks for"
    with pytest.raises(UsageError, match=words):
        load(options)
