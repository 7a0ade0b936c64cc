"""Which file of a repository is meant, and where the cache is."""

from __future__ import annotations

from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.hub import HubRef, cache_folder
from localspec.hub.names import Split, choose, models, parts_of, quant_of, tag_for
from localspec.hub.ref import is_safe
from localspec.hub.remote import endpoint
from localspec.hub.sizes import human

SET = tuple(f"Q6_K/big-Q6_K-{index:05}-of-00003.gguf" for index in (1, 2, 3))
NAMES = (
    "README.md",
    "mmproj-model-Q4_K_M.gguf",
    "model-BF16.gguf",
    "model-F16.gguf",
    "model-IQ4_XS.gguf",
    "model-Q8_0.gguf",
    "model-Q4_K_M.gguf",
    "mtp-model-Q5_K_M.gguf",
    "model-UD-Q3_K_XL.gguf",
    *reversed(SET),
)


@pytest.mark.parametrize(
    ("quant", "name"),
    [
        (None, "model-Q4_K_M.gguf"),
        ("q8_0", "model-Q8_0.gguf"),
        ("F16", "model-F16.gguf"),  # not BF16
        ("bf16", "model-BF16.gguf"),
        ("UD-Q3_K_XL", "model-UD-Q3_K_XL.gguf"),
        ("Q3_K_XL", "model-UD-Q3_K_XL.gguf"),
        ("Q6_K", SET[0]),
        ("big-Q6_K", SET[0]),
        ("Q5_K_M", None),  # only a head for another file
        ("Q4_K", None),
        ("Q8.0", None),  # a dot is a dot
    ],
)
def test_the_file_of_a_quantisation(quant: str | None, name: str | None) -> None:
    assert choose(NAMES, quant) == name


def test_without_a_tag() -> None:
    assert choose(("a-Q5_0.gguf", "a-q8_0.gguf"), None) == "a-q8_0.gguf"
    assert choose(("a-Q5_0.gguf", "a-Q6_K.gguf"), None) == "a-Q5_0.gguf"
    assert choose(("a.safetensors",), None) is None
    assert choose(("mmproj-a.gguf",), None) is None


def test_models_are_counted_once() -> None:
    assert models(NAMES) == (*NAMES[2:7], NAMES[8], SET[0])


def test_every_part_leads_to_all_parts() -> None:
    assert parts_of(SET[1]) == SET
    assert parts_of("a.gguf") == ("a.gguf",)
    assert Split.of("a-00004-of-00003.gguf") is None
    assert Split.of("a-00000-of-00003.gguf") is None


@pytest.mark.parametrize(
    ("name", "quant"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
        ("qwen2-7b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        (SET[2], "Q6_K"),
        ("Llama-3-8B.gguf", None),
        ("model.gguf", None),
    ],
)
def test_quantisation_in_a_name(name: str, quant: str | None) -> None:
    assert quant_of(name) == quant


def test_tags_tell_files_of_one_quantisation_apart() -> None:
    names = ("small-Q8_0.gguf", "large-Q8_0.gguf", "plain.gguf")
    tags = [tag_for(name, names) for name in names]
    assert tags == ["Q8_0", "large-Q8_0", "plain"]
    assert [choose(names, tag) for tag in tags] == list(names)


@pytest.mark.parametrize(
    ("text", "repo", "quant"),
    [
        ("user/model", "user/model", None),
        ("ggml-org/gemma-3-1b-it-GGUF:Q4_K_M", "ggml-org/gemma-3-1b-it-GGUF", "Q4_K_M"),
        (" user/m.o_d-el:x ", "user/m.o_d-el", "x"),
    ],
)
def test_references(text: str, repo: str, quant: str | None) -> None:
    assert HubRef.parse(text) == HubRef(repo, quant)
    assert str(HubRef.parse(text)) == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "model",
        "a/b/c",
        "a/",
        "/b",
        "a//b",
        "../b",
        "a/..",
        "a/b:",
        "a/b:q:r",
        "a/b c",
        "ü/b",
        "https://x/a/b",
        "a/b--c",
    ],
)
def test_references_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="-hf ") as caught:
        HubRef.parse(text)
    assert "user/repo" in caught.value.hint


@pytest.mark.parametrize("name", ["../up.gguf", "a/../../b", "/etc/x.gguf", "a//b", "a\0b", ""])
def test_files_that_would_leave_their_folder(name: str) -> None:
    assert not is_safe(name)
    with pytest.raises(UsageError):
        HubRef.parse("user/model", name)


VARIABLES = ("LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")
FOLDERS = ("/0", "/1", "/2", "/3/hub", "/4/huggingface/hub")


@pytest.mark.parametrize("first", range(6))
def test_the_cache_is_where_llama_cpp_looks(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    environ = {name: f"/{i}" for i, name in enumerate(VARIABLES) if i >= first}
    expected = (*FOLDERS, "/home/somebody/.cache/huggingface/hub")[first]
    assert cache_folder(environ) == Path(expected)


def test_an_empty_variable_is_none_and_a_tilde_is_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_folder({"LLAMA_CACHE": "", "HF_HOME": "~/hf"}) == Path("/home/somebody/hf/hub")


def test_endpoint() -> None:
    assert endpoint({}) == "https://huggingface.co"
    assert endpoint({"HF_ENDPOINT": "https://a/", "MODEL_ENDPOINT": ""}) == "https://a"
    assert endpoint({"HF_ENDPOINT": "https://a", "MODEL_ENDPOINT": "https://b"}) == "https://b"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (98_362_432, "98 MB"),
        (999_600, "1.0 MB"),
        (4.92e9, "4.9 GB"),
        (2e15, "2000 TB"),
    ],
)
def test_sizes(count: float, text: str) -> None:
    assert human(count) == text
