"""What a model's own chat template puts around questions and answers, in tokens."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.chat import ChatTemplate
from localspec.errors import ModelError
from localspec.types import Message
from localspec.vocab import Vocab

#: What no template changes: one plain word.
_PROBE = "lookout"


@dataclass(frozen=True, slots=True)
class Frame:
    """A conversation's scaffolding: what opens it, and what is between a question and an answer.

    ``opening`` reaches to the first question, ``answer`` from the end of a question to the answer, ``question`` from
    the end of an answer to the next question. The tokens ``ends`` end a question and an answer; the scaffolding goes on
    behind them.
    """

    opening: tuple[int, ...]
    question: tuple[int, ...]
    answer: tuple[int, ...]
    ends: tuple[int, int]


def find_frame(source: str | None, vocab: Vocab) -> Frame:
    """The frame of a template, as it is without a system message of one's own. Without a template, texts begin with
    what opens a text, and go on to their end.

    Raises:
        ModelError: turns do not end with a token that a model could draw.
    """
    if source is None:
        return _bare(vocab)
    turns = [Message("user", _PROBE), Message("assistant", _PROBE), Message("user", _PROBE)]
    rendered = ChatTemplate(source, "the model").render(turns, bos=vocab.bos_text, eos=vocab.eos_text)
    pieces = [tuple(vocab.tokenize(piece, special=True)) for piece in rendered.text.split(_PROBE)]
    if len(pieces) != 4 or pieces[1] != pieces[3] or not all(_ends(piece, vocab) for piece in pieces[1:]):
        raise ModelError(
            "the chat template gives no sign where a turn ends, so the model cannot write both sides of a conversation",
            hint="Give questions with --prompts, or texts with --corpus.",
        )
    opening, answer, question, _ = pieces
    if vocab.bos is not None and opening[:1] != (vocab.bos,):
        opening = (vocab.bos, *opening)
    return Frame(opening, question[1:], answer[1:], (answer[0], question[0]))


def _bare(vocab: Vocab) -> Frame:
    opening = () if vocab.bos is None else (vocab.bos,)
    end = min(vocab.end_tokens, default=-1)
    return Frame(opening or (max(end, 0),), (), (), (end, end))


def _ends(piece: tuple[int, ...], vocab: Vocab) -> bool:
    return bool(piece) and (piece[0] in vocab.end_tokens or piece[0] in vocab.control_tokens)
