"""What is answered, how long, and in which form."""

from __future__ import annotations

from localspec.options.option import Option
from localspec.options.tables.groups import CHAT, OUTPUT, TEXT

PROMPT_OPTIONS = (
    Option("prompt", ("-p", "--prompt"), str, None, "The prompt; - reads standard input.", TEXT, "TEXT"),
    Option(
        "file", ("-f", "--file"), str, None, "A file that follows the prompt; - reads standard input.", TEXT, "FILE"
    ),
)
TEXT_OPTIONS = (
    Option(
        "n_predict",
        ("-n", "--predict"),
        int,
        -1,
        "Tokens at most; -1 = until the model ends or the context is full.",
        TEXT,
        "N",
        aliases=("--n-predict",),
        env=("LLAMA_ARG_N_PREDICT",),
        least=-1,
    ),
    Option(
        "stop",
        ("-r", "--stop"),
        str,
        (),
        "Stop where this text comes. Repeatable.",
        TEXT,
        "TEXT",
        aliases=("--reverse-prompt",),
        many=True,
    ),
)
OUTPUT_OPTIONS = (
    Option("json", ("--json",), bool, False, "One JSON object instead of text.", OUTPUT),
    Option("jsonl", ("--jsonl",), bool, False, "Every event as a line of JSON.", OUTPUT),
    Option(
        "logprobs",
        ("--logprobs",),
        int,
        None,
        "With --json/--jsonl: log-probabilities of the k likeliest.",
        OUTPUT,
        "K",
        least=0,
        most=100,
    ),
)


def show_timings(default: bool) -> Option:
    return Option(
        "show_timings",
        ("--show-timings",),
        bool,
        default,
        "Speed and acceptance on stderr after an answer.",
        OUTPUT,
        negations=("--no-show-timings",),
        env=("LLAMA_ARG_SHOW_TIMINGS",),
    )


def conversation(default: bool) -> Option:
    return Option(
        "conversation",
        ("-cnv", "--conversation"),
        bool,
        default,
        "Put the prompt through the chat template.",
        CHAT,
        negations=("-no-cnv", "--no-conversation"),
    )
