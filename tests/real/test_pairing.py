"""Which draft models fit a target: rows of padding do, other texts do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from localspec.errors import PairingError
from localspec.types import GenerationRequest, SpecParams
from localspec.vocab import Pairing, pair
from tests.real.support import GREEDY, answer, fresh_row, opened, running
from tests.support.gguf_files import TinyModel, TokenizerKeys

N_VOCAB = 49_152
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, smol_tokenizer: TokenizerKeys) -> Write:
    def write(**changes: object) -> Path:
        return TinyModel(**changes).write(tmp_path / "other.gguf", smol_tokenizer)  # type: ignore[arg-type]

    return write


def verdict(target: Path, draft: Path) -> Pairing:
    with opened(target) as one, opened(draft) as other:
        return pair(one.vocab, other.vocab, draft_name=draft.name)


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


@pytest.mark.parametrize("token", [300, N_VOCAB - 1])
def test_another_text_does_not_fit(random_draft: Path, write: Write, token: int) -> None:
    with opened(random_draft) as target:
        ours = target.vocab.text(token)
    draft = write(changed={token: "otherwise"})
    with pytest.raises(PairingError) as caught, running(random_draft, draft):
        pass
    assert caught.value.message.startswith(f"other.gguf spells token {token} 'otherwise', the target {ours!r}")
    assert caught.value.hint


def test_another_name_of_a_control_token_is_barred(random_draft: Path, write: Write) -> None:
    assert verdict(random_draft, write(changed={3: "<|unused|>"})) == Pairing(N_VOCAB, frozenset({3}))


def test_the_opening_token_is_the_target_s_affair(random_draft: Path, write: Write) -> None:
    draft = write(add_bos=True)
    assert verdict(random_draft, draft) == Pairing(N_VOCAB, frozenset())
    with running(random_draft, draft) as engine:
        assert engine.encode(GenerationRequest(prompt="Hello")) == engine.target.vocab.tokenize("Hello")


def test_another_family_is_refused_with_the_first_difference(smol: Path, gemma: Path) -> None:
    with pytest.raises(PairingError) as caught, running(smol, gemma):
        pass
    assert caught.value.message == (
        f"{gemma.name} has another tokenizer (spm) than the target (bpe): it spells token 0 '<pad>',"
        " the target '<|endoftext|>'"
    )
