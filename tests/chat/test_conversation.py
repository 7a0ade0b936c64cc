from __future__ import annotations

import pytest

from localspec.chat.conversation import Conversation, Turn
from localspec.types import Message

TALK = (Message("user", "a"), Message("assistant", "b"), Message("user", "c"), Message("assistant", "d"))


def test_a_prompt_begins_with_the_system_message() -> None:
    conversation = Conversation("S", TALK)
    assert conversation.messages == TALK
    assert conversation.prompt() == (Message("system", "S"), *TALK)
    conversation.system = None
    assert conversation.prompt() == TALK
    conversation.system = ""
    assert conversation.prompt()[0] == Message("system", "")


def test_thinking_is_kept_and_not_sent() -> None:
    conversation = Conversation()
    conversation.add("user", "why?")
    conversation.add("assistant", "so", thinking="hm")
    assert conversation.turns == (Turn(Message("user", "why?")), Turn(Message("assistant", "so"), "hm"))
    assert conversation.prompt() == (Message("user", "why?"), Message("assistant", "so"))


def test_undo_takes_back_the_last_question_and_its_answer() -> None:
    conversation = Conversation("S", TALK)
    assert conversation.undo() == TALK[2:]
    assert conversation.messages == TALK[:2]
    conversation.add("user", "unanswered")
    assert conversation.undo() == (Message("user", "unanswered"),)
    assert conversation.undo() == TALK[:2]
    assert conversation.undo() == ()
    assert conversation.system == "S"


def test_undo_leaves_an_opening_answer_alone() -> None:
    conversation = Conversation(messages=[Message("assistant", "Hello, what can I do?")])
    assert conversation.undo() == ()
    assert len(conversation.messages) == 1


def test_an_answer_can_be_dropped_to_be_given_again() -> None:
    conversation = Conversation(messages=TALK)
    assert conversation.last_answer() == "d"
    assert conversation.drop_answer() == TALK[3]
    assert conversation.drop_answer() is None
    assert conversation.last_question() == "c"
    assert conversation.last_answer() == "b"


def test_an_empty_conversation() -> None:
    conversation = Conversation("S", TALK)
    conversation.clear()
    assert conversation.prompt() == (Message("system", "S"),)
    assert conversation.last_question() is None
    assert conversation.last_answer() is None
    assert conversation.drop_answer() is None


def test_other_roles_have_no_place() -> None:
    with pytest.raises(ValueError, match="system"):
        Conversation().add("system", "S")
