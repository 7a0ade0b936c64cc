"""The texts that a user asks for, as a source: what a target's own tokenizer and template make of them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.backends.llamacpp import Native
from localspec.backends.llamacpp.model import load_vocabulary
from localspec.backends.llamacpp.vocab import LlamaVocab
from localspec.chat import ChatTemplate, default_template, encode_chat
from localspec.drafters.corpus import corpus_files, read_text
from localspec.train.frame import find_frame
from localspec.train.sources import Corpus, Questions, SelfPlay, Source, read_log
from localspec.types import Message

_CORPUS, _MOST_BYTES = "--corpus", 2**28


@dataclass(frozen=True, slots=True)
class Wish:
    """At most one of them; nothing: the target writes by itself."""

    questions: Sequence[Sequence[Message]] = ()
    corpus: Path | None = None
    log: Path | None = None


def source_of(wish: Wish, target: Path) -> Source:
    """Where the texts for ``target`` come from.

    Raises:
        LocalspecError: files that cannot be read, or a template that says nothing of turns.
    """
    if wish.log is not None:
        return read_log(wish.log)
    vocab, template = read_vocabulary(target)
    if wish.corpus is not None:
        files = corpus_files(wish.corpus, _CORPUS, _MOST_BYTES)
        opening = [] if vocab.bos is None else [vocab.bos]
        return Corpus.of([opening + vocab.tokenize(read_text(file, _CORPUS)) for file in files])
    if wish.questions:
        format_ = default_template() if template is None else ChatTemplate(template, target.name)
        return Questions([encode_chat(format_, one, vocab) for one in wish.questions], vocab.end_tokens)
    return SelfPlay.of(find_frame(template, vocab), vocab)


def read_vocabulary(path: Path) -> tuple[LlamaVocab, str | None]:
    """The vocabulary and the chat template of a file, without its weights. They stay in memory to the end."""
    native = Native()
    handle = load_vocabulary(native, path)
    template: bytes | None = native.lib.llama_model_chat_template(handle, ctypes.c_char_p(None))
    vocab = LlamaVocab(native.lib, native.lib.llama_model_get_vocab(handle))
    return vocab, template.decode("utf-8", "replace") if template else None
