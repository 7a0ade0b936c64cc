"""--print-config can be read back."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from localspec.options import COMMANDS, Settings, settle
from localspec.options.origin import DEFAULT
from localspec.options.parse import parse
from localspec.options.printed import as_toml
from tests.options.sources import Sources

COMMAND = COMMANDS["complete"]
ARGUMENTS = (
    *("--temp", "0.125", "-r", 'a"b\\\n', "-r", "é\x7f\x01", "-ngl", "7", "--no-mmap", "-fa", "on", "-l", "15-inf"),
    *("-m", "a b.gguf", "--json", "-ot", "a=CPU,b=CPU", "-ts", "3,1", "--samplers", "top_k;temperature"),
)


def test_round_trip(sources: Sources) -> None:
    first = sources.settle(ARGUMENTS, {"LLAMA_ARG_TOP_K": "7"})
    text = as_toml(COMMAND, first)
    sources.user.write_text(text, encoding="utf-8")
    again = sources.settle()
    assert again.values == first.values
    assert "temp = 0.125" in text


def test_every_value_has_its_origin(sources: Sources) -> None:
    sources.user.write_text('top-p = 0.5\nstop = ["x"]\n[profile."a b"]\nmin-p = 0.25')
    got = sources.settle(["--temp", "1", "--profile", "a b"], {"LLAMA_ARG_TOP_K": "7"})
    lines = as_toml(COMMAND, got).splitlines()
    origins = {line.split(" =")[0].removeprefix("# "): line.rsplit("  # ", 1)[1] for line in lines if "  # " in line}
    assert origins["temp"] == "cli"
    assert origins["top-k"] == "env LLAMA_ARG_TOP_K"
    assert origins["top-p"] == origins["stop"] == f"file {sources.user}"
    assert origins["min-p"] == f"file {sources.user} [profile.a b]"
    assert origins["model"] == origins["seed"] == "default"
    assert origins.keys() == {option.word for option in COMMAND.options if option.key}


def test_secrets_are_not_shown(sources: Sources) -> None:
    text = as_toml(COMMAND, sources.settle(env={"HF_TOKEN": "hf_abc"}))
    assert "hf_abc" not in text
    (line,) = [line for line in text.splitlines() if "hf-token" in line]
    assert line.startswith("# hf-token = (not shown)")
    assert line.endswith("# env HF_TOKEN")


def test_bytes_that_are_no_text_become_a_comment(sources: Sources) -> None:
    text = as_toml(COMMAND, sources.settle(["-m", "a\udcff.gguf", "--lora", "b\udcff"]))
    text.encode()
    assert {"model", "lora"}.isdisjoint(tomllib.loads(text))


@given(st.text(st.characters(exclude_categories=["Cs"])), st.floats(0, 1e300), st.lists(st.text("a\"'\\\n\t\x7f#é")))
def test_any_text_and_number_comes_back(text: str, number: float, stops: list[str]) -> None:
    defaults = settle(COMMAND, parse([], COMMAND), {"LOCALSPEC_CONFIG": "/dev/null"})
    values = {**defaults.values, "system": text, "temp": number, "stop": tuple(stops)}
    printed = as_toml(COMMAND, Settings(values, dict.fromkeys(values, DEFAULT)))
    table = tomllib.loads(printed)
    assert (table["system-prompt"], table["temp"], tuple(table.get("stop", ()))) == (text, number, tuple(stops))
