"""Answers made by hand, for looking at."""

from __future__ import annotations

import math
from random import Random

from localspec.talk.trace import AnswerTrace
from localspec.types import Alternative, Event, Started, StepStats, TokenInfo, Tokens, TreeTrace

WORDS = (" the", " cat", " sat", " on", " a", " mat", ".", "\n", " un", "believ", "able", " größer", " 猫", "\t", "  ")
DRAFTERS = ("draft-simple", "suffix")


def word(i: int) -> bytes:
    return WORDS[i % len(WORDS)].encode()


def example_step(random: Random, *, measured: bool = True) -> Tokens:
    """Up to four guesses in a row, each with a rival; some of them hold, and the target's own token comes after."""
    depth, held = random.randint(0, 4), random.choice((0, 1, 2, 4))
    held = min(held, depth)
    name = random.choice(DRAFTERS)
    ids = [random.randrange(len(WORDS)) for _ in range(depth + 1)]
    tokens, parents, path = [ids[0]], [-1], []
    parent = 0
    for at in range(1, depth + 1):
        tokens += [ids[at], 99]
        parents += [parent, parent]
        parent = len(tokens) - 2
        if at <= held:
            path.append(parent)
    count = len(tokens)
    tree = TreeTrace(
        tuple(tokens),
        tuple(parents),
        (1.0, *(round(random.uniform(0.1, 1.0), 2) for _ in tokens[1:])),
        ("", *[name] * (count - 1)),
        tuple(path),
        tuple(word(token) if token != 99 else b" rival" for token in tokens),
        (None, *(random.random() for _ in tokens[1:])),
    )
    guessed = [
        TokenInfo(ids[at], word(ids[at]), name, at, 0.75, 0.5, math.log(0.5), rivals(ids[at]))
        for at in range(1, held + 1)
    ]
    own = random.randrange(len(WORDS))
    drawn = TokenInfo(own, word(own), target_p=0.5, logprob=math.log(0.5), top=rivals(own))
    tested = min(held + 1, depth)
    step = StepStats(
        draft_n=count - 1,
        tested=tested,
        accepted=held,
        emitted=held + 1,
        cut=0,
        t_draft=0.004,
        t_verify=0.02,
        t_host=0.001,
        tree=tree,
        t_plain=0.02 * (held + 1) if measured else None,
    )
    infos = (*guessed, drawn)
    return Tokens(1, "".join(info.piece.decode() for info in infos), infos, step)


def rivals(token: int) -> tuple[Alternative, ...]:
    return (Alternative(token, word(token), math.log(0.5)), Alternative(98, b"\x1b[31m", math.log(0.25)))


def example(tokens: int, *, seed: int = 1, measured: bool = True) -> AnswerTrace:
    """An answer of at least so many tokens."""
    random, trace = Random(seed), AnswerTrace()
    events: list[Event] = [Started(1, 10, 0, seed)]
    for event in events:
        trace.hear(event)
    while len(trace.tokens) < tokens:
        trace.hear(example_step(random, measured=measured))
    return trace
