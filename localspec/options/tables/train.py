"""What a drafter is trained from and for how long, and how its file keeps it."""

from __future__ import annotations

from dataclasses import replace

from localspec.options.option import Option
from localspec.options.tables.context import CONTEXT_OPTIONS
from localspec.options.tables.groups import OUTPUT, TRAIN
from localspec.options.tables.sampling import SAMPLING_OPTIONS
from localspec.options.tables.tools import OUTPUT_FILE, PROMPTS

#: Minutes, where nobody says how long.
MINUTES = 10.0
#: As llama.cpp's converter names them.
OUTTYPE = Option(
    "outtype",
    ("--outtype",),
    str,
    "q8_0",
    "Type of the file's matrices.",
    OUTPUT,
    "TYPE",
    choices=("f32", "f16", "bf16", "q8_0"),
    key=False,
)
(_THREADS,) = (one for one in CONTEXT_OPTIONS if one.name == "threads")
(_SEED,) = (one for one in SAMPLING_OPTIONS if one.name == "seed")
TRAIN_OPTIONS = (
    replace(OUTPUT_FILE, default="drafter.gguf", help="Write the drafter to this GGUF file."),
    Option(
        "hub_form",
        ("--hub-form",),
        str,
        None,
        "Write it to this folder, too, in the form of the hub (config.json, model.safetensors).",
        OUTPUT,
        "DIR",
        key=False,
    ),
    Option(
        "work",
        ("--work",),
        str,
        None,
        "Folder of texts and of all that was learned, from which a later run goes on; default: beside the drafter.",
        TRAIN,
        "DIR",
        key=False,
    ),
    replace(PROMPTS, help=f"The target answers these. {PROMPTS.help}", group=TRAIN),
    Option(
        "corpus",
        ("--corpus",),
        str,
        None,
        "Learn what the target says of these texts: a file, or a folder of them.",
        TRAIN,
        "DIR",
        key=False,
    ),
    Option(
        "from_log",
        ("--from-log",),
        str,
        None,
        "Learn from an answer that /trace FILE kept in a chat; what was guessed wrong counts more.",
        TRAIN,
        "FILE",
        key=False,
    ),
    Option(
        "origin",
        ("--from",),
        str,
        None,
        "Go on from a drafter that was trained before.",
        TRAIN,
        "FILE",
        key=False,
    ),
    Option(
        "minutes",
        ("--minutes",),
        float,
        None,
        f"End after so long, earlier runs in the same folder included; default {MINUTES:g}, without --tokens.",
        TRAIN,
        "N",
        least=0,
        most=1e6,
        key=False,
    ),
    Option(
        "train_tokens",
        ("--tokens",),
        int,
        None,
        "End after so many tokens learned from; a text counts each time.",
        TRAIN,
        "N",
        least=1,
        most=10**12,
        key=False,
    ),
    OUTTYPE,
    replace(_THREADS, help="Threads; -1 = one for each core.", group=TRAIN),
    # The same command has to go on with the same chances.
    replace(_SEED, default=0, help="Of what is drawn, and of the order of texts.", group=TRAIN, least=0),
)
HEAD_TRAIN_OPTIONS = (
    Option(
        "guessable",
        ("--guessable",),
        int,
        8192,
        "So many tokens, the most frequent ones, can be guessed.",
        TRAIN,
        "N",
        least=16,
        most=10**6,
        key=False,
    ),
)
DRAFT_TRAIN_OPTIONS = (
    Option("width", ("--width",), int, 192, "Width of the model.", TRAIN, "N", least=16, most=8192, key=False),
    Option("depth", ("--layers",), int, 2, "Layers of the model.", TRAIN, "N", least=1, most=64, key=False),
)
