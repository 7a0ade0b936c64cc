"""The keys at the prompt, for /help and the documentation, and the texts around them; `localspec.cli.repl.prompt` binds
them."""

from __future__ import annotations

from localspec.talk.commands import COMMANDS

KEYS: tuple[tuple[str, str], ...] = (
    ("enter", "Sends the message; with /multiline, begins a new line."),
    ("alt-enter, ctrl-j", "A new line. So does enter after a \\ at the end of a line."),
    ('"""', "Begins a message of several lines that ends with the next one."),
    ("ctrl-c", "Stops the answer; what was shown stays, what was typed meanwhile waits at the prompt. Twice leaves."),
    ("ctrl-d", "Leaves; with /multiline, sends what is written."),
    ("paste", "One message, whatever is in it. A long one is shown as [pasted 300 lines]; ctrl-g shows it all."),
    ("ctrl-g, ctrl-x ctrl-e", "Opens the message in $VISUAL or $EDITOR."),
    ("tab", "Completes commands, settings and names of files, also after @."),
    ("up, ctrl-r", "Earlier messages; searches in them."),
)

#: The same for a list of all there is.
KEYS_IN_BRIEF = (
    "enter sends",
    "alt-enter a new line",
    "ctrl-c stops",
    "ctrl-d leaves",
    "tab completes",
    "up earlier ones",
)

INTRODUCTION = """\
`localspec chat` talks to a model: at a terminal on a full screen (below), with `--no-tui` at a prompt. A message goes
to the model; a line that begins with `/` is a command and never does. A message that begins with a slash is written
with two: `//etc is a folder`.

After each answer a line says how it went: `142 tok · 61 tok/s · α 0.78 · accepted 71 % (210/294) · length 3.9`. That
is: tokens, speed, the share of tested guesses that held, the share of all guesses that did, and tokens a step where
there were guesses; and `draft-simple left alone` if a drafter was tried and does not pay. Then how much of the prompt
was in the cache already, and why the answer ended if not by itself: stopped, cut at `-n`, or the context is full.
`/stats` says more, and how each drafter stands: in use, on trial, or left alone and why.

Where a conversation outgrows the context, its oldest exchanges are left out, whole, and a line says how many. The
system message stays.

## Files

`@src/app.py` in a message takes that file along: its text stands before the message, and what you see is its name and
its size. A name with blanks stands in quotes: `@"my notes.md"`; tab completes both. A mention begins a word and names
a file that is there, so `me@host`, `@alice` and anything between backticks stay text; a name in quotes, or one that
begins as a path does (`/`, `./`, `../`, `~/`), must be there. The full screen counts the tokens of each while you
write, and what is in a long paste is never a mention. A file that is missing, a folder, no UTF-8 text, or too large
for what is left of the context is refused in one line, and nothing is sent. The file is read when the message is
sent, and anew when it is edited; saved conversations and exports have the text. `/read` and `/glob` take files along
with the next message. Over pipes nothing is a mention.

## Copying

What is copied goes through `wl-copy`, `xclip`, `xsel`, `pbcopy` or `clip.exe`, the first that is there and has a screen
to go to. Over ssh, or where there is none, the terminal is asked to take it (OSC 52). Whether it does nobody can know:
the text is in a file too, `localspec/copied.txt` in the folder for state (`$XDG_STATE_HOME` or `~/.local/state` on
Linux), and only there if it has more than 70,000 bytes. A line says which way it went.

## Saved conversations

What is said at a terminal is saved: a question when it is asked, its answer when it ends, both with all that `/edit`,
`/regen` and `/undo` leave behind. `localspec chat --resume` goes on with the last conversation, `--session NAME` with
another; `/sessions` lists them or finds words in all of them, `/siblings` lists the versions of an exchange. On the
full screen ctrl+o lists and searches them, alt+left and alt+right walk the versions of the last exchange, and what is
typed and not sent comes back with its conversation, even after a crash. Conversations are in `localspec/sessions.db` in
the folder for data: `$XDG_DATA_HOME` or `~/.local/share` on Linux, `~/Library/Application Support` on macOS; only you
can read it. `--no-save-session` saves nothing, and neither does a single question. `/delete` and `/delete purge` remove
a conversation for good.

Where the file cannot be written, a line says so once, the chat goes on, and what is missing is saved as soon as that
works. What still cannot be written at the end goes to a folder of its own, and a line says how to go on with it. A
damaged file is moved aside, and a new one begun. An older format is brought up to date after a copy was made."""

REST = """\
## Without editing

`--simple-io` reads plain lines and writes no escape sequence: for screen readers, and for programs that hold a
conversation over pipes. A terminal that is called dumb gets the same. A message of several lines stands between two
`\"\"\"`. Lines typed while an answer comes are given up if ctrl-c stops it, and a line says how many.

Without a terminal and without `--simple-io`, standard input is one message, and standard output is its answer. What the
model thinks first goes to standard error then; on a terminal it stands before the answer, dimmed."""


def reference() -> str:
    """The page about the chat, as Markdown: commands and keys as they are registered."""
    rows = ["| command | also | meaning |", "| --- | --- | --- |"]
    for one in COMMANDS:
        usage = one.usage.replace("|", "\\|")
        also = ", ".join(f"`/{alias}`" for alias in one.aliases)
        rows.append(f"| `{usage}` | {also} | {one.help} |")
    keys = ["| key | meaning |", "| --- | --- |", *(f"| {key} | {meaning} |" for key, meaning in KEYS)]
    return "\n".join([INTRODUCTION, "", "## Commands", "", *rows, "", "## Keys", "", *keys, "", REST])
