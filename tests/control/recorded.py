"""Recorded texts (``scripts/record_traces.py``): what a real model answered, and what drafters guess at it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from localspec.control import Price
from localspec.drafters.base import Ask, TextDrafter
from localspec.drafters.ngram import NgramSimple
from localspec.drafters.suffix import Suffix
from localspec.sampling import SamplerState
from localspec.spec.tree import TokenTree
from localspec.types import SamplingParams

_NO_TOKEN = -1
_STATE = SamplerState.start(SamplingParams(temperature=0), seed=1, prompt=[1], end_tokens=(), n_ctx=64)


@dataclass(frozen=True)
class Trace:
    """A text: prompt, answer, and at each token of the answer whether the draft model's likeliest guess was right, and
    how likely it called it."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    right: tuple[bool, ...]
    scores: tuple[float, ...]

    def __add__(self, other: Trace) -> Trace:
        return Trace(
            self.prompt + other.prompt, self.ids + other.ids, self.right + other.right, self.scores + other.scores
        )

    @property
    def text(self) -> tuple[int, ...]:
        """The token that is pending at first, and the answer."""
        return self.prompt[-1:] + self.ids

    def part(self, start: int, end: int) -> Trace:
        """Some tokens of the answer, without the prompt."""
        return Trace((), self.ids[start:end], self.right[start:end], self.scores[start:end])


@cache
def traces() -> dict[str, Trace]:
    found = json.loads((Path(__file__).parent / "traces.json").read_text(encoding="utf-8"))
    kinds = {
        kind: Trace(
            tuple(one["prompt"]), tuple(one["ids"]), tuple(hit == "1" for hit in one["right"]), tuple(one["scores"])
        )
        for kind, one in found.items()
    }
    return kinds | {"switching": _switching(kinds["copy"], kinds["prose"]), "again": _again(kinds["prose"])}


def _switching(easy: Trace, hard: Trace, span: int = 112) -> Trace:
    """Now the one, now the other, each going on where it was."""
    text = Trace(easy.prompt + hard.prompt, (), (), ())
    for start in range(0, len(easy.ids), span):
        text = text + easy.part(start, start + span) + hard.part(start, start + span)
    return text


def _again(once: Trace, n: int = 300) -> Trace:
    """An answer that was asked for once more, and is the same but for two places."""
    head = Trace(once.prompt, (), (), ()) + once.part(0, n)
    return head + once.part(0, n // 2) + once.part(n, n + 8) + once.part(n // 2, n) + once.part(n, n + 100)


class ByText:
    """A drafter that reads the text alone: the real one."""

    pass_s = 0.0

    def __init__(self, trace: Trace, drafter: Suffix | NgramSimple, ask_s: float) -> None:
        self._text = trace.prompt + trace.ids
        self._start = len(trace.prompt)
        self._drafter: TextDrafter = drafter
        self._propose = drafter.propose
        self.ask_s = ask_s
        drafter.open(0)

    def propose(self, name: str, at: int, price: Price) -> TokenTree:
        tokens = self._text[: self._start + at]
        return self._propose([Ask(0, tokens, price, _STATE)])[0].tree


class ByModel:
    """A draft model, as it was recorded; one that is ``always_wrong`` is as sure of itself."""

    ask_s = 0.0

    def __init__(self, trace: Trace, pass_s: float, *, always_wrong: bool = False) -> None:
        self._trace = trace
        self._wrong = always_wrong
        self.pass_s = pass_s

    def propose(self, name: str, at: int, price: Price) -> TokenTree:
        trace = self._trace
        tokens, scores, reach = [trace.text[at]], [1.0], 1.0
        right = True
        for i in range(at, min(at + price.limits.depth, len(trace.ids))):
            if len(tokens) > price.limits.nodes or (i > at and not price.pass_pays(reach)):
                break
            reach *= price.believed(trace.scores[i])
            if not price.pays(reach):
                break
            right = right and trace.right[i] and not self._wrong
            tokens.append(trace.ids[i] if right else _NO_TOKEN)
            scores.append(trace.scores[i])
        return TokenTree.chain(tokens, scores[1:], name)
