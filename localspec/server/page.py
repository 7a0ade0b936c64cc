"""The page to chat on: one file, with nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from starlette.responses import HTMLResponse, Response


def chat_page() -> Response:
    """The page. Its own script and style may run, and nothing else; it talks to this server alone."""
    text, policy = _page()
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
    return HTMLResponse(text, headers=headers)


@cache
def _page() -> tuple[str, str]:
    text = (files(__package__) / "page.html").read_text("utf-8")
    script, style = (_digest(text, tag) for tag in ("script", "style"))
    policy = (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text, policy


def _digest(text: str, tag: str) -> str:
    """Of the one element of that name, as a policy names it."""
    (inner,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()}'"
