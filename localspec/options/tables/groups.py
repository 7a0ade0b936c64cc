"""Headings of the table, in the order of the help, and limits that several groups share."""

from __future__ import annotations

from collections.abc import Iterable

from localspec.options.option import Option

MODEL, HUB, DEVICES, CONTEXT = "Model", "Download", "Devices", "Context"
SPEC, SAMPLING, TEXT, CHAT, CONFIG = "Speculation", "Sampling", "Generation", "Chat", "Settings"
OUTPUT, SHELF, TOOL, TRAIN, SERVER = "Output", "Models", "Measuring", "Training", "Server"

INT_MAX = 2**31 - 1

ORDER = (TOOL, TRAIN, SERVER, TEXT, OUTPUT, SHELF, CHAT, MODEL, HUB, SPEC, SAMPLING, CONTEXT, DEVICES, CONFIG)


def grouped(options: Iterable[Option]) -> dict[str, list[Option]]:
    """Heading → its options, in the order of the help; headings without options are left out."""
    options = tuple(options)
    groups = {group: [option for option in options if option.group == group] for group in ORDER}
    return {group: members for group, members in groups.items() if members}
