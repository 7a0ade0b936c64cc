"""Slash commands, one by one, over an engine without weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.backends.fake import FakeTarget, FakeVocab
from localspec.chat import transcript
from localspec.chat.conversation import Conversation
from localspec.chat.store.incoming import read_conversations
from localspec.cli.repl import keys, loop
from localspec.errors import EngineDied, ModelLoadError, UsageError
from localspec.options import GENERATION_OPTIONS
from localspec.options.tables.groups import SPEC
from localspec.talk import commands, engine_commands, settings
from localspec.talk.chat import Chat
from localspec.talk.completion import completions
from localspec.talk.front import Leave, LineCleared
from localspec.types import Exact
from tests.cli.repl.support import chat, contents, engine, loads, messages, repl, run, typed

Said = pytest.CaptureFixture[str]


def take(one: Chat, said: Said, line: str) -> str:
    """What a line makes the chat say on stderr."""
    said.readouterr()
    repl(one).take(line)
    return said.readouterr().err


# The registry


def test_names_and_aliases_are_unique_and_explained() -> None:
    assert len(commands.names()) == len(set(commands.names()))
    for command in commands.COMMANDS:
        assert command.help.endswith(".")
        assert f"`/{command.name}" in keys.reference()


def test_the_page_about_the_chat_is_fresh() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "chat.md"
    assert page.read_text("utf-8").count(f"\n\n{keys.reference()}\n") == 1


@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_fits_a_terminal_of_24_rows(capsys: Said, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(loop, "columns", lambda: width)
    said = take(chat(), capsys, "/help")
    assert all(f"/{command.name} {command.brief}" in said for command in commands.COMMANDS)
    assert max(map(len, said.splitlines())) <= width
    assert len(said.splitlines()) <= 22  # with the command above it and the prompt below


def test_help_explains_a_command_a_group_and_the_keys(capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "columns", lambda: 60)
    assert take(chat(), capsys, "/help quit").startswith("/exit (also /quit, /bye): Leaves.")
    for topic in commands.topics():
        lines = take(chat(), capsys, f"/help {topic}").splitlines()
        assert max(map(len, lines)) <= 60
        assert "no command" not in lines[0]
    said = take(chat(), capsys, "/help files")
    assert all(f"/{command.name} " in said for command in commands.FILES)
    assert "/undo" not in said
    assert "ctrl-c  " in take(chat(), capsys, "/help keys")
    assert len(commands.topics()) == len(set(commands.topics()))


@pytest.mark.parametrize(
    ("line", "hint"), [("/hlep", "Did you mean /help?"), ("/reed x", "/read"), ("/zzzz", "/help lists")]
)
def test_unknown_commands_never_reach_the_model(capsys: Said, line: str, hint: str) -> None:
    one = chat()
    said = take(one, capsys, line)
    assert f"there is no command {line.split()[0]}. " in said
    assert hint in said
    assert f"written /{line.split()[0]}" in said
    assert contents(one) == []


def test_two_slashes_send_one() -> None:
    one = chat()
    repl(one).take("//etc is a folder")
    assert contents(one)[0] == "/etc is a folder"


@pytest.mark.parametrize("line", ["/exit", "/quit", "/bye"])
def test_leaving(line: str) -> None:
    with pytest.raises(Leave):
        repl(chat()).take(line)


# Questions and answers


def test_edit_brings_the_old_question_and_replaces_it(capsys: Said) -> None:
    one = chat()
    one.start(Conversation(None, messages("a", "b", "c", "d")))
    front = repl(one, "new")
    front.take("/edit 2")
    assert typed(front).defaults == ["a"]
    assert contents(one)[0] == "new"
    assert len(contents(one)) == 2


def test_an_earlier_answer_can_be_made_anew(capsys: Said) -> None:
    one = chat()
    one.start(Conversation(None, messages("a", "b", "c", "d")))
    said = take(one, capsys, "/regen 2")
    assert "at temperature 0 the same answer comes again" in said
    assert contents(one)[0] == "a"
    assert len(contents(one)) == 2
    assert "2 is too far back: 1 were asked. 1 is the last." in take(one, capsys, "/regen 2")
    assert "x is not a positive number" in take(one, capsys, "/regen x")
    assert len(contents(one)) == 2


@pytest.mark.parametrize("answer", ["", "  ", LineCleared(), KeyboardInterrupt()])
def test_an_edit_can_be_given_up(capsys: Said, answer: str | BaseException) -> None:
    one = chat()
    one.start(Conversation(None, messages("a", "b")))
    repl(one, answer).take("/edit")
    assert contents(one) == ["a", "b"]
    assert "nothing was changed" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["/edit", "/regen", "/copy"])
def test_nothing_was_asked_yet(capsys: Said, line: str) -> None:
    assert "conversation" in (said := take(chat(), capsys, line))
    assert said.endswith(". Write a message first.\n")


def test_undo_takes_back_files_first_then_exchanges(capsys: Said) -> None:
    one = chat()
    one.start(Conversation(None, messages("a\nb", "b", "c", "d")))
    one.attach([("file", "x")])
    assert "no longer attached: file" in take(one, capsys, "/undo")
    assert "taken back: c" in take(one, capsys, "/undo")
    assert "taken back: a b" in take(one, capsys, "/undo")
    assert "nothing to take back" in take(one, capsys, "/undo")


def test_undo_takes_back_as_many_as_asked(capsys: Said) -> None:
    one = chat()
    one.start(Conversation("sys", messages(*"abcdefgh")))
    assert take(one, capsys, "/undo 2") == "taken back: 2 exchanges, from e\n"
    assert contents(one) == list("abcd")
    one.attach([("file", "x")])
    assert take(one, capsys, "/undo 9") == "taken back: 2 exchanges, from a (there were no more than 2)\n"
    assert (contents(one), len(one.attachments)) == ([], 1)
    assert take(one, capsys, "/undo 1") == "there is nothing to take back\n"


def test_clear_keeps_the_system_message(capsys: Said) -> None:
    one = chat(system="sys")
    one.start(Conversation("sys", messages("a", "b")))
    assert "the system message stays" in take(one, capsys, "/new")
    assert (contents(one), one.conversation.system) == ([], "sys")


def test_system(capsys: Said) -> None:
    one = chat()
    assert "no system message" in take(one, capsys, "/system")
    take(one, capsys, "/system be\nbrief")
    assert one.conversation.system == "be\nbrief"
    assert "be\nbrief" in take(one, capsys, "/system")
    take(one, capsys, "/system off")
    assert one.conversation.system is None


def test_copy(capsys: Said) -> None:
    one = chat()
    one.start(Conversation(None, messages("a", "first", "c", "second")))
    front = repl(one)
    front.take("/copy")
    front.take("/copy 2")
    assert typed(front).copied == ["second", "first"]
    assert "copied 6 characters" in capsys.readouterr().err


# Files


def test_read_shows_the_cost_before_anything_is_sent(capsys: Said, tmp_path: Path) -> None:
    path = tmp_path / "a file ü.txt"
    path.write_text("hello\n")
    one = chat()
    said = take(one, capsys, f"/read {path}")
    assert f"{path}: {one.attachments[0].tokens} tokens" in said
    assert f"{one.free()} of 512 tokens stay free" in said
    assert contents(one) == []
    repl(one).take("what is it?")
    assert "hello" in contents(one)[0]
    assert "no file is attached" in take(one, capsys, "/read")


def test_files_that_cannot_go_along(capsys: Said, tmp_path: Path) -> None:
    one = chat()
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    (tmp_path / "large").write_bytes(b"x" * 20_000_000)
    (tmp_path / "long").write_text("x" * 600)
    (tmp_path / "evil\x1b[31m").write_text("x" * 600)
    assert "is not UTF-8 text (byte 0 is 0xff)" in take(one, capsys, f"/read {tmp_path}/binary")
    assert "20,000,000 bytes, which cannot fit in a context of 512" in take(one, capsys, f"/read {tmp_path}/large")
    assert "tokens, 512 of 512 are free" in take(one, capsys, f"/read {tmp_path}/long")
    assert "is not a file" in take(one, capsys, f"/read {tmp_path}")
    assert "is not a file" in take(one, capsys, "/read /dev/zero")
    assert "No such file" in take(one, capsys, f"/read {tmp_path}/none")
    assert "\x1b" not in take(one, capsys, f"/read {tmp_path}/evil\x1b[31m")
    assert one.attachments == []


def test_glob_attaches_all_or_none(capsys: Said, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("b.py", "a.py", "in/c.py"):
        (tmp_path / name).write_text(name)
    one = chat(engine(n_ctx=1000))
    take(one, capsys, f"/glob {tmp_path}/**/*.py")
    assert [Path(file.name).name for file in one.attachments] == ["a.py", "b.py", "c.py"]
    assert "no file matches" in take(one, capsys, f"/glob {tmp_path}/*.rs")
    (tmp_path / "d.py").write_text("x" * 2000)
    assert "4 files: " in take(one, capsys, f"/glob {tmp_path}/**/*.py")
    assert len(one.attachments) == 3


def test_save_and_load(capsys: Said, tmp_path: Path) -> None:
    path = tmp_path / "evening.json"
    one = chat(system="sys")
    one.start(Conversation("sys", messages("a", "b")))
    take(one, capsys, "/set top-k 7")
    assert f"saved 1 exchange in {path}" in take(one, capsys, f"/save {path}")
    other = chat()
    assert "1 exchange from" in take(other, capsys, f"/load {path}")
    assert (contents(other), other.conversation.system, other.values["top_k"]) == (["a", "b"], "sys", 7)
    (tmp_path / "foreign").write_text("precious")
    assert "error" in take(one, capsys, f"/save {tmp_path}/foreign")
    assert (tmp_path / "foreign").read_text() == "precious"
    assert "is missing" in take(one, capsys, "/save")


def test_load_says_what_it_changes(capsys: Said, tmp_path: Path) -> None:
    settings = {"top-k": "3", "temp": "0", "spec-ngram-simple-size-n": "7", "grammar": f'root ::= "{"a" * 99}"'}
    transcript.save(tmp_path / "t", Conversation("pirate", messages("a", "b")), settings)
    one = chat(system="teacher")
    lines = take(one, capsys, f"/load {tmp_path}/t").splitlines()
    assert "system message: teacher -> pirate" in lines
    (changed,) = (line for line in lines if line.startswith("settings: "))
    assert "top-k 40 -> 3" in changed
    assert "spec-ngram-simple-size-n 3 -> 7" in changed
    assert "grammar (none) -> root" in changed
    assert "temp" not in changed  # it was 0 already
    assert changed.endswith("the engine was loaded anew")
    assert not [line for line in take(one, capsys, f"/load {tmp_path}/t").splitlines() if "->" in line]


def test_load_leaves_what_was_given_on_the_command_line(capsys: Said, tmp_path: Path) -> None:
    transcript.save(tmp_path / "t", Conversation("pirate"), {"top-k": "3", "temp": "0.5", "seed": "9"})
    one = chat(system="teacher", typed=("temp", "seed", "system_file"), seed=9)
    said = take(one, capsys, f"/load {tmp_path}/t")
    assert "settings: top-k 40 -> 3\n" in said
    assert "as it is now: temp 0.0 (saved: 0.5)\n" in said  # the seed is the same
    assert "as it is now: the system message (saved: pirate)\n" in said
    assert (one.values["temp"], one.values["top_k"], one.conversation.system) == (0.0, 3, "teacher")
    take(one, capsys, "/set temp 0.7")  # what is given on the command line may be changed since
    assert "as it is now: temp 0.7 (saved: 0.5)\n" in take(one, capsys, f"/load {tmp_path}/t")


def test_a_saved_setting_reaches_no_file_and_no_model(capsys: Said, tmp_path: Path) -> None:
    path = tmp_path / "evening.json"
    one = chat()
    take(one, capsys, f"/save {path}")
    saved = json.loads(path.read_text())
    saved["settings"] = {"lora": "x", "log-file": "y", "temp": "hot", "top-k": "3"}
    path.write_text(json.dumps(saved))
    said = take(one, capsys, f"/load {path}")
    assert said.count("there is no setting") == 2
    assert "--temp hot is not a number" in said
    assert (one.values["top_k"], one.values["log_file"], loads(one).loads) == (3, None, [])


def test_export(capsys: Said, tmp_path: Path) -> None:
    one = chat()
    one.start(Conversation("sys", messages("ask", "answer")))
    take(one, capsys, f"/export {tmp_path}/a.md")
    take(one, capsys, f"/export {tmp_path}/a.JSON")
    assert "answer" in (tmp_path / "a.md").read_text()
    assert json.loads((tmp_path / "a.JSON").read_text())[-1]["content"] == "answer"
    assert "for llama.cpp's web UI" in take(one, capsys, f"/export {tmp_path}/a.jsonl")
    (back,) = read_conversations(tmp_path / "a.jsonl")
    assert [entry.content for entry in back.entries] == ["ask", "answer"]
    assert back.session.system == "sys"
    assert "exists" in take(one, capsys, f"/export {tmp_path}/a.md")
    assert "neither .md nor .json" in take(one, capsys, f"/export {tmp_path}/a.txt")
    assert "error" in take(one, capsys, f"/export {tmp_path}/no/such/folder.md")


def test_trace(capsys: Said, tmp_path: Path) -> None:
    one = chat(engine(FakeTarget(FakeVocab(40), seed=5, spread=9.0, n_ctx=512)), n_predict=40)
    assert "there is no answer to write of" in take(one, capsys, f"/trace {tmp_path}/a.jsonl")
    run(one.ask("what?"))
    told = take(one, capsys, f"/trace {tmp_path}/a.jsonl")
    steps = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert f"wrote {len(steps)} steps to {tmp_path}/a.jsonl; /trace on keeps the trees" in told
    assert sum(step["emitted"] for step in steps) == 40
    assert "with the trees" in take(one, capsys, "/trace on")
    run(one.ask("what?"))
    assert "/trace on" not in take(one, capsys, f"/trace {tmp_path}/b.jsonl")
    steps = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert all(bool(step["tree"]) is bool(step["draft_n"]) for step in steps)
    assert "without the trees" in take(one, capsys, "/trace off")
    assert "exists" in take(one, capsys, f"/trace {tmp_path}/b.jsonl")
    assert "the name of a file is missing" in take(one, capsys, "/trace")


def test_ctx_and_tokens(capsys: Said) -> None:
    one = chat(system="sys")
    assert "] 3/512 tokens, 0 exchanges" in take(one, capsys, "/ctx")
    assert take(one, capsys, "/tokens hello") == "5 tokens\n"
    assert take(one, capsys, "/tokens") == "0 tokens\n"


def test_the_gauge_and_the_number_speak_of_the_same_tokens(capsys: Said) -> None:
    one = chat(system="s" * 56)
    (file,) = one.attach([("file", "x" * 180)])
    said = take(one, capsys, "/ctx")
    gauge, rest = said.removeprefix("context [").split("] ")
    assert rest == f"{56 + file.tokens}/512 tokens (56 so far, {file.tokens} in attached files), 0 exchanges\n"
    assert gauge.count("#") == round(20 * (56 + file.tokens) / 512) > round(20 * 56 / 512)


# Settings


@pytest.mark.parametrize("name", ["temp", "--temp", "temperature", "TEMP"])
def test_set_takes_the_flags_names(capsys: Said, name: str) -> None:
    one = chat()
    assert take(one, capsys, f"/set {name} 0.5") == "temp = 0.5\n"
    assert one.values["temp"] == 0.5
    assert one.request(()).sampling.temperature == 0.5


def test_set_says_what_does_nothing_any_more(capsys: Said) -> None:
    one = chat()
    take(one, capsys, "/set top-k 7")
    assert take(one, capsys, "/set mirostat 2") == (
        "mirostat = 2\n--top-k does nothing: --mirostat draws without other samplers\n"
    )
    assert take(one, capsys, "/set temp 0.5") == "temp = 0.5\n"
    assert take(one, capsys, "/set mirostat 0") == "mirostat = 0\n"
    assert "0, 2" in take(one, capsys, "/set mirostat 1")
    take(one, capsys, r"/set dry-sequence-breaker '\n' 'a b'")
    assert take(one, capsys, "/set dry-sequence-breaker").startswith(r"dry-sequence-breaker = '\n' 'a b' (")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/set tmp 1", "Did you mean temp?"),
        ("/set temp hot", "is not a number"),
        ("/set top-p 1.5", "out of range. It takes 0 to 1"),
        ("/set top-k 1.5", "is not an integer"),
        ("/set ignore-eos maybe", "is not true or false"),
        ("/set stop 'a", "Close the quotes"),
        ("/set samplers bogus", "bogus"),
        ("/set spec-draft-n-min 9", "spec-draft-n-min is more"),
        ("/set model x", "Use /model FILE."),
        ("/set hf-token x", "there is no setting"),
        ("/set", "needs the name of a setting"),
        ("/spec bogus 1", "There are n-max, n-min, p-min"),
        ("/spec n-max", "not complete"),
        ("/think maybe", "is not possible"),
        ("/multiline maybe", "neither on nor off"),
        ("/edit x", "is not a positive number"),
        ("/edit 0", "is not a positive number"),
        ("/undo x", "x is not a positive number. For example /undo 2."),
        ("/undo 0", "is not a positive number"),
        ("/undo -1", "is not a positive number"),
    ],
)
def test_mistakes_change_nothing(capsys: Said, line: str, said: str) -> None:
    one = chat()
    before = dict(one.values)
    line_said = take(one, capsys, line)
    assert said in line_said
    assert len(line_said.splitlines()) == 1
    assert one.values == before
    assert loads(one).loads == []


def test_set_shows_and_takes_back(capsys: Said) -> None:
    one = chat(top_k=11)
    take(one, capsys, "/set top-k 5")
    assert take(one, capsys, "/set top-k").startswith("top-k = 5 (")
    take(one, capsys, "/set top-k default")
    assert one.values["top_k"] == 11


def test_set_many(capsys: Said) -> None:
    one = chat()
    take(one, capsys, "/set stop 'User: ' END")
    assert one.request(()).stop == ("User: ", "END")


def test_params_marks_what_differs(capsys: Said) -> None:
    said = take(chat(top_k=11), capsys, "/params").splitlines()
    assert "* top-k" in " ".join(line for line in said if " top-k " in line)
    assert next(line for line in said if " top-p " in line).startswith("  top-p")


def test_only_what_an_engine_is_made_of_loads_it_anew(capsys: Said) -> None:
    one = chat()
    take(one, capsys, "/set top-k 5")
    take(one, capsys, "/spec n-max 9")
    assert loads(one).loads == []
    assert "loaded anew" in take(one, capsys, "/set ctx-size 300")
    assert [values["ctx_size"] for values in loads(one).loads] == [300]


def test_what_is_set_while_an_engine_loads_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    one = chat()
    monkeypatch.setattr(loads(one), "load", lambda values: settings.apply(one, {"temp": 0.375}))
    settings.apply(one, {"ctx_size": 300})
    assert (one.values["ctx_size"], one.values["temp"]) == (300, 0.375)


def test_every_setting_can_be_shown_and_parsed_back() -> None:
    one = chat()
    for option in settings.settable(one.values):
        value = one.values[option.name]
        if value not in (None, ()):
            assert settings.parse(option, settings.shown(value)) == value


# Speculation, models


def test_spec_off_and_on(capsys: Said) -> None:
    one = chat()
    assert "off from the next turn on" in take(one, capsys, "/spec off")
    assert "speculation off" in take(one, capsys, "abc")
    assert "speculation is fixed: ngram-simple · n-max 3" in take(one, capsys, "/spec on")
    assert "speculation off" not in take(one, capsys, "abc")


def test_spec_shows_what_is_kept_while_it_is_off(capsys: Said) -> None:
    one = chat(spec="auto")
    take(one, capsys, "/spec n-max 5")
    take(one, capsys, "/spec off")
    assert "speculation is off; /spec on makes it auto: ngram-simple · n-max 5 · n-min 0" in take(one, capsys, "/spec")
    take(one, capsys, "/spec n-max default")
    assert "ngram-simple · n-max 16 · " in take(one, capsys, "/spec")


def test_spec_has_the_modes_of_its_flag(capsys: Said) -> None:
    one = chat(spec="off")
    assert "speculation is auto: ngram-simple · n-max 16" in take(one, capsys, "/spec on")
    assert "speculation is fixed" in take(one, capsys, "/spec fixed")
    assert one.request(()).spec.mode == "fixed"


def test_spec_settings_have_short_names(capsys: Said) -> None:
    one = chat()
    for line in ("/spec n-max 7", "/spec tree-width 2", "/spec nodes 9", "/spec p-min 0.25", "/spec accept ratio"):
        take(one, capsys, line)
    spec = one.request(()).spec
    assert (spec.depth, spec.width, spec.nodes, spec.p_min, spec.accept) == (7, 2, 9, 0.25, "ratio")
    take(one, capsys, "/spec spec-draft-n-max 4")
    assert one.request(()).spec.depth == 4


def test_spec_type_loads_what_is_not_there(capsys: Said) -> None:
    one = chat()
    assert "getting ready" not in take(one, capsys, "/spec type ngram-simple")
    assert one.request(()).spec.types == ("ngram-simple",)
    assert loads(one).loads == []
    refused = take(one, capsys, "/spec type draft-simple")
    assert "draft-simple needs a draft model. /draft FILE loads one; so does F8" in refused
    assert one.types == ("ngram-simple",)
    loads(one).fails = UsageError("none stands alone")
    refused = take(one, capsys, "/spec type ngram-simple,none")
    assert "getting ready: other drafters" in refused
    assert "none stands alone" in refused
    assert one.request(()).spec.mode != "off"
    take(one, capsys, "/spec type none")
    assert one.request(()).spec.mode == "off"


def test_another_model_keeps_the_conversation(capsys: Said, tmp_path: Path) -> None:
    (tmp_path / "b.gguf").touch()
    one = chat()
    one.start(Conversation("sys", messages("a", "b")))
    loads(one).next = engine(n_ctx=300)
    assert "context 300" in take(one, capsys, f"/model {tmp_path}/b.gguf")
    assert one.values["model"] == f"{tmp_path}/b.gguf"
    assert contents(one) == ["a", "b"]
    assert run(one.ask("c"))[0]


def test_a_model_that_does_not_load_changes_nothing(capsys: Said, tmp_path: Path) -> None:
    (tmp_path / "b.gguf").touch()
    one = chat()
    one.start(Conversation("sys", messages("a", "b")))
    loads(one).fails = ModelLoadError("damaged", hint="Download it again.")
    assert "damaged. Download it again." in take(one, capsys, f"/model {tmp_path}/b.gguf")
    assert one.values["model"] == "fake.gguf"
    assert contents(one) == ["a", "b"]


def test_draft_models_come_and_go(capsys: Said, tmp_path: Path) -> None:
    (tmp_path / "small.gguf").touch()
    one = chat(spec_type="ngram-simple")
    take(one, capsys, f"/draft {tmp_path}/small.gguf")
    (values,) = loads(one).loads
    assert (values["model_draft"], values["spec_type"]) == (f"{tmp_path}/small.gguf", "draft-simple,ngram-simple")
    take(one, capsys, "/draft off")
    assert (one.values["model_draft"], one.values["spec_type"]) == (None, "ngram-simple")


def test_a_setting_is_no_command_and_is_explained(capsys: Said) -> None:
    one = chat()
    assert "it is a setting. Use /set temp 0.2. A message" in take(one, capsys, "/temp 0.2")
    assert "Use /set predict VALUE." in take(one, capsys, "/n")
    assert take(one, capsys, "/help temp").startswith("temp is a setting, now 0.0; /set temp VALUE. ")
    assert take(one, capsys, "/help tokens").startswith("/tokens")


@pytest.mark.parametrize(
    ("typed", "guess"), [("frob", "/help lists"), ("stat", "/stats?"), ("undp", "/undo?"), ("modle", "/model?")]
)
def test_only_what_is_like_a_command_is_suggested(capsys: Said, typed: str, guess: str) -> None:
    assert guess in take(chat(), capsys, f"/{typed}")


def test_commands_that_take_nothing_refuse_more(capsys: Said) -> None:
    assert "/exit takes nothing after it. Write /exit alone." in take(chat(), capsys, "/exit now")


def test_the_keys_of_spec_are_named_and_work(capsys: Said) -> None:
    one = chat()
    said = take(one, capsys, "/help spec")
    state = take(one, capsys, "/spec")
    for key, value in zip(engine_commands.SPEC_KEYS, ("4", "1", "0.5", "9", "2", "ratio"), strict=True):
        assert key in said
        assert f" · {key} " in state
        assert take(one, capsys, f"/spec {key} {value}").startswith(f"{key} = {value}")
        assert key in [offer.text for offer in completions("/spec ", one)]
    of_a_drafter = ("ngram", "medusa", "head")  # settled when it is loaded
    own = [one for one in GENERATION_OPTIONS if one.group == SPEC and not one.is_file]
    shared = [one for one in own if not any(name in one.word for name in of_a_drafter)]
    assert len(engine_commands.SPEC_KEYS) == len(shared) - len(("spec", "spec-type"))


def test_the_seed_that_was_drawn_can_be_asked_for(capsys: Said) -> None:
    one = chat(seed=-1, temp=1.0)
    assert "seed = -1 (random) (" in take(one, capsys, "/set seed")
    take(one, capsys, "abc")
    assert one.seed is not None
    assert f" · seed {one.seed}\n" in take(one, capsys, "/stats")
    assert f"seed = -1 (random; the last answer used {one.seed}) (" in take(one, capsys, "/set seed")
    again = chat(seed=one.seed, temp=1.0)
    take(again, capsys, "abc")
    assert contents(again) == contents(one)


def test_a_question_that_brought_nothing_can_be_asked_again(capsys: Said) -> None:
    one = chat()
    events = one.ask("abc")
    next(events)
    one.stop()
    events.close()
    assert contents(one) == []
    take(one, capsys, "/regen")
    assert contents(one)[:1] == ["abc"]
    assert one.unanswered is None


def test_long_paths_are_shortened_and_whole_in_the_list(capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    one = chat()
    path = f"/a/{'long/' * 20}m.gguf"
    one.engine.info = replace(one.engine.info, target=path)  # type: ignore[misc]
    assert take(one, capsys, "/model").startswith("model m.gguf ·")
    assert f"  {path}\n" in take(one, capsys, "/params")
    monkeypatch.setenv("HOME", "/a/b")
    one.engine.info = replace(one.engine.info, target="/a/b/c/m.gguf")  # type: ignore[misc]
    assert take(one, capsys, "/model").startswith("model ~/c/m.gguf ·")


def test_what_is_often_set_is_offered_first() -> None:
    assert next(iter(completions("/set te", chat()))).text == "temp"


def test_stats(capsys: Said) -> None:
    one = chat(n_predict=40)
    said = take(one, capsys, "/stats")
    assert said.startswith("nothing was answered yet\ndrafters\n")
    assert "  ngram-simple    in use: no guess in the last answer" in said
    take(one, capsys, "abcabc")
    first = take(one, capsys, "/stats")
    assert "by source ngram-simple" in first
    assert "session" not in first
    take(one, capsys, "abcabc")
    said = take(one, capsys, "/stats")
    assert "session of 2 answers" in said
    assert "80 tok" in said
    one.engine.info = replace(one.engine.info, exact=Exact(4, 0.02, 0.008))  # type: ignore[misc]
    said = take(one, capsys, "/stats")
    assert "exact     rows are computed 4 at a time\n" in said
    assert "a step without guesses takes 2.50 times as long (20.0 for 8.0 ms)\n" in said
    assert max(map(len, said.splitlines())) <= 80


def test_think_tells_the_template(capsys: Said) -> None:
    one = chat(engine(template="{{ messages[-1].content }}{% if enable_thinking %}T{% endif %}"))
    take(one, capsys, "/think on")
    assert dict(one.request(()).template_kwargs) == {"enable_thinking": True}
    assert "thinking: on" in take(one, capsys, "/think")


# What goes wrong


def test_a_dead_engine_is_replaced(capsys: Said) -> None:
    one = chat()

    def die(request: object) -> object:
        raise EngineDied("it is gone", hint="Wait.")

    one.engine.submit = die  # type: ignore[method-assign, assignment]
    said = take(one, capsys, "abc")
    assert "it is gone" in said
    assert "a new engine is running" in said
    assert loads(one).revived == 1


def test_the_prompt_survives_any_handler(capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise OSError("the disk\nis full")

    monkeypatch.setattr(settings, "listed", fail)
    said = take(chat(), capsys, "/params")
    assert said == "localspec: error: that did not work: the disk is full\n"


@pytest.mark.parametrize("line", ["/read ~nobody-here/x", "/glob ~nobody-here/*", "/save ~nobody-here/x", "/read \0"])
def test_names_that_are_no_names_are_one_line(capsys: Said, line: str) -> None:
    said = take(chat(), capsys, line)
    assert said.startswith("localspec: error: ")
    assert len(said.splitlines()) == 1
    assert completions(line, chat()) == []


# Completion


@pytest.mark.parametrize(
    ("before", "offers"),
    [
        ("/re", ["read", "regen", "regenerate", "reasoning", "rename"]),
        ("/set tem", ["temp"]),
        ("/set ignore-eos o", ["on", "off"]),
        ("/set flash-attn a", ["auto"]),
        ("/spec o", ["on", "off"]),
        ("/spec type ngram-s", ["ngram-simple"]),
        ("/help unk", []),
        ("/help und", ["undo"]),
        ("//re", []),
        ("re", []),
        ("/bogus x", []),
    ],
)
def test_completion(before: str, offers: list[str]) -> None:
    found = completions(before, chat())
    assert sorted(one.text for one in found) == sorted(offers)
    assert all(before.endswith(one.text[: one.replaces]) for one in found)


def test_completion_of_files(tmp_path: Path) -> None:
    for name in ("one.txt", "one two.txt", ".hidden"):
        (tmp_path / name).touch()
    (tmp_path / "only").mkdir()
    found = completions(f"/read {tmp_path}/on", chat())
    assert [one.text for one in found] == ["one two.txt", "one.txt", "only/"]
    assert {one.text for one in completions(f"/read {tmp_path}/", chat())} == {"one.txt", "one two.txt", "only/"}
    assert completions(f"/read {tmp_path}/no/such", chat()) == []


def test_settings_of_a_file_are_taken_together(capsys: Said, tmp_path: Path) -> None:
    settings = {"spec-draft-n-min": "5", "spec-draft-n-max": "8", "spec-ngram-simple-size-n": "7", "temp": "nan"}
    transcript.save(tmp_path / "t", Conversation(), settings)
    one = chat()
    repl(one).take(f"/load {tmp_path}/t")
    assert (one.values["draft_n_min"], one.values["draft_n_max"], len(loads(one).loads)) == (5, 8, 1)
    assert "setting temp: --temp nan is out of range" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["/model", "/draft"])
def test_models_by_name(capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "models--user--repo" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (folder / "a-Q4_0.gguf").touch()
    one = chat()
    for name in ("user/repo:Q4_0", "user/other:Q4_0", "here/a.gguf", "demo"):
        repl(one).take(f"{command} {name}")
    key = "model" if command == "/model" else "model_draft"
    cached, path, demo = (loaded[key] for loaded in loads(one).loads)
    assert (cached, path) == (str(folder / "a-Q4_0.gguf"), "here/a.gguf")
    assert demo.endswith(".gguf")
    assert "user/other:Q4_0 is not in the cache" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["/edit " + "9" * 5000, "/read ~nobody-here/x", "/save ~nobody-here/x/y"])
def test_odd_arguments_are_no_faults_of_ours(capsys: Said, line: str) -> None:
    one = chat()
    run(one.ask("abc"))
    repl(one).take(line)
    said = capsys.readouterr().err
    assert "error" in said
    assert "that did not work" not in said


def test_a_prompt_without_keys_for_steps_says_who_has_them(capsys: Said) -> None:
    one = chat()
    assert "The full screen has: localspec chat without --no-tui." in take(one, capsys, "/step on")
    assert not one.running.paced
