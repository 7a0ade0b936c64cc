"""Many requests at a time: how many, and from when on nothing is guessed."""

from __future__ import annotations

from localspec.options.option import Option
from localspec.options.tables.groups import SPEC, TOOL

PARALLEL = Option(
    "parallel",
    ("-np", "--parallel"),
    int,
    4,
    "Requests that are answered at a time; they share the context of -c.",
    TOOL,
    "N",
    env=("LLAMA_ARG_N_PARALLEL",),
    least=1,
    most=128,
)
LIMITS = (
    Option(
        "max_concurrency",
        ("--spec-max-concurrency",),
        int,
        0,
        "Guess nothing while more answers than this run at a time; 0 = no such limit, only what pays is guessed.",
        SPEC,
        "N",
        least=0,
    ),
    Option(
        "max_queue",
        ("--spec-max-queue",),
        int,
        48,
        "Guess nothing while more requests than this wait; 0 = no such limit.",
        SPEC,
        "N",
        former=("--speculative-disable-by-batch-size",),
        least=0,
    ),
)
