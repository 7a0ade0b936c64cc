"""A target that cannot take tokens back answers without guesses, and says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.types import GenerationRequest, SpecParams
from tests.real.support import GREEDY, PLAIN, answer, running
from tests.support.gguf_files import TinyModel, TokenizerKeys


@pytest.fixture(scope="module")
def mamba(smol_tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recurrent") / "mamba.gguf"
    return TinyModel(architecture="mamba").write(path, smol_tokenizer)


TEXT = tuple(range(700, 712)) * 3


@pytest.mark.parametrize("types", [("draft-simple",), ("ngram-simple",), ("draft-simple", "ngram-simple")])
def test_it_answers_as_if_alone(mamba: Path, random_draft: Path, types: tuple[str, ...]) -> None:
    first = GenerationRequest(
        tokens=TEXT, sampling=GREEDY, max_tokens=12, spec=SpecParams(depth=4, nodes=8, width=2, mode="fixed")
    )
    draft = random_draft if "draft-simple" in types else None
    with running(mamba, draft, spec_types=types) as engine:
        assert engine.info.warnings == (
            "speculation is off: this target cannot take back what it has read (recurrent layers)",
        )
        one = answer(engine, first)
        turns = [
            replace(first, tokens=(*TEXT, *one.ids, 900, 901)),  # goes on
            replace(first, tokens=(*TEXT, 33, 34)),  # goes back
        ]
        again = [answer(engine, wish) for wish in turns]
    for wish, ours in zip([first, *turns], [one, *again], strict=True):
        with running(mamba, spec_types=("none",)) as engine:
            assert engine.info.warnings == ()
            assert answer(engine, replace(wish, spec=PLAIN)).ids == ours.ids
        assert ours.stats.draft_n == 0
    assert one.notices == ()
    assert [turn.started.cache_n for turn in again] == [len(TEXT) + 11, 0]


def test_it_cannot_draft(smol: Path, mamba: Path) -> None:
    reason = r"the draft model: mamba\.gguf has recurrent layers"
    with pytest.raises(UsageError, match=reason), running(smol, mamba):
        pass
