"""Medusa, Hydra and PARD on real targets: the text is the target's own, whatever random weights guess."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")


from localspec import torch_drafters
from localspec.backends.base import NORMED, Work
from localspec.backends.torch.llama import TorchLlama
from localspec.backends.torch.target import TorchTarget
from localspec.control import Limits, Price
from localspec.drafters.base import Ask
from localspec.drafters.files import HYDRA, MEDUSA, PARD
from localspec.engine import Engine
from localspec.errors import LocalspecError, PairingError, UsageError
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.spec_types import draft_type
from localspec.types import GenerationRequest, SamplingParams, SpecParams
from tests.real.support import CHAIN, GREEDY, PLAIN, TREE, answer, exact_options, opened, ties, together
from tests.support.gguf_files import TinyModel, TokenizerKeys
from tests.support.hub_folders import TinyHub, TinyHydra, TinyMedusa

N, MASK = 2000, 16
TARGET = TinyModel(layers=2, width=64, seed=3)
TEXT = (504, 1768, 282, 1649, 314, 1042, 28, 284, 260, 1768, 282, 1500)
DRAWN = SamplingParams(temperature=0.8, seed=5)
PENALISED = SamplingParams(temperature=0.8, top_k=20, repeat_penalty=1.2, seed=6)


@pytest.fixture(scope="module")
def tokenizer(smol_tokenizer: TokenizerKeys) -> TokenizerKeys:
    return smol_tokenizer.first(N)


@pytest.fixture(scope="module")
def folder(tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny target and a drafter of each kind for it, by its type; ``file`` is a parallel model as a GGUF file."""
    folder = tmp_path_factory.mktemp("torch")
    TARGET.write(folder / "target.gguf", tokenizer)
    TinyMedusa(N, TARGET.width, layout="shared").write(folder / MEDUSA)
    TinyHydra(N, TARGET.width, heads=2).write(folder / HYDRA)
    TinyHub(N, mask=MASK).write(folder / PARD, tokenizer)
    masked = tokenizer.with_integer("tokenizer.ggml.mask_token_id", MASK)
    TinyModel(seed=4).write(folder / "file", masked)
    return folder


NAMES = (MEDUSA, HYDRA, PARD, "file")


def kind_of(name: str) -> str:
    return PARD if name == "file" else name


def engine(folder: Path, name: str, **changes: object) -> Engine:
    return load(exact_options(folder / "target.gguf", folder / name, spec_types=(kind_of(name),), **changes))


@pytest.fixture(scope="module", params=NAMES)
def loaded(request: pytest.FixtureRequest, folder: Path) -> Iterator[Engine]:
    with engine(folder, request.param, sequences=2) as one:
        yield one


@pytest.mark.parametrize(
    ("spec", "sampling"),
    [(CHAIN, GREEDY), (TREE, GREEDY), (CHAIN, PENALISED), (TREE, DRAWN)],
    ids=["chain", "tree", "chain, penalties", "tree, drawn"],
)
def test_the_text_is_the_targets_own(loaded: Engine, spec: SpecParams, sampling: SamplingParams) -> None:
    wish = GenerationRequest(tokens=TEXT, max_tokens=12, sampling=sampling, spec=spec)
    guessed = answer(loaded, wish)
    assert guessed.ids == answer(loaded, replace(wish, spec=PLAIN)).ids
    assert guessed.stats.draft_n > 15


def test_by_ratio_too(loaded: Engine) -> None:
    """Under the rule ratio the text is another one; guesses that are always wrong do no harm."""
    wish = GenerationRequest(tokens=TEXT, max_tokens=12, sampling=DRAWN, spec=replace(TREE, accept="ratio"))
    outcome = answer(loaded, wish)
    assert len(outcome.ids) == 12
    assert outcome.stats.draft_n > 12


def test_turns_and_neighbours(loaded: Engine) -> None:
    """A second turn, another answer to the first, one of a shorter text, and two conversations at once."""
    begun = GenerationRequest(tokens=TEXT, max_tokens=7, sampling=GREEDY, spec=TREE)
    first = answer(loaded, begun)
    wishes = [
        replace(begun, tokens=(*TEXT, *first.ids, 28, 284)),
        replace(begun, sampling=replace(DRAWN, temperature=1.0)),
        replace(begun, tokens=TEXT[:8], spec=CHAIN),
    ]
    later = [*together(loaded, wishes[:2]), answer(loaded, wishes[2])]
    assert all(one.stats.draft_n for one in later)
    for one, wish in zip(later, wishes, strict=True):
        loaded.forget()
        assert one.ids == answer(loaded, replace(wish, spec=PLAIN)).ids


def test_heads_guess_from_the_first_step_on(folder: Path) -> None:
    """The state behind the prompt comes with the prompt."""
    with engine(folder, MEDUSA) as one:
        outcome = answer(one, GenerationRequest(tokens=TEXT, max_tokens=6, sampling=GREEDY, spec=CHAIN))
    assert all(step.draft_n for step in outcome.steps[:-1])


def test_the_first_guess_of_the_targets_twin_is_always_right(
    folder: Path, tmp_path: Path, tokenizer: TokenizerKeys
) -> None:
    """It reads no mask, and by the shared noise it is drawn as the target draws."""
    twin = TARGET.write(tmp_path / "twin.gguf", tokenizer.with_integer("tokenizer.ggml.mask_token_id", MASK))
    with load(exact_options(folder / "target.gguf", twin, spec_types=(PARD,))) as one:
        for sampling in (GREEDY, DRAWN):
            wish = GenerationRequest(tokens=TEXT, max_tokens=12, sampling=sampling, spec=TREE)
            guessed = answer(one, wish)
            assert guessed.ids == answer(one, replace(wish, spec=PLAIN)).ids
            assert guessed.stats.accepted_at[0] == guessed.stats.tested_at[0] > 3


def test_a_static_tree_too(folder: Path) -> None:
    wish = GenerationRequest(tokens=TEXT, max_tokens=12, sampling=DRAWN, spec=TREE)
    with engine(folder, MEDUSA, medusa_tree="static") as one:
        guessed = answer(one, wish)
        assert guessed.ids == answer(one, replace(wish, spec=PLAIN)).ids
        assert guessed.stats.draft_n > 15
        assert ("tree", "static") in one.info.loads[1].settings
    with pytest.raises(UsageError, match="--spec-medusa-tree is for draft-medusa"):
        engine(folder, PARD, medusa_tree="static")


def test_on_smollm2(smol_f32: Path, tmp_path: Path) -> None:
    """Several turns at temperature 0 and, seeded, above."""
    folder = TinyMedusa(49152, 576, heads=2, layers=1, layout="shared").write(tmp_path / "heads")
    prompt = [504, 2768, 282, 4649, 314, 7042, 28, 284, 260, 2768, 282, 6500]
    with load(exact_options(smol_f32, folder, spec_types=(MEDUSA,))) as one:
        for sampling, spec in ((GREEDY, TREE), (DRAWN, CHAIN), (DRAWN, TREE)):
            wish = GenerationRequest(tokens=tuple(prompt), max_tokens=5, sampling=sampling, spec=spec)
            guessed, plain = answer(one, wish), answer(one, replace(wish, spec=PLAIN))
            assert guessed.stats.draft_n > 5
            if guessed.ids != plain.ids:
                with opened(smol_f32) as other:
                    ties(other, wish, prompt, guessed, plain)
            prompt += [*plain.ids, 198]


# -- what guesses are made of


def test_heads_read_the_state_before_the_pending_token(folder: Path) -> None:
    """What Medusa guesses in an engine is what its weights say of the target's state."""
    unembedding = TARGET.tensors(N)["output.weight"]
    with engine(folder, MEDUSA) as one:
        answer(one, GenerationRequest(tokens=TEXT, max_tokens=1, sampling=GREEDY, spec=CHAIN))
        guesser = one._panel._drafters[0]
        (seq,) = (slot.seq for slot in one._slots._slots)
        state = SamplerState.start(GREEDY, seed=1, prompt=TEXT, end_tokens=(), n_ctx=512)
        (draft,) = guesser.propose([Ask(seq, (*TEXT, 77), Price(Limits(3, 3)), state)])
    with opened(folder / "target.gguf", normed=True) as target:
        (rows,) = target.forward([Work.prompt(target.open(), TEXT, features=(NORMED,))])
        wanted = TinyMedusa(N, TARGET.width, layout="shared").rows(rows.features[NORMED][-1], unembedding)
    assert draft.tree.tokens == (77, *(int(row.argmax()) for row in wanted))


def test_a_torch_decoder_computes_what_llama_cpp_does(folder: Path) -> None:
    path, tree = folder / "target.gguf", TokenTree.grown((504, 9, 10, 11), (-1, 0, 0, 2), (1.0,) * 4, ("",) * 4)
    layers = (NORMED, 1)
    model = TorchLlama.of_file(path)
    with opened(path, normed=True) as theirs:
        ours = TorchTarget(model, theirs.vocab, n_ctx=64)
        found = []
        for target in (ours, theirs):
            seq = target.open()
            target.forward([Work.prompt(seq, TEXT)])
            target.commit(seq, range(len(TEXT)))
            (rows,) = target.forward([Work(seq, tree, features=layers)])
            found.append([*(rows.logits(node).copy() for node in range(4)), *(rows.features[n].copy() for n in layers)])
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-3)


# -- what is refused


def test_folders_are_known_by_their_config(folder: Path) -> None:
    for name in (MEDUSA, HYDRA, PARD):
        assert draft_type(folder / name) == name


Make = Callable[[Path, TokenizerKeys], Path]


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (
            lambda path, keys: TinyMedusa(N, 32, layout="shared").write(path),
            UsageError,
            "head 1 was made for a target of width 32, this one has 64",
        ),
        (
            lambda path, keys: TinyMedusa(90, 64).write(path),
            UsageError,
            "head 1 was made for 90 tokens, the target has 2000",
        ),
        (lambda path, keys: TinyHub(99, mask=MASK).write(path), LocalspecError, "no tokenizer.json"),
        (
            lambda path, keys: TinyHub(N, mask=N).write(path, keys),
            LocalspecError,
            "its mask token is 2000; it has 2000 tokens",
        ),
    ],
    ids=["width", "vocabulary", "no tokenizer", "mask"],
)
def test_what_does_not_fit_is_told_in_a_line(
    folder: Path, tmp_path: Path, tokenizer: TokenizerKeys, make: Make, kind: type[LocalspecError], words: str
) -> None:
    path = make(tmp_path / "other", tokenizer)
    with pytest.raises(kind, match=words):
        load(EngineOptions(ModelOptions(folder / "target.gguf"), draft=ModelOptions(path), n_ctx=256, measure=False))


def test_a_file_without_a_mask_is_a_usual_draft_model(folder: Path, tmp_path: Path, tokenizer: TokenizerKeys) -> None:
    usual = TinyModel().write(tmp_path / "usual.gguf", tokenizer)
    with pytest.raises(UsageError, match="names no mask token"):
        load(exact_options(folder / "target.gguf", usual, spec_types=(PARD,)))
    other = TinyModel(changed={500: "otherwise"}).write(tmp_path / "other.gguf", tokenizer)
    with pytest.raises(PairingError, match="another vocabulary than the target"):
        load(exact_options(folder / "target.gguf", other, spec_types=(PARD,)))


def test_without_torch_one_line_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_drafters, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="draft-medusa runs on torch, which is not installed") as told:
        load(exact_options(folder / "target.gguf", folder / MEDUSA, spec_types=(MEDUSA,)))
    assert told.value.hint == "pip install 'localspec[torch]'"
