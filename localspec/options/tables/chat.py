"""Messages, templates and the prompt that a person types at."""

from __future__ import annotations

from localspec.options.option import Option
from localspec.options.tables.groups import CHAT

CHAT_TEMPLATE_OPTIONS = (
    Option(
        "system",
        ("-sys", "--system-prompt"),
        str,
        None,
        "System message; implies -cnv.",
        CHAT,
        "TEXT",
    ),
    Option(
        "system_file",
        ("-sysf", "--system-prompt-file"),
        str,
        None,
        "File with the system message; implies -cnv.",
        CHAT,
        "FILE",
    ),
    Option(
        "chat_template",
        ("--chat-template",),
        str,
        None,
        "Jinja text or a name such as chatml, instead of the model's own template.",
        CHAT,
        "JINJA",
        env=("LLAMA_ARG_CHAT_TEMPLATE",),
    ),
    Option(
        "chat_template_file",
        ("--chat-template-file",),
        str,
        None,
        "File with a Jinja chat template, instead of the model's own.",
        CHAT,
        "FILE",
        env=("LLAMA_ARG_CHAT_TEMPLATE_FILE",),
    ),
    Option(
        "chat_template_kwargs",
        ("--chat-template-kwargs",),
        str,
        None,
        """Values for the template: a JSON object, e.g. '{"key": 1}'.""",
        CHAT,
        "JSON",
        env=("LLAMA_ARG_CHAT_TEMPLATE_KWARGS",),
    ),
    Option(
        "reasoning",
        ("-rea", "--reasoning"),
        str,
        "auto",
        "Thinking: on, off, auto (as the model's template has it).",
        CHAT,
        "X",
        env=("LLAMA_ARG_REASONING",),
        choices=("on", "off", "auto"),
    ),
)
#: Which conversation it is, and whether it is kept.
SESSION_OPTIONS = (
    Option("resume", ("--resume",), bool, False, "Go on with the conversation that was open last.", CHAT, key=False),
    Option(
        "session",
        ("--session",),
        str,
        None,
        "Go on with a saved conversation: its title or id, or the beginning of one.",
        CHAT,
        "NAME",
        key=False,
    ),
    Option(
        "save_session",
        ("--save-session",),
        bool,
        True,
        "Save what is said at a terminal, for --resume and --session.",
        CHAT,
        negations=("--no-save-session",),
    ),
)
LINE_OPTIONS = (
    Option("single_turn", ("-st", "--single-turn"), bool, False, "Answer once and leave.", CHAT),
    Option(
        "multiline_input",
        ("-mli", "--multiline-input"),
        bool,
        False,
        "Enter starts a new line; a line that ends in / or \\, or ctrl-d, sends.",
        CHAT,
    ),
    Option(
        "tui",
        ("--tui",),
        bool,
        None,
        "A full screen, the default at a terminal (F1 lists its keys); --no-tui: a prompt.",
        CHAT,
        negations=("--no-tui",),
    ),
    Option(
        "simple_io",
        ("--simple-io",),
        bool,
        False,
        "Plain lines: no screen, no colour, no line editing; for screen readers and pipes.",
        CHAT,
    ),
    Option(
        "color",
        ("-co", "--color"),
        str,
        "auto",
        "Colour: on, off, auto (at a terminal).",
        CHAT,
        "X",
        choices=("on", "off", "auto"),
    ),
)
