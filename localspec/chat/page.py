"""A conversation as a page for a browser: one file, nothing fetched, no scripts; to read, to print, to send on."""

from __future__ import annotations

from html import escape

from localspec.chat.conversation import Conversation, Turn

#: A browser that honours it runs and fetches nothing, even if a text found a way to ask for it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1e; --paper: #fdfdfc; --dim: #6b6b70; --tint: #f0f0ee; --line: #d8d8d4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e3; --paper: #191a1c; --dim: #9a9aa0; --tint: #26272a; --line: #3a3b3f; }
}
body { max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; }
h2 { font-size: .85rem; font-weight: 600; color: var(--dim); margin: 0 0 .4rem; }
section { padding: 1rem 0; border-top: 1px solid var(--line); }
section.user { border-left: 3px solid var(--dim); padding-left: 1rem; }
.text, pre { white-space: pre-wrap; margin: 0; }
pre { background: var(--tint); border: 1px solid var(--line); border-radius: 4px; padding: .6rem .8rem; margin: .6rem 0;
  font: .875rem/1.45 ui-monospace, monospace; }
details { color: var(--dim); margin-bottom: .6rem; }
.note { color: var(--dim); font-style: italic; }
@media print {
  :root { --ink: #000; --paper: #fff; --dim: #444; --tint: #fff; --line: #999; }
  body { max-width: none; margin: 0; }
  h2 { break-after: avoid; }
}
"""
_NAMES = {"user": "User", "assistant": "Assistant"}


def page(conversation: Conversation, title: str) -> str:
    """HTML that a browser shows as it is; every text in it is a text and nothing else."""
    system = conversation.system
    sections = [] if system is None else [_section("system", "System", f'<p class="text">{_text(system.strip())}</p>')]
    sections += [_turn(turn) for turn in conversation.turns]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(title)}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            f"<h1>{_text(title)}</h1>",
            *sections,
            "</body>",
            "</html>\n",
        ]
    )


def _turn(turn: Turn) -> str:
    parts = []
    if turn.thinking:
        parts.append(
            f'<details>\n<summary>Thinking</summary>\n<p class="text">{_text(turn.thinking.strip())}</p>\n</details>'
        )
    parts += _blocks(turn.message.content)
    if turn.stopped:
        parts.append('<p class="note">(stopped)</p>')
    role = turn.message.role
    return _section(role, _NAMES[role], "\n".join(parts))


def _section(kind: str, name: str, inside: str) -> str:
    return f'<section class="{kind}">\n<h2>{name}</h2>\n{inside}\n</section>'


def _blocks(content: str) -> list[str]:
    """Text and fenced code, as they come; a fence that is not closed ends with the message."""
    blocks: list[str] = []
    lines: list[str] = []
    fence = ""

    def close() -> None:
        text = "\n".join(lines) if fence else "\n".join(lines).strip("\n")
        if text:
            blocks.append(f"<pre><code>{_text(text)}</code></pre>" if fence else f'<p class="text">{_text(text)}</p>')
        lines.clear()

    for line in content.split("\n"):
        mark = line.strip()
        ticks = mark[: len(mark) - len(mark.lstrip("`"))]
        if not fence and len(ticks) >= 3 and "`" not in mark[len(ticks) :]:
            close()
            fence = ticks
        elif fence and mark == ticks and len(ticks) >= len(fence):
            close()
            fence = ""
        else:
            lines.append(line)
    close()
    return blocks


def _text(text: str) -> str:
    """Escaped, without what HTML cannot hold: control characters become the sign for what cannot be shown."""
    shown = "".join(char if char >= " " or char in "\n\t" else "�" for char in text.replace("\r\n", "\n"))
    return escape(shown.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
