"""Many prompts from a file."""

from __future__ import annotations

from dataclasses import replace

from localspec.options.option import Option
from localspec.options.tables.groups import OUTPUT, TOOL
from localspec.options.tables.load import LIMITS, PARALLEL
from localspec.options.tables.tools import OUTPUT_FILE

INPUT = Option("input", (), str, None, "JSON lines to answer; not given or -: standard input.", TOOL, "FILE", key=False)
BATCH_OPTIONS = (
    INPUT,
    replace(OUTPUT_FILE, help="Write answers there, a line each; not given or -: standard output."),
    PARALLEL,
    *LIMITS,
    Option("ordered", ("--ordered",), bool, False, "Write answers in the order of the input.", OUTPUT),
    Option(
        "resume",
        ("--resume",),
        bool,
        False,
        "Go on with an output file: lines that are answered there are not asked again.",
        TOOL,
        key=False,
    ),
    Option("fail_fast", ("--fail-fast",), bool, False, "Stop at the first line that fails.", TOOL),
    Option(
        "spec_metrics",
        ("--spec-metrics",),
        str,
        "summary",
        "What an answer tells of its guesses: summary, or detailed = every step with its tree.",
        OUTPUT,
        "FORM",
        choices=("summary", "detailed"),
    ),
)
