"""Engines whose models run on torch: every drafter, the text of llama.cpp, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'torch'")

from localspec.backends.torch.kernels.dispatch import PLAIN as TORCHS
from localspec.backends.torch.kernels.dispatch import Choice
from localspec.backends.torch.target import TorchTarget
from localspec.drafters.files import EAGLE, EAGLE3, MEDUSA, PARD
from localspec.engine import Engine
from localspec.errors import Cancelled, LocalspecError, ModelFault, UsageError
from localspec.loading import EngineOptions, ModelOptions, load
from localspec.types import GenerationRequest, SamplingParams
from tests.cli.support import ALONE, error_line, run
from tests.real.support import GREEDY, PLAIN, TREE, answer, check_all_ways, exact_options, opened, ties, together
from tests.support.gguf_files import TinyModel, TokenizerKeys, damage
from tests.support.gguf_heads import TinyHead
from tests.support.gguf_mtp import TinyMtp
from tests.support.hub_eagle import TinyEagle
from tests.support.hub_folders import TinyMedusa

N, MASK = 2000, 16
TARGET = TinyModel(layers=4, width=64, seed=3)
TEXT = (504, 1768, 282, 1649, 314, 1042, 28, 284, 260, 1768, 282, 1500)
#: File or folder → its type.
DRAFTERS = {
    "draft.gguf": "draft-simple",
    "other words.gguf": "draft-simple",
    "masked.gguf": PARD,
    "head.gguf": EAGLE3,
    "eagle": EAGLE,
    "medusa": MEDUSA,
}


@pytest.fixture(scope="module")
def tokenizer(smol_tokenizer: TokenizerKeys) -> TokenizerKeys:
    return smol_tokenizer.first(N)


@pytest.fixture(scope="module")
def folder(tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("torch")
    TARGET.write(folder / "target.gguf", tokenizer)
    TinyModel(seed=4).write(folder / "draft.gguf", tokenizer)
    TinyModel(seed=5, changed={500: "otherwise"}).write(folder / "other words.gguf", tokenizer)
    TinyModel(seed=6).write(folder / "masked.gguf", tokenizer.with_integer("tokenizer.ggml.mask_token_id", MASK))
    TinyHead(N, TARGET.width, (0, 1, 3), guessable=tuple(range(3, N, 7))).write(folder / "head.gguf", tokenizer)
    TinyEagle(N, TARGET.width, TARGET.layers, kind="eagle").write(folder / "eagle")
    TinyMedusa(N, TARGET.width, layout="shared").write(folder / "medusa")
    TinyMtp(N).write(folder / "mtp.gguf", tokenizer)
    return folder


def options(folder: Path, name: str = "", **changes: Any) -> EngineOptions:
    draft = folder / name if name else None
    types = (DRAFTERS[name],) if name else ("suffix", "ngram-simple")
    return exact_options(
        folder / "target.gguf", draft, **{"backend": "torch", "flash_attn": "auto", "spec_types": types, **changes}
    )


@pytest.fixture(scope="module", params=DRAFTERS)
def loaded(request: pytest.FixtureRequest, folder: Path) -> Iterator[Engine]:
    with load(options(folder, request.param, sequences=2)) as engine:
        yield engine


def test_guesses_change_no_text(loaded: Engine, folder: Path) -> None:
    check_all_ways(loaded, options(folder, spec_types=()), TEXT, drafted=15)


def test_guesses_from_the_text_change_none(folder: Path) -> None:
    """The model repeats nothing, so most of them are wrong."""
    with load(options(folder)) as engine:
        wish = GenerationRequest(tokens=TEXT * 8, max_tokens=30, sampling=GREEDY, spec=TREE)
        guessed = answer(engine, wish)
        assert guessed.stats.draft_n > 0
        assert guessed.ids == answer(engine, replace(wish, spec=PLAIN)).ids


def test_the_text_is_the_same_where_passes_are_filled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a card, which has no memory for numbers, and where rows stay until one is asked for; but the kernels are
    torch's, and one line says so."""
    wish = GenerationRequest(tokens=TEXT, max_tokens=15, sampling=GREEDY, spec=TREE)
    wishes = [wish, replace(wish, tokens=TEXT[:8], sampling=SamplingParams(temperature=0.8, seed=5))]
    with monkeypatch.context() as card:
        choice = Choice(replace(TORCHS, waits=False), "no Triton here")
        card.setattr("localspec.torch_loading.choose", lambda device: choice)
        card.setattr(
            "localspec.torch_memory.weight_sizes", lambda *_, packed: {} if packed else {"output.weight": 10**15}
        )
        card.setattr("localspec.torch_loading.TorchTarget", partial(TorchTarget, far=True))
        with load(options(folder, "draft.gguf", sequences=2)) as engine:
            assert isinstance(engine.target, TorchTarget)
            assert engine.target._graphs is not None
            assert engine.info.warnings == ("no Triton here",)
            assert any(name == "matrices" for name, _ in engine.info.loads[0].settings)
            found = together(engine, wishes)
    assert min(one.stats.draft_n for one in found) > 10
    with load(options(folder, spec_types=())) as engine:
        assert [one.ids for one in found] == [answer(engine, replace(wish, spec=PLAIN)).ids for wish in wishes]


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=0.8, seed=5)], ids=["greedy", "drawn"])
def test_the_text_is_that_of_llamacpp(folder: Path, sampling: SamplingParams) -> None:
    wish = GenerationRequest(tokens=TEXT, max_tokens=40, sampling=sampling, spec=PLAIN)
    with load(options(folder)) as engine:
        ours = answer(engine, wish)
        assert engine.info.backend == "torch"
        assert isinstance(engine.target, TorchTarget)
    with load(exact_options(folder / "target.gguf", sequences=1)) as engine:
        assert engine.info.backend == "llamacpp"
        theirs = answer(engine, wish)
    with opened(folder / "target.gguf") as target:
        assert ties(target, wish, TEXT, ours, theirs) <= 1


def test_how_it_was_loaded_is_told(folder: Path) -> None:
    with load(options(folder, "draft.gguf", n_ctx=0)) as engine:
        target, draft = engine.info.loads
        assert engine.info.n_ctx == engine.info.n_ctx_train == TARGET.n_ctx
        assert ("runs on", "torch") in target.settings
        (place,) = target.placement
        assert (place.device, place.layers) == ("CPU", TARGET.layers + 1)
        size = 4 * sum(weights.size for weights in TARGET.tensors(N).values())
        assert (place.bytes_weights, place.bytes_cache) == (size, 4 * 2 * TARGET.n_ctx * TARGET.layers * TARGET.width)
        assert draft.role == "draft"
        assert engine.info.has_template


def test_layers_for_a_card_that_is_not_there_are_told(folder: Path) -> None:
    import torch

    def wanting(path: Path) -> ModelOptions:
        return ModelOptions(path, gpu_layers=7)

    given = options(folder, "draft.gguf")
    given = replace(given, target=wanting(given.target.path), draft=wanting(folder / "draft.gguf"))
    if torch.cuda.is_available():
        pytest.skip("there is a card")
    with load(given) as engine:
        assert engine.info.warnings[:2] == (
            "-ngl ignored: torch sees no CUDA device for target.gguf",
            "-ngld ignored: torch sees no CUDA device for draft.gguf",
        )


TARGETS: list[tuple[dict[str, Any], str]] = [
    ({"exact": True}, "--exact"),
    ({"flash_attn": "on"}, "-fa"),
    ({"swa_full": False}, "--no-swa-full"),
    ({"rpc": ("127.0.0.1:1",)}, "--rpc"),
]
MODELS: list[tuple[dict[str, Any], str]] = [
    ({"cache_type_k": "q8_0"}, "-ctk"),
    ({"tensor_overrides": (("a", "CPU"),)}, "-ot"),
    ({"cpu_moe": -1}, "-ncmoe"),
    ({"devices": ("CUDA0",)}, "-dev"),
    ({"threads_batch": 3}, "-tb"),
    ({"mlock": True}, "--mlock"),
    ({"lora": ((Path("a.gguf"), 1.0),)}, "--lora"),
]


@pytest.mark.parametrize(("change", "flag"), TARGETS)
def test_what_only_llamacpp_can_do_is_refused_by_name(folder: Path, change: dict[str, Any], flag: str) -> None:
    with pytest.raises(UsageError, match=f"{flag} is for llama.cpp, and the target runs on torch") as told:
        load(options(folder, **change))
    assert told.value.hint == "Leave it out, or use --backend llamacpp."


@pytest.mark.parametrize(("change", "flag"), MODELS)
def test_so_it_is_of_one_model(folder: Path, change: dict[str, Any], flag: str) -> None:
    given = options(folder, "draft.gguf")
    with pytest.raises(UsageError, match=f"{flag} is for llama.cpp, and the target runs on torch"):
        load(replace(given, target=replace(given.target, **change)))
    if flag.startswith("--"):  # shared, or the target's alone
        return
    assert given.draft is not None
    with pytest.raises(UsageError, match=f"{flag}d is for llama.cpp, and the draft model runs on torch"):
        load(replace(given, draft=replace(given.draft, **change)))


def test_heads_that_torch_does_not_run_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"--spec-type draft-mtp runs in llama\.cpp alone"):
        load(replace(options(folder), target=ModelOptions(folder / "mtp.gguf"), spec_types=("draft-mtp",)))
    with pytest.raises(LocalspecError, match=r"the draft model: draft\.gguf names no mask token"):
        load(options(folder, "draft.gguf", spec_types=(PARD,)))


@pytest.mark.parametrize("backend", ["torch", "llamacpp"])
def test_a_head_is_no_target(folder: Path, backend: str) -> None:
    with pytest.raises(UsageError, match=r"head\.gguf is a head \(draft-eagle3\): it guesses for a target"):
        load(replace(options(folder, backend=backend), target=ModelOptions(folder / "head.gguf")))


def test_damaged_files_are_told_and_loading_can_be_stopped(
    folder: Path, tmp_path: Path, tokenizer: TokenizerKeys
) -> None:
    for name, kind in (("half", "half"), ("html", "html")):
        path = damage(folder / "target.gguf", kind, tmp_path / name)  # type: ignore[arg-type]
        with pytest.raises(LocalspecError):
            load(replace(options(folder), target=ModelOptions(path)))
    nan = replace(TARGET, nan=True).write(tmp_path / "nan.gguf", tokenizer)
    with pytest.raises(ModelFault, match="no finite scores"):
        load(replace(options(folder), target=ModelOptions(nan)))
    with pytest.raises(Cancelled, match=r"loading target\.gguf was stopped"):
        load(options(folder), progress=lambda stage, share: share < 0.5)


def test_commands(folder: Path) -> None:
    target = str(folder / "target.gguf")
    texts = []
    for backend in ("torch", "llamacpp"):
        done = run("complete", "--backend", backend, "-m", target, "-p", "One", "-n", "12", *ALONE)
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    assert texts[0] == texts[1]
    answered = run("chat", "--backend", "torch", "-m", target, "-st", "-p", "Hello", "-n", "4", *ALONE)
    assert answered.returncode == 0, answered.stderr
    assert answered.stdout
    refused = run("complete", "--backend", "torch", "-m", target, "-p", "One", "-fa", "on", *ALONE)
    assert "-fa is for llama.cpp" in error_line(refused, 2)


def test_tools(folder: Path, tmp_path: Path) -> None:
    """`verify` finds no fault, and `bench` measures."""
    target, prompts = str(folder / "target.gguf"), tmp_path / "prompts.txt"
    prompts.write_text("One, two, one, two, one\n")
    common = ("--backend", "torch", "-m", target, "-t", "1", "-n", "8", "-c", "512", "--prompts", str(prompts))
    checked = run("verify", *common, "--sampler-sets", "greedy", "--shapes", "tree", "--spec-type", "suffix")
    assert checked.returncode == 0, checked.stderr
    measured = run("bench", *common, "-r", "2", "--budget", "2", "--json", "--spec-type", "suffix")
    assert measured.returncode == 0, measured.stderr
