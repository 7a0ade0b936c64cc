"""EAGLE heads of the hub on llama.cpp's targets: what they guess is what their weights say of the target's states, and
the text stays the target's.

Heads are random: the worst case for a guess, and as good as any for whether it is the right one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")

from localspec import torch_drafters
from localspec.backends.base import NORMED, Work
from localspec.backends.llamacpp import LlamaTarget
from localspec.backends.torch.head import TorchHead
from localspec.backends.torch.tensors import EMBEDDING, UNEMBEDDING, gguf_tensor
from localspec.control import Limits, Price
from localspec.drafters.base import Ask
from localspec.drafters.files import EAGLE, EAGLE3
from localspec.drafters.head import HeadModel
from localspec.drafters.options import Scored
from localspec.engine import Engine
from localspec.errors import LocalspecError, ModelLoadError, UsageError
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.sampling import SamplerState
from localspec.spec_types import draft_type
from localspec.torch_drafters import ForTarget, torch_drafter
from localspec.types import GenerationRequest, SamplingParams, SpecParams
from tests.real.support import CHAIN, GREEDY, PLAIN, TREE, answer, exact_options, opened, ties, together
from tests.support.gguf_files import TinyModel, TokenizerKeys
from tests.support.hub_eagle import TinyEagle

N = 2000
TARGET = TinyModel(layers=4, width=64, seed=3)
HEADS = {
    EAGLE: TinyEagle(N, TARGET.width, TARGET.layers, kind="eagle"),
    EAGLE3: TinyEagle(N, TARGET.width, TARGET.layers, reads=(0, 1, 3), guessable=tuple(range(3, N, 7)), seed=1),
}
TEXT = (504, 1768, 282, 1649, 314, 1042, 28, 284, 260, 1768, 282, 1500)
STATE = SamplerState.start(GREEDY, seed=1, prompt=(), end_tokens=(), n_ctx=512)
DRAWN = SamplingParams(temperature=0.8, seed=5)


@pytest.fixture(scope="module")
def tokenizer(smol_tokenizer: TokenizerKeys) -> TokenizerKeys:
    return smol_tokenizer.first(N)


@pytest.fixture(scope="module")
def folder(tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny target and a head of each kind for it, by its type."""
    folder = tmp_path_factory.mktemp("eagle")
    TARGET.write(folder / "target.gguf", tokenizer)
    for kind, head in HEADS.items():
        head.write(folder / kind)
    return folder


@contextmanager
def engine(folder: Path, kind: str, **changes: object) -> Iterator[Engine]:
    with load(exact_options(folder / "target.gguf", folder / kind, spec_types=(kind,), **changes)) as one:
        yield one


@pytest.mark.parametrize("kind", HEADS)
def test_guesses_are_those_of_the_weights_and_the_targets_states(folder: Path, kind: str) -> None:
    plain, path, text = HEADS[kind], folder / "target.gguf", list(TEXT)
    with opened(path, normed=kind == EAGLE) as target:
        about = ForTarget(path, target.vocab, TARGET.width, TARGET.layers, n_ctx=128, sequences=1)
        drafter = torch_drafter(kind, ModelOptions(folder / kind, threads=1), about, Scored()).drafter
        assert isinstance(drafter, HeadModel)
        assert drafter.needs == ((NORMED,) if kind == EAGLE else (0, 1, 3))
        seq = target.open()
        drafter.open(seq)
        (rows,) = target.forward([Work.prompt(seq, text[:-1], drafter.needs)])
        target.commit(seq, range(len(text) - 1))
        features = np.concatenate([rows.features[layer] for layer in drafter.needs], axis=1)
        drafter.prefill(seq, 0, text[:-1], rows.features)
        (draft,) = drafter.propose([Ask(seq, text, Price(Limits(3, 12, 2), 0.0), STATE)])
    embedding, unembedding = (gguf_tensor(path, names).numpy() for names in (EMBEDDING, UNEMBEDDING))
    tree = draft.tree
    assert max(tree.depths) > 1
    for node in range(len(tree)):
        states, read = plain.encode(features), [*text[1:], *(tree.tokens[i] for i in tree.path(node)[1:])]
        while len(states) < len(read):
            carried, _ = plain.states_and_logits(read[: len(states)], states, embedding, unembedding)
            states = np.concatenate([states, carried[-1:]])
        row = plain.states_and_logits(read, states, embedding, unembedding)[1][-1]
        best = {int(token) for token in np.argsort(-row)[:2]}
        assert set(tree.children[node]) <= best


@pytest.fixture(scope="module", params=[(kind, filled) for kind in HEADS for filled in (False, True)], ids=str)
def loaded(request: pytest.FixtureRequest, folder: Path) -> Iterator[Engine]:
    """The head as it is on the CPU, and as on a card, where it grows its trees by itself."""
    kind, filled = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TorchHead, "__init__", partialmethod(TorchHead.__init__, buckets=filled))
        with engine(folder, kind, sequences=2) as one:
            yield one


@pytest.mark.parametrize("spec", [CHAIN, TREE], ids=["chain", "tree"])
@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_the_text_is_the_targets_own(loaded: Engine, spec: SpecParams, sampling: SamplingParams) -> None:
    wish = GenerationRequest(tokens=TEXT, max_tokens=20, sampling=sampling, spec=spec)
    guessed = answer(loaded, wish)
    assert guessed.ids == answer(loaded, replace(wish, spec=PLAIN)).ids
    assert guessed.stats.draft_n > 20


def test_turns_and_neighbours(loaded: Engine) -> None:
    """A second turn, another answer to the first, and two conversations at once."""
    begun = GenerationRequest(tokens=TEXT, max_tokens=12, sampling=GREEDY, spec=TREE)
    first = answer(loaded, begun)
    wishes = [replace(begun, tokens=(*TEXT, *first.ids, 28, 284)), replace(begun, sampling=DRAWN)]
    later = together(loaded, wishes)
    assert [one.ids for one in later] == [answer(loaded, replace(wish, spec=PLAIN)).ids for wish in wishes]


@pytest.mark.parametrize("kind", HEADS)
def test_on_a_real_target(smol_f32: Path, folder: Path, kind: str) -> None:
    """Texts may part at a near-tie of the target's, as they may without guesses."""
    head = replace(HEADS[kind], n_vocab=49152, target_width=576, width=576, heads=9, kv_heads=3, layers=30, reads=None)
    path = head.write(folder / f"{kind}-smol")
    with load(exact_options(smol_f32, path, spec_types=(kind,))) as one:
        for spec, sampling in ((CHAIN, GREEDY), (TREE, DRAWN)):
            wish = GenerationRequest(tokens=TEXT, max_tokens=6, sampling=sampling, spec=spec)
            guessed, plain = answer(one, wish), answer(one, replace(wish, spec=PLAIN))
            assert isinstance(one.target, LlamaTarget)
            if guessed.ids != plain.ids:
                one._slots.forget()
                ties(one.target, wish, TEXT, guessed, plain)
            assert guessed.stats.draft_n > 10


# -- what is scored


def test_rare_tokens_are_left_out(folder: Path, tmp_path: Path) -> None:
    """The most frequent ones of a list, or of a text, or of the vocabulary; the end of a text is always among them."""
    (tmp_path / "ids.json").write_text(str([1042, 1500, 282]))
    (tmp_path / "some.txt").write_text("the the the of of cat")
    for scored, kept in (
        (Scored(100), set(range(100))),
        (Scored(2, tmp_path / "ids.json"), {1042, 1500}),
        (Scored(path=tmp_path / "ids.json"), {1042, 1500, 282}),
    ):
        with engine(folder, EAGLE, scored=scored) as one:
            wish = GenerationRequest(tokens=TEXT, max_tokens=12, sampling=GREEDY, spec=TREE)
            assert answer(one, wish).ids == answer(one, replace(wish, spec=PLAIN)).ids
            settings = dict(one.info.loads[1].settings)
            (drafter,) = (one for one in one._panel._drafters if isinstance(one, HeadModel))
            ids = {int(token) for token in drafter._head._ids}  # type: ignore[attr-defined]
            assert ids == kept | one.target.vocab.end_tokens
            assert settings["scored tokens"] == str(len(ids))
    with opened(folder / "target.gguf") as target:
        from localspec.backends.torch.token_map import frequent

        counted = frequent(target.vocab, 2, tmp_path / "some.txt")
        the, of = target.vocab.tokenize("x the of")[-2:]
        assert {the, of} <= set(counted)


@pytest.mark.parametrize("text", ["[1, 2", '{"a": 1}', "[true]", "[]"])
def test_a_list_that_is_none_is_refused(folder: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "ids.json").write_text(text)
    options = exact_options(folder / "target.gguf", folder / EAGLE, spec_types=(EAGLE,))
    with pytest.raises(UsageError, match="no list of token ids"):
        load(replace(options, scored=Scored(path=tmp_path / "ids.json")))


def test_what_scores_all_or_a_choice_of_its_own_is_named(folder: Path, random_draft: Path) -> None:
    options = exact_options(folder / "target.gguf", folder / EAGLE3, spec_types=(EAGLE3,), scored=Scored(9))
    with pytest.raises(UsageError, match="scores 286 tokens of its own choice"):
        load(options)
    options = exact_options(folder / "target.gguf", random_draft, scored=Scored(9))
    with pytest.raises(UsageError, match=r"--spec-head-vocab is for EAGLE heads.*random.gguf is none"):
        load(options)
    with pytest.raises(UsageError, match="there is no -md"):
        load(replace(options, draft=None, spec_types=("suffix",)))


# -- loading


def test_a_folder_is_what_its_config_says(folder: Path) -> None:
    assert [draft_type(folder / kind) for kind in HEADS] == list(HEADS)
    with load(EngineOptions(ModelOptions(folder / "target.gguf"), ModelOptions(folder / EAGLE), n_ctx=256)) as one:
        assert one.info.drafters == ("suffix", EAGLE)
        assert ("runs on", "torch") in one.info.loads[1].settings
    with pytest.raises(UsageError, match="is a head for draft-eagle, not what --spec-type draft-eagle3 asks for"):
        load(exact_options(folder / "target.gguf", folder / EAGLE, spec_types=(EAGLE3,)))


def test_a_folder_of_another_kind_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 30}')
    with pytest.raises(ModelLoadError, match="is a folder, not a GGUF file, and no head that is known"):
        load(EngineOptions(ModelOptions(folder / "target.gguf"), ModelOptions(tmp_path), n_ctx=256))


def test_a_head_for_another_target_is_named(folder: Path, tmp_path: Path) -> None:
    path = replace(HEADS[EAGLE], target_width=32, width=32).write(tmp_path)
    with pytest.raises(LocalspecError, match=r"made for a target of width 32, target.gguf has 64"):
        load(EngineOptions(ModelOptions(folder / "target.gguf"), ModelOptions(path), n_ctx=256))


@pytest.mark.parametrize(
    ("change", "flag"), [({"cache_type_k": "q8_0"}, "-ctkd"), ({"tensor_overrides": (("a", "CPU"),)}, "-otd")]
)
def test_what_only_llama_cpp_can_do_is_named(folder: Path, change: dict[str, object], flag: str) -> None:
    options = ModelOptions(folder / EAGLE, **change)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"{flag} is for GGUF files"):
        load(EngineOptions(ModelOptions(folder / "target.gguf"), options, n_ctx=256))


def test_without_torch_one_line_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_drafters, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="draft-eagle runs on torch, which is not installed") as caught:
        load(EngineOptions(ModelOptions(folder / "target.gguf"), ModelOptions(folder / EAGLE), n_ctx=256))
    assert caught.value.hint == "pip install 'localspec[torch]'"


def test_no_device_for_torch_is_said(folder: Path) -> None:
    options = ModelOptions(folder / EAGLE, gpu_layers=1)
    with load(EngineOptions(ModelOptions(folder / "target.gguf"), options, n_ctx=256)) as one:
        import torch

        said = [line for line in one.info.warnings if "-ngld" in line]
        assert said == (["-ngld ignored: torch sees no CUDA device for draft-eagle"] * (not torch.cuda.is_available()))
