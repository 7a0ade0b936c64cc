"""What is measured and checked, and in which form it is told."""

from __future__ import annotations

from dataclasses import replace

from localspec.options.option import Option
from localspec.options.tables.context import CONTEXT_OPTIONS
from localspec.options.tables.groups import OUTPUT, TOOL
from localspec.options.tables.sampling import SAMPLING_OPTIONS
from localspec.options.tables.text import TEXT_OPTIONS

PROMPTS = Option(
    "prompts",
    ("--prompts",),
    str,
    None,
    "Prompts: a .jsonl file with an object a line (prompt, category, id), or a text file with a prompt a line.",
    TOOL,
    "FILE",
    key=False,
)
OUTPUT_FILE = Option("output_file", ("-o", "--output-file"), str, None, "File to write.", OUTPUT, "FILE", key=False)
SERVER_MODEL = Option(
    "server_model",
    ("--server-model",),
    str,
    None,
    "The model to ask a server for; default: the first it lists.",
    TOOL,
    "NAME",
    key=False,
)
API_KEY = Option(
    "api_key",
    ("--api-key",),
    str,
    None,
    "The servers' key.",
    TOOL,
    "KEY",
    env=("LLAMA_API_KEY",),
    secret=True,
)
BENCH_OPTIONS = (
    PROMPTS,
    Option(
        "setting",
        ("--setting",),
        str,
        (),
        "Measure these speculation flags under this name; comma lists make a grid. Repeatable.",
        TOOL,
        "NAME=FLAGS",
        many=True,
        key=False,
    ),
    Option(
        "repetitions",
        ("-r", "--repetitions"),
        int,
        3,
        "Rounds: in each every setting answers every prompt once, the baseline beside it.",
        TOOL,
        "N",
        least=2,
        most=1000,
    ),
    Option(
        "budget",
        ("--budget",),
        float,
        None,
        "Begin no round that would end after so many seconds, beyond the second.",
        TOOL,
        "SECONDS",
        least=0,
    ),
    Option(
        "baseline",
        ("--baseline",),
        bool,
        True,
        "Plain decoding beside each answer, for a speed-up.",
        TOOL,
        negations=("--no-baseline",),
        key=False,
    ),
    Option(
        "server",
        ("--server",),
        str,
        (),
        "Measure this server, too, if a model or a --setting is given; else it alone. Repeatable.",
        TOOL,
        "[NAME=]URL",
        many=True,
        key=False,
    ),
    Option(
        "server_baseline",
        ("--server-baseline",),
        str,
        None,
        "Compare with this server, not plain decoding.",
        TOOL,
        "[NAME=]URL",
        key=False,
    ),
    SERVER_MODEL,
    API_KEY,
    Option(
        "output",
        ("-o", "--output"),
        str,
        None,
        "Form of the result; default: table at a terminal, else md.",
        OUTPUT,
        "FORM",
        choices=("table", "md", "json", "csv"),
        key=False,
    ),
)
VERIFY_OPTIONS = (
    PROMPTS,
    Option(
        "sampler_sets",
        ("--sampler-sets",),
        str,
        "greedy,seeded",
        "Ways to draw tokens that are tried: a comma list, or all.",
        TOOL,
        "LIST",
        separator=",",
        key=False,
    ),
    Option(
        "shapes",
        ("--shapes",),
        str,
        "given,chain,tree",
        "Shapes of guesses that are tried: given is what --spec and the other flags say; a comma list.",
        TOOL,
        "LIST",
        separator=",",
        key=False,
    ),
    Option(
        "seeds",
        ("--seeds",),
        int,
        200,
        "Answers that the test of the acceptance rules draws; 0 = no such test.",
        TOOL,
        "N",
        least=0,
        most=1_000_000,
        key=False,
    ),
    replace(OUTPUT_FILE, help="Write the certificate to this file."),
)
TUNE_OPTIONS = (
    PROMPTS,
    Option(
        "seconds",
        ("--seconds",),
        float,
        60.0,
        "Time to measure, loading included; what is begun then is still finished.",
        TOOL,
        "SECONDS",
        least=1,
        most=86_400,
        key=False,
    ),
    Option(
        "save",
        ("--save",),
        bool,
        True,
        "Keep what was found, so that later runs with these models start from it.",
        OUTPUT,
        negations=("--no-save",),
        key=False,
    ),
)

#: What `top` takes beside the servers' key.
TOP_OPTIONS = (
    Option(
        "url",
        ("-u", "--server", "--url"),
        str,
        "http://127.0.0.1:8080",
        "The server to look at.",
        TOOL,
        "URL",
        key=False,
    ),
    Option("interval", ("--interval",), float, 1.0, "Seconds between two looks.", TOOL, "S", least=0.1, most=60),
    Option("once", ("--once",), bool, False, "Two looks, a text, and leave.", OUTPUT, key=False),
    Option("ascii", ("--ascii",), bool, False, "No characters beyond ASCII.", OUTPUT),
    Option("mock", ("--mock",), bool, False, "Show a made-up server, without one.", TOOL, key=False),
)

#: Tokens an answer, for those who do not say.
BENCH_TOKENS, VERIFY_TOKENS, TUNE_TOKENS = 96, 32, 64


def for_tools(*, tokens: int) -> tuple[Option, ...]:
    """Options that other commands have too, with the defaults of a measurement: short answers, no chance, and no more
    context than they need."""
    (n_predict,) = (one for one in TEXT_OPTIONS if one.name == "n_predict")
    length = replace(n_predict, default=tokens, help=f"Tokens an answer; less than 2 = {tokens}.")
    defaults = {"temp": 0.0, "seed": 1, "ctx_size": 2048}
    return (
        length,
        *(
            replace(one, default=defaults[one.name]) if one.name in defaults else one
            for one in (*SAMPLING_OPTIONS, *CONTEXT_OPTIONS)
        ),
    )
