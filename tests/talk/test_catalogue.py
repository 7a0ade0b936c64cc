"""Models that can be picked, and what is said of them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.backends.memory import CacheShape
from localspec.hub.header import Header, read_header
from localspec.hub.vocabulary import Vocabulary
from localspec.talk import catalogue as module
from localspec.talk.catalogue import Catalogue, Model
from localspec.talk.recent import MOST, Recent
from localspec.talk.verdicts import Grade, Judge, Verdict, paired
from tests.cli.repl.support import values
from tests.support.gguf_files import DAMAGES, damage
from tests.talk.models import tokenizer, write


@pytest.fixture(autouse=True)
def _no_other_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "named", lambda: iter(()))


def found(*folders: Path, recent: tuple[Path, ...] = ()) -> list[Model]:
    return list(Catalogue(folders, recent).scan())


def test_headers_say_what_a_model_is(tmp_path: Path) -> None:
    path = write(tmp_path / "tiny-Q8_0.gguf", width=32, layers=2, n_ctx=512)
    (model,) = found(tmp_path)
    assert (model.name, model.path, model.size) == (str(path), path, path.stat().st_size)
    assert (model.quant, model.architecture, model.context) == ("Q8_0", "llama", 512)
    assert model.cache == CacheShape(2, 32, 32)
    assert model.parameters == sum(tensor.elements for tensor in read_header(path).tensors)
    assert model.facts == f"0M · Q8_0 · {path.stat().st_size / 1000:.0f} kB"
    assert (model.chats, model.recurrent, model.fault) == (True, False, None)


@pytest.mark.parametrize(
    ("parameters", "said"), [(134_515_008, "135M"), (1_543_714_304, "1.5B"), (999_700_000, "1.0B")]
)
def test_parameters_in_short(parameters: int, said: str) -> None:
    assert Model("a", Path("a"), 1000, parameters=parameters).facts == f"{said} · 1.0 kB"


def test_recent_models_come_first_and_each_comes_once(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a" / "a.gguf"), write(tmp_path / "b.gguf")
    (tmp_path / "link.gguf").symlink_to(first)
    names = [Path(model.name).name for model in found(tmp_path, tmp_path, recent=(second, tmp_path / "gone.gguf"))]
    assert names == ["b.gguf", "link.gguf"]


def test_beside_a_model_is_not_below(tmp_path: Path) -> None:
    path = write(tmp_path / "x.gguf")
    write(tmp_path / "y.gguf")
    write(tmp_path / "below" / "z.gguf")
    names = [model.path.name for model in Catalogue(beside=[path, tmp_path / "gone" / "a.gguf"]).scan()]
    assert names == ["x.gguf", "y.gguf"]


def test_models_with_names_are_called_by_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.gguf")
    monkeypatch.setattr(module, "named", lambda: iter([("user/repo:Q8_0", path)]))
    assert [model.name for model in found(tmp_path, recent=(path,))] == ["user/repo:Q8_0"]


def test_damaged_and_odd_files_are_told_or_left_out(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.gguf")
    for kind in DAMAGES:
        damage(whole, kind, tmp_path / f"{kind}.gguf")
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "nowhere.gguf").symlink_to(tmp_path / "nothing")
    (tmp_path / "part-00001-of-00002.gguf").write_bytes(whole.read_bytes())
    (tmp_path / "mmproj-x.gguf").write_bytes(b"")
    (tmp_path / "loop").symlink_to(tmp_path)
    models = {model.path.stem: model for model in found(tmp_path, tmp_path / "no-folder", whole)}
    assert set(models) == {"whole", *DAMAGES} - {"directory"}
    assert {name for name, model in models.items() if model.fault is None} == {"whole", "bit-rot"}
    assert Judge(free=10**9).target(models["html"]).grade is Grade.BAD


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
def test_folders_and_files_that_cannot_be_read(tmp_path: Path) -> None:
    write(tmp_path / "closed" / "a.gguf")
    locked = write(tmp_path / "locked.gguf")
    (tmp_path / "closed").chmod(0)
    locked.chmod(0)
    (model,) = found(tmp_path)
    assert model.fault is not None
    (tmp_path / "closed").chmod(0o700)


def test_headers_are_read_again_only_where_a_file_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(path: Path) -> Header:
        read.append(path.name)
        return read_header(path)

    monkeypatch.setattr(module, "read_header", counted)
    path = write(tmp_path / "a.gguf")
    write(tmp_path / "b.gguf")
    catalogue = Catalogue([tmp_path])
    assert [model.context for model in (*catalogue.scan(), *catalogue.scan())] == [2048] * 4
    assert read == ["a.gguf", "b.gguf"]
    write(path, n_ctx=4096)
    os.utime(path, ns=(1, 1))
    assert [model.context for model in catalogue.scan()] == [4096, 2048]
    assert read == ["a.gguf", "b.gguf", "a.gguf"]


def test_a_name_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    path, catalogue = write(tmp_path / "a.gguf"), Catalogue()
    found = [catalogue.model(path, "short"), catalogue.model(path)]
    assert [model and model.name for model in found] == ["short", str(path)]


def test_models_come_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the second is looked at, the first can be shown."""
    read: list[str] = []

    def noted(path: Path) -> Header:
        read.append(path.name)
        return read_header(path)

    monkeypatch.setattr(module, "read_header", noted)
    for name in ("a.gguf", "b.gguf"):
        write(tmp_path / name)
    models = Catalogue([tmp_path]).scan()
    next(models)
    assert read == ["a.gguf"]


# Vocabularies


def vocabulary(path: Path) -> Vocabulary:
    return Vocabulary.of(read_header(path))


def test_vocabularies_are_told_apart_by_kind_tokens_and_size(tmp_path: Path) -> None:
    one = vocabulary(write(tmp_path / "a.gguf", tokenizer(20_000), width=2))
    assert vocabulary(write(tmp_path / "b.gguf", tokenizer(20_000), width=4)).same_as(one)
    assert vocabulary(write(tmp_path / "c.gguf", tokenizer(20_000), width=2, extra_rows=100)).same_as(one)
    for number, other in enumerate(
        (tokenizer(20_000, kind="llama"), tokenizer(20_000, first="u"), tokenizer(21_000), tokenizer(40))
    ):
        assert not vocabulary(write(tmp_path / f"{number}.gguf", other, width=2)).same_as(one)


# Verdicts


ONE = Vocabulary("gpt2", "default", 100, "x")
TARGET = Model("t", Path("t"), 2_000_000, context=1000, cache=CacheShape(1, 100, 100), vocabulary=ONE, chats=True)
DRAFT = replace(TARGET, name="d", path=Path("d"), size=150_000)


@pytest.mark.parametrize(
    ("draft", "verdict"),
    [
        (DRAFT, Verdict(Grade.GOOD, "same vocabulary, 13× smaller")),
        (replace(DRAFT, size=250_000), Verdict(Grade.GOOD, "same vocabulary, 8.0× smaller")),
        (
            replace(DRAFT, size=1_000_000),
            Verdict(Grade.FAIR, "same vocabulary, 2.0× smaller: its passes cost much of what guesses save"),
        ),
        (
            replace(DRAFT, size=20_000),
            Verdict(Grade.FAIR, "same vocabulary, 100× smaller: it may seldom guess right"),
        ),
        (
            replace(DRAFT, vocabulary=replace(ONE, count=999)),
            Verdict(Grade.FAIR, "another vocabulary (999 tokens for 100): fewer guesses hold, 13× smaller"),
        ),
        (replace(DRAFT, vocabulary=None), Verdict(Grade.FAIR, "the vocabularies are not known")),
        (TARGET, Verdict(Grade.BAD, "no smaller than the target: guesses cannot pay")),
        (
            replace(DRAFT, recurrent=True),
            Verdict(Grade.BAD, "recurrent layers cannot take guesses back: no draft model"),
        ),
        (replace(DRAFT, fault="it is empty"), Verdict(Grade.BAD, "damaged: it is empty")),
    ],
)
def test_can_it_guess_for_the_target(draft: Model, verdict: Verdict) -> None:
    assert paired(draft, TARGET) == verdict


@pytest.mark.parametrize(
    ("free", "verdict"),
    [
        (10_000_000, Verdict(Grade.GOOD, "fits: 2.4 MB of 10 MB free")),
        (2_500_000, Verdict(Grade.FAIR, "fits with a context up to 512 (-c)")),
        (2_230_000, Verdict(Grade.BAD, "too large: 2.4 MB of 2.2 MB free")),
        (1_000_000, Verdict(Grade.BAD, "too large: 2.0 MB of 1.0 MB free")),
        (None, Verdict(Grade.FAIR, "how much memory is free is not known")),
    ],
)
def test_does_it_fit(free: int | None, verdict: Verdict) -> None:
    assert Judge(free=free).target(TARGET) == verdict


def test_a_base_model_is_no_first_choice() -> None:
    verdict = Judge(free=10**9).target(replace(TARGET, chats=False))
    assert (verdict.grade, verdict.text) == (Grade.FAIR, "fits: 2.4 MB of 1.0 GB free; no chat template: a base model")


def test_a_draft_has_what_was_measured_with_it() -> None:
    judge = Judge(free=10**9, measured=lambda target, draft: 1.4 if (target, draft) == (Path("t"), Path("d")) else None)
    text = "same vocabulary, 13× smaller; fits: 550 kB of 1.0 GB free"
    assert judge.draft(DRAFT, TARGET) == Verdict(Grade.GOOD, f"{text}; measured: 1.40× plain decoding")
    assert judge.draft(replace(DRAFT, path=Path("e")), TARGET).text == text


def test_a_judge_for_a_chat_knows_its_options() -> None:
    judge = Judge.of(values(ctx_size=512, cache_type_k="q8_0"))
    assert (judge.n_ctx, judge.types, judge.types_draft) == (512, ("q8_0", "f16"), ("f16", "f16"))


# Recent ones


def test_recent_models_are_remembered(tmp_path: Path) -> None:
    recent, files = Recent(tmp_path / "state" / "recent"), [tmp_path / f"{i}\udcff.gguf" for i in range(MOST + 2)]
    for file in files:
        file.touch()
        recent.add(file)
    assert recent.paths() == tuple(reversed(files))[:MOST]
    recent.add(files[5])
    assert recent.paths()[:2] == (files[5], files[-1])
    files[5].unlink()
    assert recent.paths()[0] == files[-1]


def test_a_memory_that_cannot_be_written_or_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"\0\xff\n\n")
    assert Recent(tmp_path / "state").paths() == ()
    Recent(tmp_path / "state" / "recent").add(tmp_path / "a.gguf")
    assert Recent(tmp_path / "state" / "recent").paths() == ()
