#!/usr/bin/env python3
"""Records what the controller's tests replay: ``scripts/record_traces.py TARGET DRAFT [-o FILE]``.

For each kind of text the target answers a prompt, and the draft model reads the answer along: at every token it is
noted whether its likeliest guess was right, and how likely it called it. That is all that a chain of guesses needs: it
holds as long as every guess on it is right. N-grams need the text alone.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from localspec import (
    EngineOptions,
    Finished,
    GenerationRequest,
    Message,
    ModelOptions,
    SamplingParams,
    SpecParams,
    load,
)
from localspec.backends.base import Target, Work
from localspec.spec.tree import TokenTree

LETTER = """Dear tenants,
the lift will be out of order from the third to the seventh of May, since its cable is being renewed. Those who cannot
climb stairs please tell the caretaker in time: two helpers will carry shopping and prams between eight and ten in the
morning and between four and six in the afternoon. The bicycle cellar can be reached from the yard during these days.
Parcels are kept in the office on the ground floor. We are sorry for the trouble and thank you for your patience.
The house committee: Ada Brandt, Jonas Keller, Mira Novak."""

CODE = """class Account:
    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError("amount must be positive")
        self.balance += amount
        return self.balance"""

#: Kind of text → prompt, temperature.
PROMPTS = {
    "prose": ("Tell a long story about a lighthouse keeper who finds a bottle with a map in it.", 0.8),
    "code": (f"Add a method withdraw and a subclass SavingsAccount with interest to this class:\n\n{CODE}", 0.4),
    "copy": (f"Repeat this letter word for word, but write June instead of May:\n\n{LETTER}", 0.0),
    "list": ("Write a numbered list of thirty animals. Each line is: number, animal, where it lives.", 0.4),
}


def answer(target: ModelOptions, prompt: str, temperature: float, tokens: int) -> tuple[list[int], list[int]]:
    """Ids of the prompt and of the answer."""
    with load(EngineOptions(target, spec_types=("none",), n_ctx=2048)) as engine:
        request = GenerationRequest(
            messages=(Message("user", prompt),),
            max_tokens=tokens,
            sampling=SamplingParams(temperature=temperature, seed=1, ignore_eos=True),
            spec=SpecParams(depth=0),
        )
        *_, last = engine.submit(request)
        if not isinstance(last, Finished):
            raise SystemExit(f"no answer: {last}")
        return engine.encode(request), list(last.ids)


def read_along(draft: Target, prompt: list[int], ids: list[int]) -> tuple[list[bool], list[float]]:
    """For each token of the answer: whether the draft model's likeliest guess was right; how likely it called it."""
    seq = draft.open()
    right, scores = [], []
    draft.forward([Work.prompt(seq, prompt[:-1])])
    draft.commit(seq, range(len(prompt) - 1))
    for last, token in zip([prompt[-1], *ids], ids, strict=False):
        row = draft.forward([Work(seq, TokenTree.root(last))])[0].logits(0)
        best = int(row.argmax())
        right.append(best == token)
        scores.append(round(float(1 / np.exp(row - row[best]).sum()), 3))
        draft.commit(seq, (0,))
    draft.close(seq)
    return right, scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--tokens", type=int, default=896)
    parser.add_argument("-o", type=Path, default=Path("tests/control/traces.json"))
    args = parser.parse_args()
    traces: dict[str, Any] = {}
    with load(EngineOptions(ModelOptions(args.draft), spec_types=("none",), n_ctx=2048)) as reader:
        for kind, (prompt, temperature) in PROMPTS.items():
            read, ids = answer(ModelOptions(args.target), prompt, temperature, args.tokens)
            right, scores = read_along(reader.target, read, ids)
            traces[kind] = {"prompt": read, "ids": ids, "right": "".join("01"[hit] for hit in right), "scores": scores}
            print(f"{kind}: {len(ids)} tokens, {sum(right) / len(right):.2f} of the draft's guesses right")
    args.o.write_text(json.dumps(traces, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
