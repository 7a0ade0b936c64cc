from __future__ import annotations

import pytest

from localspec.chat import ChatTemplate, builtin_template
from localspec.chat.builtin import NAMES
from localspec.types import Message

TALK = [Message("user", " Hi "), Message("assistant", "Yo"), Message("user", "Bye")]
SYSTEM = Message("system", "Be brief.")

TEXTS = {
    "alpaca": (
        "<s>Be brief.\n\n### Instruction:\nHi\n\n### Response:\nYo</s>\n\n### Instruction:\nBye\n\n### Response:\n"
    ),
    "chatml": (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n"
        "<|im_start|>assistant\nYo<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    ),
    "gemma": (
        "<s><start_of_turn>user\nBe brief.\n\n Hi<end_of_turn>\n<start_of_turn>model\nYo<end_of_turn>\n"
        "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    ),
    "llama2": "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Yo </s><s>[INST] Bye [/INST]",
    "llama3": (
        "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nYo<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "mistral": "<s>[INST] Be brief.\n\n Hi[/INST] Yo</s>[INST] Bye[/INST]",
    "mistral-v1": "<s> [INST] Be brief.\n\n Hi [/INST] Yo</s> [INST] Bye [/INST]",
    "mistral-v3": "<s>[INST] Be brief.\n\n Hi[/INST] Yo</s>[INST] Bye[/INST]",
    "mistral-v7": "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Hi[/INST]Yo</s>[INST]Bye[/INST]",
    "phi3": (
        "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nYo<|end|>\n"
        "<|user|>\nBye<|end|>\n<|assistant|>\n"
    ),
    "phi4": (
        "<|im_start|>system<|im_sep|>Be brief.<|im_end|><|im_start|>user<|im_sep|> Hi <|im_end|>"
        "<|im_start|>assistant<|im_sep|>Yo<|im_end|><|im_start|>user<|im_sep|>Bye<|im_end|>"
        "<|im_start|>assistant<|im_sep|>"
    ),
    "vicuna": "<s>Be brief. USER: Hi ASSISTANT: Yo</s>USER: Bye ASSISTANT:",
    "zephyr": (
        "<|system|>\nBe brief.</s>\n<|user|>\n Hi </s>\n<|assistant|>\nYo</s>\n<|user|>\nBye</s>\n<|assistant|>\n"
    ),
}
ENDS = {
    "chatml": "<|im_end|>",
    "gemma": "<end_of_turn>",
    "llama3": "<|eot_id|>",
    "phi3": "<|end|>",
    "phi4": "<|im_end|>",
}


def template(name: str) -> ChatTemplate:
    source = builtin_template(name)
    assert source is not None
    return ChatTemplate(source, name)


@pytest.mark.parametrize("name", NAMES)
def test_the_formats(name: str) -> None:
    assert template(name).render([SYSTEM, *TALK], bos="<s>", eos="</s>").text == TEXTS[name]


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_ends_with_a_mark(name: str) -> None:
    assert template(name).turn_end(bos="<s>", eos="</s>") == ENDS.get(name, "</s>")


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_can_be_gone_on_with(name: str) -> None:
    text = template(name).render([SYSTEM, *TALK, Message("assistant", "See you ")], bos="<s>", eos="</s>").text
    start = TEXTS[name]
    space = "" if name in ("mistral-v7",) or start.endswith(("\n", "|>")) else " "
    assert text == f"{start}{space}See you "


@pytest.mark.parametrize("name", NAMES)
def test_without_a_system_message_there_is_no_trace_of_one(name: str) -> None:
    rendered = template(name).render(TALK, bos="<s>", eos="</s>")
    assert rendered.repairs == ()
    assert not any(word in rendered.text for word in ("SYS", "system", "brief"))


def test_unknown_names() -> None:
    assert builtin_template("nothing") is None
