"""The one registry of actions: key bindings, the command palette, F1 and the documentation read it.

Slash commands have a registry of their own, which the prompt shares: `localspec.talk.commands.COMMANDS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding, BindingType

#: Whose method an action is.
Owner = Literal["app", "composer"]


@dataclass(frozen=True, slots=True)
class Action:
    """Something that a key does.

    Attributes:
        id: what its key is remapped by.
        key: the default; several are parted by commas.
        title: two or three words, for the palette and the footer.
        help: one sentence.
        method: the name of the ``action_…`` method that does it.
        footer: whether the footer shows it.
        anywhere: whether it works over a dialogue too.
    """

    id: str
    key: str
    title: str
    help: str
    group: str
    method: str
    #: What the composer does is bound by itself: keys reach it one after another, and a binding of the app would
    #: overtake the letters typed before it.
    owner: Owner = "app"
    footer: bool = False
    anywhere: bool = False

    def binding(self) -> Binding:
        """Before what the focused widget makes of the key: an editor would take half of them for its own."""
        return Binding(
            self.key, self.method, self.title, id=self.id, show=self.footer, priority=True, tooltip=self.help
        )


TALK, CHATS, ANSWERS, WRITING, SCREEN = "talk", "chats", "answers", "writing", "screen"
PANELS, GUESSES = "panels", "models and guesses"

ACTIONS: tuple[Action, ...] = (
    Action(
        "send",
        "enter",
        "Send",
        "Sends the message; while an answer comes, it waits its turn.",
        WRITING,
        "send",
        "composer",
    ),
    Action(
        "newline",
        "shift+enter,alt+enter,ctrl+j",
        "New line",
        "Begins a new line. So does enter after a \\ at the end of a line.",
        WRITING,
        "newline",
        "composer",
    ),
    Action(
        "complete",
        "tab",
        "Complete",
        "Completes commands, settings and names of files, also after @.",
        WRITING,
        "complete",
        "composer",
    ),
    Action("editor", "ctrl+g", "Editor", "Opens the message in $VISUAL or $EDITOR.", WRITING, "editor"),
    Action("stop", "escape", "Stop", "Stops the answer; what was shown stays.", TALK, "stop", footer=True),
    Action("regenerate", "ctrl+r", "Again", "Answers the last question again.", TALK, "regenerate", footer=True),
    Action("edit", "alt+up", "Edit question", "Changes the last question and asks it anew.", TALK, "edit"),
    Action(
        "new", "ctrl+n", "New chat", "Starts a new conversation; the system message stays.", TALK, "new", footer=True
    ),
    Action(
        "reload", "f5", "Reload", "Loads the model anew: after an error, or when the engine has died.", TALK, "reload"
    ),
    Action(
        "version-before",
        "alt+left",
        "Version before",
        "Goes to the version before of the last exchange, or to what was taken back.",
        CHATS,
        "version_before",
    ),
    Action(
        "version-after",
        "alt+right",
        "Next version",
        "Goes to the next version of the last exchange: another answer, or the question as it was changed.",
        CHATS,
        "version_after",
    ),
    Action(
        "sessions",
        "ctrl+o",
        "Saved chats",
        "Lists the saved conversations, finds text in all of them, and opens, renames, pins or deletes one.",
        CHATS,
        "sessions",
    ),
    Action("copy", "alt+c", "Copy answer", "Puts the last answer into the clipboard.", ANSWERS, "copy"),
    Action(
        "copy-code",
        "ctrl+y",
        "Copy code",
        "Puts the last code block into the clipboard; pressed again, the one before.",
        ANSWERS,
        "copy_code",
    ),
    Action("find", "ctrl+f", "Find", "Finds text in this conversation; again, the next place.", ANSWERS, "find"),
    Action("thinking", "ctrl+t", "Thinking", "Shows or folds what the model thought.", ANSWERS, "thinking"),
    Action("parameters", "f2", "Settings", "Settings of the answers to come, and presets.", PANELS, "parameters"),
    Action(
        "statistics",
        "f3",
        "Statistics",
        "What guessing ahead does, while an answer comes: how much holds, where time goes, the tree.",
        PANELS,
        "statistics",
        footer=True,
    ),
    Action(
        "provenance",
        "f4",
        "Tokens",
        "The last answer token by token: who guessed each, what was rejected, and what else might have stood there.",
        PANELS,
        "provenance",
    ),
    Action("focus", "f6", "Focus", "Goes to the open panel, or to the conversation, and back.", PANELS, "other_pane"),
    Action("model", "f7", "Model", "Chooses another model from a list.", GUESSES, "pick_model"),
    Action("draft", "f8", "Draft model", "Chooses another draft model from a list, or none.", GUESSES, "pick_draft"),
    Action(
        "speculation",
        "alt+s",
        "Speculation",
        "Guesses ahead as it pays (auto), always as much (fixed), or not at all (off): one after the other.",
        GUESSES,
        "speculation",
    ),
    Action("guess-more", "alt+k", "Guess more", "Guesses one token more ahead.", GUESSES, "guess_more"),
    Action("guess-less", "alt+j", "Guess less", "Guesses one token less ahead.", GUESSES, "guess_less"),
    Action(
        "step-mode",
        "alt+t",
        "Step mode",
        "Answers wait before every verify step, or come by themselves again.",
        GUESSES,
        "step_mode",
    ),
    Action(
        "step",
        "alt+n",
        "One step",
        "In step mode: makes one verify step. F3 draws what was guessed and what of it held.",
        GUESSES,
        "step",
    ),
    Action("run-on", "alt+r", "Run on", "In step mode: goes on to the end of this answer.", GUESSES, "run_on"),
    Action(
        "compare",
        "alt+a",
        "Compare",
        "Answers the last question twice, with guesses and without: speed, and whether the text is the same.",
        GUESSES,
        "compare",
    ),
    Action("page-up", "pageup", "Page up", "Scrolls back; new text no longer moves the screen.", SCREEN, "page_up"),
    Action(
        "page-down",
        "pagedown",
        "Page down",
        "Scrolls on; at the end, new text moves the screen again.",
        SCREEN,
        "page_down",
    ),
    Action("start", "ctrl+home", "To the start", "Shows the start of the conversation.", SCREEN, "start"),
    Action("end", "ctrl+end", "To the end", "Shows the end, and follows what comes.", SCREEN, "end"),
    Action(
        "interrupt",
        "ctrl+c",
        "Copy or stop",
        "Copies what is selected, or else stops the answer; twice leaves.",
        SCREEN,
        "interrupt",
        anywhere=True,
    ),
    Action("theme", "f9", "Theme", "Chooses the colours.", SCREEN, "change_theme"),
    Action(
        "palette",
        "ctrl+p",
        "Palette",
        "Finds an action or a command by its name.",
        SCREEN,
        "command_palette",
        footer=True,
    ),
    Action("help", "f1", "Help", "Keys and commands.", SCREEN, "help", footer=True, anywhere=True),
    Action("leave", "ctrl+q", "Quit", "Leaves; the conversation is kept.", SCREEN, "leave", footer=True, anywhere=True),
    Action(
        "delete-or-leave",
        "ctrl+d",
        "Delete or quit",
        "Deletes the character to the right; leaves where nothing is written.",
        SCREEN,
        "delete_or_leave",
        "composer",
    ),
)


def bindings() -> list[BindingType]:
    """What the app binds; the footer shows it in this order, and a narrow one is cut: help comes first."""
    own = [action for action in ACTIONS if action.owner == "app"]
    return [action.binding() for action in sorted(own, key=lambda action: action.id != "help")]


def methods(owner: Owner, keymap: Mapping[str, str]) -> dict[str, str]:
    """Key → the method of ``owner`` that it calls."""
    return {
        key.strip(): action.method
        for action in ACTIONS
        if action.owner == owner
        for key in keymap.get(action.id, action.key).split(",")
    }


def by_method(method: str) -> Action | None:
    """The app's action that this method is, if it is one."""
    return next((one for one in ACTIONS if one.method == method and one.owner == "app"), None)


def first_key(id: str, keymap: Mapping[str, str]) -> str:
    """The key to name for an action."""
    action = next(one for one in ACTIONS if one.id == id)
    return keys_of(action, keymap).partition(",")[0]


def keys_of(action: Action, keymap: Mapping[str, str]) -> str:
    """Its keys as they are shown, after what the user changed."""
    return ", ".join(key.strip() for key in keymap.get(action.id, action.key).split(","))


def groups() -> Iterator[tuple[str, list[Action]]]:
    """Actions by what they are about, in the order of the registry."""
    names = dict.fromkeys(action.group for action in ACTIONS)
    return ((name, [one for one in ACTIONS if one.group == name]) for name in names)


def rows(actions: Iterable[Action] = ACTIONS, keymap: Mapping[str, str] | None = None) -> list[tuple[str, str]]:
    """Keys and what they do."""
    return [(keys_of(one, keymap or {}), one.help) for one in actions]


def in_brief() -> tuple[str, ...]:
    """The keys that most people need, in a few words each."""
    return tuple(f"{keys_of(one, {})} {one.title.lower()}" for one in ACTIONS if one.footer or one.id == "send")


def reference() -> str:
    """The table of keys, as Markdown."""
    lines = ["| key | name | meaning |", "| --- | --- | --- |"]
    for action in ACTIONS:
        keys = ", ".join(f"`{key.strip()}`" for key in action.key.split(","))
        lines.append(f"| {keys} | `{action.id}` | {action.help} |")
    return "\n".join(lines)
