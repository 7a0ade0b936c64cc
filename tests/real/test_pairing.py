"""Which draft models fit a target: rows of padding do, other texts are translated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from localspec.errors import PairingError
from localspec.types import GenerationRequest, SpecParams
from localspec.vocab import Pairing, pair
from tests.real.support import CHAIN, GREEDY, PLAIN, answer, fresh_row, opened, running
from tests.support.gguf_files import TinyModel, TokenizerKeys

N_VOCAB = 49_152
NOTE = "{} has another vocabulary than the target: its guesses are translated"
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, smol_tokenizer: TokenizerKeys) -> Write:
    def write(**changes: object) -> Path:
        return TinyModel(**changes).write(tmp_path / "other.gguf", smol_tokenizer)  # type: ignore[arg-type]

    return write


def verdict(target: Path, draft: Path) -> Pairing | None:
    with opened(target) as one, opened(draft) as other:
        return pair(one.vocab, other.vocab)


@pytest.mark.parametrize("rows", [64, 200])
def test_padding_fits(random_draft: Path, write: Write, rows: int) -> None:
    assert verdict(random_draft, write(extra_rows=rows)) == Pairing(N_VOCAB, frozenset())
    assert verdict(write(extra_rows=rows), random_draft) == Pairing(N_VOCAB, frozenset())


def test_padding_is_never_proposed(random_draft: Path, write: Write) -> None:
    draft = write(extra_rows=200, seed=1)
    text = tuple(range(800, 820))
    with opened(draft) as model:
        # Without the bound it would be: these are the draft's own favourites.
        rows = [np.argsort(-fresh_row(model, text[:n]))[:32] for n in range(2, 20)]
    assert max(map(max, rows)) >= N_VOCAB
    wish = GenerationRequest(
        tokens=text,
        sampling=GREEDY,
        max_tokens=24,
        trace=True,
        spec=SpecParams(depth=1, nodes=32, width=32, mode="fixed"),
    )
    with running(random_draft, draft, tree_nodes=32) as engine:
        steps = answer(engine, wish).steps
    proposed = {token for step in steps if step.tree for token in step.tree.tokens}
    assert len(proposed) > 200
    assert max(proposed) < N_VOCAB


@pytest.mark.parametrize("at", [3, 19])
def test_a_text_with_padding_is_drafted_for(random_draft: Path, write: Write, at: int) -> None:
    target = write(extra_rows=200, seed=1)
    text = list(range(800, 820))
    text[at] = N_VOCAB + 5
    wish = GenerationRequest(tokens=tuple(text), sampling=GREEDY, max_tokens=12, spec=CHAIN)
    with running(target, random_draft) as engine:
        ours, plain = answer(engine, wish), answer(engine, replace(wish, spec=PLAIN))
    assert ours.ids == plain.ids
    assert ours.stats.draft_n > 0
    assert ours.notices == ()


@pytest.mark.parametrize("token", [300, N_VOCAB - 1])
def test_another_text_is_translated(random_draft: Path, write: Write, token: int) -> None:
    draft = write(changed={token: "otherwise"})
    assert verdict(random_draft, draft) is None
    wish = GenerationRequest(tokens=tuple(range(800, 820)), sampling=GREEDY, max_tokens=24, spec=CHAIN)
    with running(random_draft, draft) as engine:
        assert engine.info.warnings == (NOTE.format("other.gguf"),)
        assert dict(engine.info.loads[1].settings)["vocabulary"].startswith("translated, 49")
        ours = answer(engine, wish)
        plain = answer(engine, replace(wish, spec=PLAIN))
    assert ours.ids == plain.ids
    assert ours.stats.draft_n > 0


def test_no_text_in_common_is_refused(random_draft: Path, write: Write) -> None:
    draft = write(changed={token: f"[other{token}]" for token in range(17, N_VOCAB)})
    with pytest.raises(PairingError) as caught, running(random_draft, draft):
        pass
    assert caught.value.message == "other.gguf and the target spell no token alike: it can guess nothing"
    assert caught.value.hint


def test_another_name_of_a_control_token_is_barred(random_draft: Path, write: Write) -> None:
    assert verdict(random_draft, write(changed={3: "<|unused|>"})) == Pairing(N_VOCAB, frozenset({3}))


def test_the_opening_token_is_the_target_s_affair(random_draft: Path, write: Write) -> None:
    draft = write(add_bos=True)
    assert verdict(random_draft, draft) == Pairing(N_VOCAB, frozenset())
    with running(random_draft, draft) as engine:
        assert engine.encode(GenerationRequest(prompt="Hello")) == engine.target.vocab.tokenize("Hello")
