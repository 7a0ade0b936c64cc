"""What a chat template decides in the engine: the prompt, where answers end, and what of them is shown."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from localspec.backends.base import Row
from localspec.backends.fake import FakeTarget
from localspec.chat import ChatTemplate, builtin_template, default_template
from localspec.engine import Engine
from localspec.errors import UsageError
from localspec.text.thinking import ThinkingSplitter
from localspec.types import Finished, GenerationRequest, Message, SamplingParams, Tokens
from tests.chat.fakes import FIRST, ByteVocab

WISH = GenerationRequest(messages=(Message("user", "hello"),), sampling=SamplingParams(temperature=0.0))


class Reciter(FakeTarget):
    """Says the same whatever it is asked."""

    def __init__(self, vocab: ByteVocab, answer: Sequence[int], prompt: int) -> None:
        super().__init__(vocab, n_ctx=512)  # type: ignore[arg-type]
        self._answer = [*answer, min(vocab.end_tokens, default=0)]
        self._prompt = prompt

    def scores(self, text: Sequence[int]) -> Row:
        row: Row = np.zeros(self.caps.n_vocab, np.float32)
        row[self._answer[len(text) - self._prompt]] = 9.0
        return row


def recite(
    template: ChatTemplate, vocab: ByteVocab, answer: Sequence[int], wish: GenerationRequest = WISH
) -> tuple[str, Finished]:
    """The text of an answer of these tokens, and how it ended."""
    prompt = Engine(Reciter(vocab, [], 0), template=template).encode(wish)
    with Engine(Reciter(vocab, answer, len(prompt)), template=template) as engine:
        events = list(engine.submit(wish))
    last = events[-1]
    assert isinstance(last, Finished)
    tokens = [event for event in events if isinstance(event, Tokens)]
    pieces = b"".join(info.piece for event in tokens for info in event.tokens)
    text = "".join(event.text for event in tokens)
    assert pieces.decode().startswith(text)
    return text, last


def test_variables_reach_the_template_and_no_control_token_comes_of_them() -> None:
    template = ChatTemplate("{{ messages[0].content }}{{ mode }}{{ more.x[0] }}", "t")
    wish = replace(WISH, template_kwargs=(("mode", "<s>"), ("more", {"x": [7]})))
    engine = Engine(Reciter(ByteVocab(), [], 0), template=template)
    assert engine.encode(pickle.loads(pickle.dumps(wish))) == list(b"hello<s>7")


def test_names_of_our_own_parameters_are_variables_like_others() -> None:
    template = ChatTemplate("{{ bos }}{{ vocab }}{{ template }}{{ self }}", "t")
    wish = replace(WISH, template_kwargs=tuple((name, name[0]) for name in ("bos", "vocab", "template")))
    assert Engine(Reciter(ByteVocab(), [], 0), template=template).encode(wish)[:3] == list(b"bvt")


def test_a_prompt_of_any_length_can_be_counted_and_not_asked() -> None:
    engine = Engine(Reciter(ByteVocab(), [], 0), template=default_template())
    wish = replace(WISH, messages=(Message("user", "a" * 1000),))
    assert len(engine.encode(wish)) > 1000
    with pytest.raises(UsageError, match=r"the prompt has 10\d\d tokens, the context holds 512"):
        engine.submit(wish)


def test_a_model_without_the_token_for_it_still_ends_its_turn() -> None:
    plain = ByteVocab(controls=("</s>",), end_tokens=frozenset({FIRST}))
    text, last = recite(default_template(), plain, b"Hi<|im_end|>\n<|im_start|>user\nand so on")
    assert (text, last.stop, last.reason) == ("Hi", "<|im_end|>", "stop")


def test_a_turn_ends_at_its_token_where_the_file_does_not_call_it_one() -> None:
    vocab = ByteVocab(end_tokens=frozenset({FIRST + 3}))
    text, last = recite(default_template(), vocab, [*b"Hi", vocab.id("<|im_end|>"), *b"more"])
    assert (text, last.stop, bytes(last.ids)) == ("Hi", "<|im_end|>", b"Hi")


def test_writing_about_the_mark_ends_nothing_where_it_is_a_token() -> None:
    text, last = recite(default_template(), ByteVocab(), b"ChatML writes <|im_end|> there")
    assert (text, last.stop) == ("ChatML writes <|im_end|> there", None)


def test_only_chats_end_so() -> None:
    plain = ByteVocab(controls=("</s>",), end_tokens=frozenset({FIRST}))
    wish = GenerationRequest(prompt="hello", sampling=WISH.sampling)
    assert recite(default_template(), plain, b"Hi<|im_end|>", wish)[0] == "Hi<|im_end|>"


def test_tokens_that_open_and_close_thinking_are_spelt_out() -> None:
    vocab = ByteVocab(controls=("<s>", "</s>", "[THINK]", "[/THINK]", "[OTHER]"), end_tokens=frozenset({FIRST + 1}))
    answer = [vocab.id("[THINK]"), *b"hm", vocab.id("[/THINK]"), *b"Hi", vocab.id("[OTHER]")]
    source = builtin_template("mistral")
    assert source is not None
    text, last = recite(ChatTemplate(source + "{# [THINK] #}", "t"), vocab, answer)
    assert text == "[THINK]hm[/THINK]Hi"
    assert ThinkingSplitter().push(text) == [("thinking", "hm"), ("answer", "Hi")]
    assert list(last.ids) == answer
    assert recite(ChatTemplate(source, "t"), vocab, answer)[0] == "hmHi"


def test_channels_are_spelt_out_and_none_of_them_ends_the_answer() -> None:
    names = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>")
    vocab = ByteVocab(controls=names, end_tokens=frozenset({FIRST + 4}))
    source = """{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}\
<|message|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}\
{# <|channel|>analysis<|message|> #}"""
    said = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi"
    text, last = recite(ChatTemplate(source, "t"), vocab, vocab.tokenize(said, special=True))
    assert (text, last.stop) == (said, None)
    splitter = ThinkingSplitter()
    assert splitter.push(text) + splitter.finish() == [("thinking", "hm"), ("answer", "Hi")]


def test_an_answer_is_gone_on_with() -> None:
    engine = Engine(Reciter(ByteVocab(), [], 0), template=default_template())
    asked = engine.encode(WISH)
    messages = (Message("user", "hello"), Message("assistant", "<|im_end|> is a"))
    assert engine.encode(replace(WISH, messages=messages)) == [*asked, *b"<|im_end|> is a"]
    assert engine.encode(replace(WISH, messages=(*messages[:1], Message("assistant", "")))) == asked


def test_front_ends_learn_the_template() -> None:
    assert Engine(Reciter(ByteVocab(), [], 0), template=default_template()).info.chat_template
    assert Engine(Reciter(ByteVocab(), [], 0)).info.chat_template is None


@pytest.mark.parametrize("content", ["", " \n"])
def test_an_empty_turn_is_a_turn_like_any_other(content: str) -> None:
    engine = Engine(Reciter(ByteVocab(), [], 0), template=default_template())
    wish = replace(WISH, messages=(Message("user", content),))
    around = engine.encode(replace(WISH, messages=(Message("user", ""),)))
    assert [token for token in engine.encode(wish) if token >= FIRST] == [token for token in around if token >= FIRST]


def test_a_template_that_makes_nothing_of_it_is_refused_like_an_empty_prompt() -> None:
    engine = Engine(Reciter(ByteVocab(), [], 0), template=ChatTemplate("{{ messages[0].content }}", "t"))
    wish = replace(WISH, messages=(Message("user", ""),))
    for ask in (engine.encode, engine.submit):
        with pytest.raises(UsageError, match="the prompt is empty"):
            ask(wish)
    assert engine.encode(WISH) == list(b"hello")
