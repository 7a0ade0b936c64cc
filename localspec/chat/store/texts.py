"""Texts as the database holds them, and back.

SQLite's texts are UTF-8. A text with a lone half of a surrogate pair is none: it is kept as the bytes that UTF-8 would
make of it. NUL is a character as any other, for what is bound and read, and nothing here is cut by SQL functions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def stored(text: str) -> str | bytes:
    """What to bind for a text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def restored(value: str | bytes) -> str:
    """The text that `stored` made a value of."""
    return value if isinstance(value, str) else decoded(value)


def decoded(data: bytes) -> str:
    """What SQLite gives as text may be cut out of bytes of ours (snippets), or damaged."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def as_json(value: Mapping[str, Any]) -> str:
    """ASCII, so that any text in it survives."""
    return json.dumps(dict(value), default=str)


def from_json(text: str) -> dict[str, Any]:
    """What `as_json` wrote; empty where it is damaged: settings and statistics are no reason to lose what was said."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
