"""Options about options. They stand on the command line or in the environment, not in a configuration file."""

from __future__ import annotations

from localspec.options.option import Option
from localspec.options.tables.groups import CONFIG

CONFIG_OPTIONS = (
    Option(
        "config",
        ("--config",),
        str,
        None,
        "Read this TOML file, and no other configuration file.",
        CONFIG,
        "FILE",
        key=False,
    ),
    Option("profile", ("--profile",), str, None, "Use [profile.NAME] of the configuration.", CONFIG, "NAME", key=False),
    Option(
        "print_config",
        ("--print-config",),
        bool,
        False,
        "Print every value and where it comes from, as TOML, and leave.",
        CONFIG,
        key=False,
    ),
    Option(
        "verbose",
        ("-v", "--verbose"),
        bool,
        False,
        "Say on stderr which settings differ from their defaults, and why.",
        CONFIG,
        aliases=("--log-verbose",),
    ),
    Option("debug", ("--debug",), bool, False, "Tracebacks instead of one line.", CONFIG, key=False),
)
#: For commands that can start from what was tuned. Unlike the others it may stand in a file.
TUNED = Option(
    "tuned",
    ("--tuned",),
    bool,
    True,
    "Start from what localspec tune found best for these models on this machine, where nothing else is said.",
    CONFIG,
    negations=("--no-tuned",),
)
