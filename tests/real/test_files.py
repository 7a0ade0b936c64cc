"""Files that are damaged, and loading that is watched or stopped."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from localspec.errors import Cancelled, ExitCode, LocalspecError, ModelError, ModelFault, ModelLoadError
from localspec.loading import load
from localspec.types import GenerationRequest
from tests.real.support import GREEDY, PLAIN, answer, exact_options, running
from tests.support.gguf_files import DAMAGES, Damage, TinyModel, TokenizerKeys, damage

REASONS: dict[Damage, str] = {
    "empty": "is not a GGUF file",
    "four-bytes": "cannot be loaded: ",
    "half": "cannot be loaded: .*(bounds|corrupted|incomplete)",
    "no-tail": "cannot be loaded: .*(bounds|corrupted|incomplete)",
    "html": "is not a GGUF file .*<!DO",
    "version-99": "cannot be loaded: .*version.* 99",
    "absurd-counts": "cannot be loaded: ",
    "directory": "is a folder, not a GGUF file",
    "bit-rot": "computes no finite scores",
}


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_named(random_draft: Path, tmp_path: Path, kind: Damage, role: str) -> None:
    broken = damage(random_draft, kind, tmp_path / "broken.gguf")
    pair = (broken, None) if role == "target" else (random_draft, broken)
    with pytest.raises(ModelError, match=REASONS[kind]) as caught, running(*pair):
        pass
    assert type(caught.value) is (ModelFault if kind == "bit-rot" else ModelLoadError)
    assert caught.value.exit_code == ExitCode.MODEL
    assert "broken.gguf" in caught.value.message
    assert caught.value.message.startswith("the draft model") == (role == "draft")
    assert "\n" not in caught.value.message
    assert "gave no reason" not in caught.value.message
    assert caught.value.hint


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"nowhere\.gguf does not exist"), running(tmp_path / "nowhere.gguf"):
        pass


@pytest.mark.parametrize("role", ["target", "draft"])
def test_weights_that_are_not_numbers(
    random_draft: Path, smol_tokenizer: TokenizerKeys, tmp_path: Path, role: str
) -> None:
    rotten = TinyModel(nan=True).write(tmp_path / "rotten.gguf", smol_tokenizer)
    pair = (rotten, None) if role == "target" else (random_draft, rotten)
    with pytest.raises(ModelFault, match=r"rotten\.gguf computes no finite scores \(NaN\)"), running(*pair):
        pass


def test_a_path_with_letters_of_many_scripts(random_draft: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a folder `модель ü"
    folder.mkdir()
    path = folder / "модель　é.gguf"
    path.write_bytes(random_draft.read_bytes())
    with running(path, path) as engine:
        assert engine.target.caps.n_vocab == 49_152


def test_progress_is_told_for_both_models(smol: Path, random_draft: Path) -> None:
    told: list[tuple[str, float]] = []

    def progress(stage: str, share: float) -> bool:
        told.append((stage, share))
        return True

    with load(exact_options(smol, random_draft), progress=progress):
        pass
    for stage in ("target", "draft"):
        shares = [share for name, share in told if name == stage]
        assert shares == sorted(shares)
        assert len(shares) > 2
        assert shares[-1] == 1
    stages = [name for name, _ in told]
    assert stages == sorted(stages, reverse=True)


def test_a_path_that_is_no_text(random_draft: Path, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/not utf-8 \xff.gguf"))
    path.write_bytes(random_draft.read_bytes())
    with running(path, spec_types=("none",)) as engine:
        assert engine.target.caps.n_vocab == 49_152


def test_what_comes_up_while_loading_comes_out(random_draft: Path) -> None:
    def interrupted(stage: str, share: float) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(exact_options(random_draft, spec_types=("none",)), progress=interrupted)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
@pytest.mark.parametrize("failing", ["pairing", "nan", "recurrent", "stopped"])
def test_nothing_stays_in_memory_when_loading_fails(
    random_draft: Path, smol_tokenizer: TokenizerKeys, tmp_path: Path, failing: str
) -> None:
    target = shutil.copy(random_draft, tmp_path / "target.gguf")
    models = {
        "pairing": TinyModel(changed={token: f"[other{token}]" for token in range(17, 49_152)}),
        "nan": TinyModel(nan=True),
        "recurrent": TinyModel(architecture="mamba"),
    }
    draft = models.get(failing, TinyModel()).write(tmp_path / "draft.gguf", smol_tokenizer)
    options = exact_options(Path(target), draft)
    with pytest.raises(LocalspecError):
        load(options, progress=lambda stage, share: failing != "stopped" or stage == "target" or share < 1)
    # Weights are mapped files.
    maps = Path("/proc/self/maps").read_text()
    assert str(tmp_path) not in maps


@pytest.mark.parametrize("stage", ["target", "draft"])
def test_loading_can_be_stopped(smol: Path, random_draft: Path, stage: str) -> None:
    with pytest.raises(Cancelled, match="was stopped"):
        load(exact_options(smol, random_draft), progress=lambda name, share: name != stage or share < 0.5)
    # Nothing of the attempt stays in the way of the next.
    with running(random_draft, spec_types=("none",)) as engine:
        wish = GenerationRequest(tokens=(500, 501), sampling=GREEDY, spec=PLAIN, max_tokens=3)
        assert len(answer(engine, wish).ids) == 3
