"""A server that answers in place of an engine here."""

from __future__ import annotations

from dataclasses import replace

from localspec.options.option import Option
from localspec.options.tables.groups import MODEL
from localspec.options.tables.tools import API_KEY, SERVER_MODEL

_SERVER = Option(
    "server",
    ("--server",),
    str,
    (),
    "Let this server answer in place of a model here: any that speaks OpenAI's protocol.",
    MODEL,
    "URL",
    many=True,  # a name has one type in all commands; a conversation takes one
    key=False,
)
_MORE = (
    replace(SERVER_MODEL, group=MODEL),
    replace(API_KEY, help="The server's key.", group=MODEL),
)
#: For one server.
REMOTE_OPTIONS = (_SERVER, *_MORE)
#: For several.
SPREAD_OPTIONS = (
    replace(_SERVER, help="Let this server answer, -np lines at a time to each. Repeatable."),
    *_MORE,
)
