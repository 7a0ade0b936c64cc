"""Trainings of tiny drafters for a tiny random target."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (pip install 'localspec[torch]')")

from localspec.backends.torch.checkpoint import read_checkpoint  # noqa: E402
from localspec.backends.torch.eagle_weights import read_eagle  # noqa: E402
from localspec.backends.torch.gguf_head import target_shape  # noqa: E402
from localspec.backends.torch.hub_model import HubLlama  # noqa: E402
from localspec.backends.torch.llama import TorchLlama  # noqa: E402
from localspec.errors import ModelError, ModelLoadError, UsageError  # noqa: E402
from localspec.train import drive as driving  # noqa: E402
from localspec.train import run as running  # noqa: E402
from localspec.train.drive import drive  # noqa: E402
from localspec.train.export import read_head, read_small  # noqa: E402
from localspec.train.frame import Frame, find_frame  # noqa: E402
from localspec.train.inputs import read_vocabulary  # noqa: E402
from localspec.train.kinds import HeadKind, SmallKind  # noqa: E402
from localspec.train.learner import acceptance  # noqa: E402
from localspec.train.notes import Notes  # noqa: E402
from localspec.train.run import Run  # noqa: E402
from localspec.train.selfplay import Answer, Conversation, written  # noqa: E402
from localspec.train.sources import Corpus, Desk, SelfPlay, of_log  # noqa: E402
from localspec.train.texts import Texts  # noqa: E402
from localspec.train.work import Work  # noqa: E402
from tests.support.gguf_files import TinyModel, TokenizerKeys  # noqa: E402
from tests.support.gguf_heads import TinyHead  # noqa: E402
from tests.train.support import KINDS, N_VOCAB, TARGET, Deaf, Killed, corpus, fewer_tokens, job, trained  # noqa: E402


@pytest.fixture(scope="module")
def target(smol_tokenizer: TokenizerKeys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TARGET.write(tmp_path_factory.mktemp("target") / "target.gguf", fewer_tokens(smol_tokenizer))


@pytest.fixture(autouse=True)
def measured_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driving, "_MEASURED", 2000)
    monkeypatch.setattr(driving, "_SAVED", 0.0)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_it_learns_what_the_target_says(kind: str, target: Path, tmp_path: Path) -> None:
    told = Deaf()
    result = trained(tmp_path, target, kind, 8000, told)
    run = Run(KINDS[kind].begin(TorchLlama.of_file(target), Work(tmp_path / f"{kind}.train")), tmp_path / "none.pt")
    notes = Work(tmp_path / f"{kind}.train").notes()["part-0000"].rows(slice(0, 8))
    before = run.learner.loss(notes, np.random.default_rng(0)).item()
    run.learner.module.load_state_dict(torch.load(tmp_path / f"{kind}.train" / "state.pt", weights_only=False)["mean"])
    assert run.learner.loss(notes, np.random.default_rng(0)).item() < 0.8 * before
    assert result.finished
    assert result.tokens >= 8000
    assert [point.tokens for point in result.curve] == [point.tokens for point in told.points]
    assert result.curve[0].tokens == 0


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_table_of_tokens_is_not_taken_for_a_matrix(kind: str, target: Path, tmp_path: Path) -> None:
    """Steps that level a matrix's directions move all rows of a table alike, and take most of the time."""
    trained(tmp_path, target, kind, 1)
    work = Work(tmp_path / f"{kind}.train")
    run = Run(KINDS[kind].begin(TorchLlama.of_file(target), work), tmp_path / "none.pt")
    table = {"draft": "token_embd", "eagle3": "output"}[kind]
    before = run.learner.module.get_parameter(table).detach().clone()
    run.step(work.notes(), 0.0)
    moved = (run.learner.module.get_parameter(table) - before).abs()
    rate = running._TABLE_RATES[table] / running._WARM_UP
    assert 0 < moved.max() <= 1.01 * rate  # Adam's first step moves every number by its rate


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_killed_training_ends_like_one_that_was_not(kind: str, target: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    straight = trained(whole, target, kind)
    for steps in (3, 9):
        with pytest.raises(Killed):
            trained(broken, target, kind, told=Deaf(die_after=steps))
    stopped = trained(broken, target, kind, told=Deaf(stop_after=2))
    assert not stopped.finished
    assert stopped.tokens < straight.tokens
    resumed = trained(broken, target, kind)
    assert (resumed.curve, resumed.tokens) == (straight.curve, straight.tokens)
    assert (broken / f"{kind}.gguf").read_bytes() == (whole / f"{kind}.gguf").read_bytes()


def test_no_text_is_written_that_there_is_no_time_to_learn_from(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text takes as long as some passes over it: in the last part of its time a training only learns."""
    clock, asked = itertools.count(), list[int]()
    monkeypatch.setattr(driving, "time", SimpleNamespace(monotonic=lambda: next(clock) / 100))

    class Endless(Corpus):
        def part(self, number: int, desk: Desk) -> Texts | None:
            asked.append(next(clock))
            return super().part(0, desk)

    texts = corpus()
    timed = replace(job(tmp_path, target, "eagle3", 0), seconds=2.0, tokens=None)
    result = drive(timed, Endless(texts.texts, texts.weights, texts.rows, texts.length), Deaf())
    assert result.finished
    assert result.curve[-1].tokens == result.tokens, "the last measurement is of what was kept"
    end = next(clock)
    assert len(asked) > 1
    assert max(asked) < 0.65 * end


def test_a_training_goes_on_from_a_drafter(target: Path, tmp_path: Path) -> None:
    for kind, origin in (("eagle3", HeadKind), ("draft", SmallKind)):
        first = trained(tmp_path, target, kind)
        later = replace(KINDS[kind], origin=tmp_path / f"{kind}.gguf")  # type: ignore[type-var]
        assert isinstance(later, origin)
        made = replace(job(tmp_path, target, kind, 0), kind=later, work=tmp_path / f"{kind}.more")
        assert drive(made, corpus(), Deaf()).curve[0].acceptance == first.curve[-1].acceptance


def test_what_was_read_before_a_kill_is_not_read_again(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, model, texts = Work(tmp_path), TorchLlama.of_file(target), tmp_path / "part-0000.npz"
    work.claim({})
    tokens = np.arange(5, 65, dtype=np.int32).reshape(10, 6)
    Texts(tokens, np.ones(tokens.shape, np.float32)).write(texts)
    rows: list[int] = []
    read = model.read

    def counted(tokens: Any, *given: Any, **named: Any) -> Any:
        rows.append(len(tokens))
        return read(tokens, *given, **named)

    def killed(_count: int) -> None:
        if len(rows) == 2:
            raise Killed

    monkeypatch.setattr(model, "read", counted)
    with pytest.raises(Killed):
        work.read(texts, model, (1,), killed)
    work.read(texts, model, (1,), lambda _: None)
    assert rows == [4, 4, 2]
    (notes,) = (tmp_path / "notes").iterdir()
    assert Notes.read(notes).tokens.tolist() == tokens.tolist()


def test_a_damaged_state_is_named(target: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.pt"
    state.write_text("garbage\n")
    learner = KINDS["draft"].begin(TorchLlama.of_file(target), Work(tmp_path))
    with pytest.raises(UsageError, match=r"state\.pt cannot be read, or is damaged"):
        Run(learner, state)


def test_a_work_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file/work cannot be made the work folder: Not a directory"):
        Work(tmp_path / "file" / "work").claim({})


def test_a_folder_belongs_to_one_training(target: Path, tmp_path: Path) -> None:
    trained(tmp_path, target, "draft", 0)
    wider = replace(job(tmp_path, target, "draft", 0), kind=SmallKind(64, 1, "f32"))
    with pytest.raises(UsageError, match="its width is not the same"):
        drive(wider, corpus(), Deaf())


def test_files_say_where_they_come_from(target: Path, tmp_path: Path) -> None:
    import gguf

    made = replace(job(tmp_path, target, "eagle3", 2000), hub=tmp_path / "hub")
    result = drive(made, corpus(), Deaf())
    fields = gguf.GGUFReader(made.out).fields
    assert fields["localspec.train.tokens"].contents() == str(result.tokens)
    assert fields["localspec.train.accepted_length"].contents() == f"{result.curve[-1].acceptance.length:.3f}"
    assert "general.license" in fields
    head = read_head(made.out)
    assert head.ids is not None
    assert made.hub is not None
    again = read_eagle(read_checkpoint(made.hub), target_shape(target), "hub")
    assert (again.reads, again.target_width) == (head.reads, head.target_width) == ((2, 3, 4), TARGET.width)
    assert again.ids is not None
    assert (again.ids == head.ids).all()
    assert same(again.weights, head.weights)
    # Neighbours in the one form are half a head apart in the other.
    each = head.shape.each
    ours = head.weights["blk.0.attn_k.weight"][:each]
    theirs = read_checkpoint(made.hub).tensors["midlayer.self_attn.k_proj.weight"][:each]
    assert torch.equal(ours[0::2], theirs[: each // 2])
    assert torch.equal(ours[1::2], theirs[each // 2 :])


def same(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(weight, theirs[name]) for name, weight in ours.items())


def test_a_draft_model_in_the_form_of_the_hub_is_the_same(target: Path, tmp_path: Path) -> None:
    made = replace(job(tmp_path, target, "draft", 0), hub=tmp_path / "hub")
    drive(made, corpus(), Deaf())
    ours, theirs = TorchLlama.of_file(made.out), HubLlama(read_checkpoint(tmp_path / "hub"))
    assert ours.shape == theirs.shape
    assert same(ours.weights, theirs.weights)


def test_a_draft_model_is_read_back(target: Path, tmp_path: Path) -> None:
    trained(tmp_path, target, "draft", 0)
    shape, weights = read_small(tmp_path / "draft.gguf")
    assert (shape.width, shape.layers) == (32, 1)
    assert "blk.0.attn_q" in weights


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        (TARGET, "is of the architecture llama, not eagle3"),
        (TinyHead(N_VOCAB, 32, (1, 2, 3), guessable=(7, 9)), "reads other layers than this target needs"),
        (TinyHead(N_VOCAB, 48, (2, 3, 4), guessable=(7, 9)), "reads another width than this target needs"),
        (TinyHead(N_VOCAB, 32, (2, 3, 4), guessable=(7, 9)), "has other parts than this target needs"),
    ],
    ids=["model", "layers", "width", "embeddings"],
)
def test_a_head_that_this_training_cannot_go_on_from(
    made: TinyModel | TinyHead, fault: str, target: Path, smol_tokenizer: TokenizerKeys, tmp_path: Path
) -> None:
    origin = made.write(tmp_path / "origin.gguf", fewer_tokens(smol_tokenizer))
    kind = HeadKind(64, "f32", origin)
    with pytest.raises(ModelError, match=f"^origin.gguf {fault}$") as error:
        kind.begin(TorchLlama.of_file(target), Work(tmp_path / "work"))
    assert error.value.hint == "Begin without --from."


def test_another_architecture_is_refused_and_leaves_nothing(smol_tokenizer: TokenizerKeys, tmp_path: Path) -> None:
    mamba = TinyModel(architecture="mamba").write(tmp_path / "mamba.gguf", fewer_tokens(smol_tokenizer))
    with pytest.raises(ModelLoadError, match="of the architecture mamba, not llama"):
        trained(tmp_path, mamba, "draft")
    assert not (tmp_path / "draft.train").exists()


def test_a_target_that_writes_by_itself_goes_on_in_mid_text(target: Path, tmp_path: Path) -> None:
    """Texts that were being written when the process died are not begun anew."""
    source = SelfPlay(Frame((1, 50, 51), (52, 53), (54,), (2, 2)), [[60, 61]], rows=2, length=40)

    class Halting(Deaf):
        """Stops at the second look at the second text."""

        looks = 0

        @contextmanager
        def phase(self, what: str, whole: int | None) -> Iterator[Callable[[int, str], None]]:
            def said(_count: int, _word: str) -> None:
                self.looks += what == "writing texts"
                self.stopped = self.looks == 4

            yield said

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
    assert not drive(job(broken, target, "draft", 0), source, Halting()).finished
    (sketch,) = (broken / "draft.train" / "texts").glob("*.npy")
    assert np.load(sketch).shape == (2, 32)
    for folder in (broken, whole):
        assert drive(job(folder, target, "draft", 0), source, Deaf()).finished
    ours, theirs = (Texts.read(folder / "draft.train" / "texts" / "part-0000.npz") for folder in (broken, whole))
    assert (ours.tokens == theirs.tokens).all()
    assert not sketch.exists()


# -- acceptance


def test_acceptance_counts_chains_up_to_their_first_mistake(target: Path, tmp_path: Path) -> None:
    trained(tmp_path, target, "draft", 0)
    (held, *_) = Work(tmp_path / "draft.train").held()

    class Sage:
        """Knows the text, but for one token of each row."""

        module = torch.nn.Linear(1, 1)

        def loss(self, notes: object, rng: object) -> object: ...

        def guesses(self, notes: object) -> Any:
            n = held.tokens.shape[1]
            known = held.tokens.clone()
            known[:, 20] += 1
            padded = torch.cat([known, torch.zeros(len(known), 3, dtype=torch.long)], dim=1)
            return torch.stack([padded[:, k : k + n] for k in range(4)], dim=-1)

    found = acceptance(Sage(), [held])
    chains = held.tokens.shape[1] - 3 - 1  # the first token is nobody's guess
    assert found.by_position == pytest.approx([(chains - 1 - k) / chains for k in range(4)])


# -- texts


def test_a_conversation_written_in_two_goes_is_the_same(target: Path) -> None:
    model = TorchLlama.of_file(target)
    frame = Frame((1, 50, 51), (52, 53), (54,), (2, 2))
    seen: list[Any] = []

    def rows() -> list[Conversation]:
        return [Conversation(frame, (), 0.0), Conversation(frame, (5, 6), 1.0)]

    whole = written(model, rows(), 70, (1, 2), look=lambda text: seen.append(text.copy()))
    again = written(model, rows(), 70, (1, 2), begun=seen[2])
    assert seen[2].shape == (2, 48)
    assert (whole.tokens == again.tokens).all()
    assert (whole.weight == again.weight).all()
    opening = len(frame.opening)
    assert tuple(whole.tokens[0, :opening]) == frame.opening
    assert (whole.weight[0, :opening] == 0).all()
    assert whole.weight[0, opening] == 1


def test_the_frame_is_the_templates(smol: Path) -> None:
    vocab, template = read_vocabulary(smol)
    frame = find_frame(template, vocab)
    spelled = ["".join(vocab.piece(token, special=True).decode() for token in part) for part in (
        frame.opening, frame.answer, frame.question
    )]  # fmt: skip
    assert spelled[0].startswith("<|im_start|>system\n")
    assert spelled[0].endswith("<|im_start|>user\n")
    assert spelled[1:] == ["\n<|im_start|>assistant\n", "\n<|im_start|>user\n"]
    assert {vocab.text(end) for end in frame.ends} == {"<|im_end|>"}


def test_answers_count_to_their_end_and_no_further(target: Path) -> None:
    model = TorchLlama.of_file(target)
    free = written(model, [Answer([1, 9, 9], frozenset(), 0.0)], 12, (0,))
    end = int(free.tokens[0, 6])
    cut = written(model, [Answer([1, 9, 9], frozenset({end}), 0.0)], 12, (0,))
    stop = 3 + free.tokens[0, 3:].tolist().index(end)
    assert cut.weight[0].tolist() == [0.0] * 3 + [1.0] * (stop - 2) + [0.0] * (11 - stop)


def test_what_was_guessed_wrong_counts_more() -> None:
    steps = [
        {"at": 0, "tokens": [{"id": 7}, {"id": 8}], "tested": 2, "draft_n_accepted": 1},
        {"at": 2, "tokens": [{"id": 9}], "tested": 0, "draft_n_accepted": 0},
    ]
    found = of_log([json.dumps(step) for step in steps], "log.jsonl")
    assert (found.texts, found.weights) == ([[7, 8, 9]], [[1.0, 3.0, 1.0]])
    with pytest.raises(UsageError, match=r"line 2 of log.jsonl is no step"):
        of_log([json.dumps(steps[0]), "{}"], "log.jsonl")


def test_a_corpus_is_cut_into_rows_and_some_are_held_out() -> None:
    found = Corpus.of([list(range(1, 31)), [40, 41]])
    short = replace(found, length=10, rows=2)
    texts = short.part(0, None)  # type: ignore[arg-type]
    assert texts is not None
    assert texts.tokens.tolist() == [list(range(11, 21)), list(range(21, 31))]
    assert short.held(None).tokens.tolist() == [list(range(1, 11))]  # type: ignore[arg-type]
    last = short.part(1, None)  # type: ignore[arg-type]
    assert last is not None
    assert last.tokens[0].tolist() == [40, 41] + [0] * 8
    assert last.weight[0].tolist() == [0, 1] + [0] * 8
    assert short.part(2, None) is None  # type: ignore[arg-type]
