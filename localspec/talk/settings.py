"""Settings by the names of their flags: found, read from text, shown, changed while the chat runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localspec.errors import LocalspecError, UsageError
from localspec.options import GENERATION_OPTIONS, Option, Values, depth, engine_options, ignored, request
from localspec.options.foreign import translated
from localspec.options.option import OFF, ON
from localspec.options.remote import is_remote
from localspec.options.suggest import did_you_mean
from localspec.options.tables.groups import CONFIG, HUB, SAMPLING, SPEC, TEXT
from localspec.talk.attach import in_short
from localspec.talk.chat import Chat
from localspec.talk.far import check_changes, of_engines
from localspec.text.printable import one_line

if TYPE_CHECKING:
    from localspec.loading import EngineOptions

#: The word that brings an option back to what the command was started with.
DEFAULT = "default"
#: Options that have a command of their own.
ELSEWHERE = {
    "model": "/model FILE",
    "model_draft": "/draft FILE",
    "system": "/system TEXT",
    "system_file": "/system TEXT",
    "spec_type": "/spec type LIST",
    "reasoning": "/think on or off",
}
#: What is listed even where it was not changed, saved with a conversation, and offered first.
OFTEN = (SAMPLING, SPEC, TEXT)
#: Characters of a value in a list of changes.
BRIEF = 40
#: Where a model comes from; all else that an engine is made of is in its `EngineOptions`.
MODELS = ("model", "hf_repo", "hf_file", "model_draft", "hf_repo_draft", "hf_file_draft")


def settable(values: Values) -> tuple[Option, ...]:
    """What /set takes, in the order of the help."""
    return tuple(
        one
        for one in GENERATION_OPTIONS
        if one.name in values
        and one.name not in (*ELSEWHERE, "prompt", "file")
        and one.group not in (HUB, CONFIG)
        and not (is_remote(values) and of_engines(one.name))
    )


def named(name: str, options: Iterable[Option]) -> Option | None:
    """The option that `find` finds, if there is one."""
    known: dict[str, Option] = {}
    for option in options:
        for flag in (*option.flags, *option.aliases, *option.former, option.name):
            known.setdefault(_plain(flag), option)
    return known.get(_plain(name))


def find(name: str, options: Iterable[Option]) -> Option:
    """The option of this name: any spelling of its flag, with or without dashes in front, underscores for dashes.

    Raises:
        UsageError: there is none; with the closest name.
    """
    options = tuple(options)
    if (known := named(name, options)) is not None:
        return known
    for option in GENERATION_OPTIONS:
        if option.name in ELSEWHERE and _plain(name) in {_plain(flag) for flag in (*option.flags, option.name)}:
            raise UsageError(f"{option.word} is not changed by /set", hint=f"Use {ELSEWHERE[option.name]}.")
    words = [option.word for option in options]
    raise UsageError(
        f"there is no setting {one_line(name):.40}",
        hint=f"{did_you_mean(_plain(name), words)}/params lists the settings.",
    )


def chosen(chat: Chat, name: str) -> Option:
    """The option of this name, among those that the chat can change.

    Raises:
        UsageError: as `find`; or it is about an engine, and a server answers.
    """
    about = named(name, GENERATION_OPTIONS)
    if about is not None and is_remote(chat.values):
        check_changes(chat.values, chat.engine.info, [about.name])
    return find(name, settable(chat.values))


def _plain(name: str) -> str:
    return name.lstrip("-").replace("_", "-").lower() if len(name.lstrip("-")) > 1 else name.lstrip("-")


def parse(option: Option, text: str) -> Any:
    """The value that ``text`` spells, checked; words of an option that may be repeated are told apart as in a shell.
    Where there may be no value, no text is none.

    Raises:
        UsageError: it is no such value, or out of bounds.
    """
    if not text and option.default is None:
        return None
    if not option.many:
        return option.parse(text)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option.word} {text:.40} cannot be read: {error}", hint="Close the quotes.") from None
    values: list[Any] = []
    for word in words:
        one = option.parse(word)
        values += one if isinstance(one, tuple) else [one]
    return tuple(values)


def short(option: Option) -> str:
    """What its list calls it: options of speculation without what all of them begin with."""
    return option.word.removeprefix("spec-").removeprefix("draft-") if option.group == SPEC else option.word


def switch(text: str) -> bool:
    """``on`` or ``off``, or another word for them.

    Raises:
        UsageError: it is neither.
    """
    if text.lower() not in ON + OFF:
        raise UsageError(f"{one_line(text):.40} is neither on nor off", hint="Write on or off.")
    return text.lower() in ON


def shown(value: Any) -> str:
    """A value as /set takes it, where there is one."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple | list):
        return shlex.join(str(one) for one in value) or "(none)"
    return "(none)" if value is None else str(value)


def change(chat: Chat, name: str, text: str) -> str:
    """Sets one option; the engine is loaded anew where it is needed. Returns what to show: a line, and
    one for each option that does nothing any more.

    Raises:
        LocalspecError: the value is not possible, or the engine cannot be loaded with it; all is as before.
    """
    return change_option(chat, chosen(chat, name), translated(f"--{_plain(name)}", text))


def change_option(chat: Chat, option: Option, text: str, *, called: str | None = None) -> str:
    """As `change`; ``called`` is the name to show instead of the flag's."""
    value = chat.given[option.name] if text == DEFAULT else parse(option, text)
    options = settable(chat.values)
    before = ignored(options, chat.values)
    loaded = apply(chat, {option.name: value})
    line = f"{called or option.word} = {shown(value)}" + (", and the engine was loaded anew" if loaded else "")
    return "\n".join([line, *(note for note in ignored(options, chat.values) if note not in before)])


def apply(chat: Chat, changes: Values) -> bool:
    """Sets checked values, all or none; returns whether the engine was loaded anew. Raises as `change`."""
    values = {**chat.values, **changes}
    if values["spec"] != "off" and values["draft_n_min"] > depth(values):
        raise UsageError("spec-draft-n-min is more than spec-draft-n-max", hint="Lower the one or raise the other.")
    if is_remote(values):
        check_changes(values, chat.engine.info, [name for name in changes if values[name] != chat.values[name]])
    request(values, prompt="")  # samplers, biases and template values are read here
    loads = not is_remote(values) and _engine(values) != _engine(chat.values)
    if loads:
        chat.engines.load(values)
        chat.engine_changed()
    chat.values = {**chat.values, **changes}  # a panel may have changed others while the engine was loaded
    return loads


def _engine(values: Values) -> tuple[list[Any], EngineOptions]:
    """What an engine with these values is made of; files need not be looked for."""
    drafts = values["model_draft"] is not None or values["hf_repo_draft"] is not None
    somewhere = Path("-")
    return [values[name] for name in MODELS], engine_options(values, somewhere, somewhere if drafts else None)


def listed(chat: Chat) -> str:
    """The models' files or the server, and all settings, those that were changed marked with a star; what only loading
    needs is left out unless changed."""
    info = chat.engine.info
    with_it = ("  draft model", info.draft or "none") if info.server is None else ("  server", info.server)
    rows = [("  model", info.target), with_it]
    for option in settable(chat.values):
        value, changed = chat.values[option.name], chat.values[option.name] != option.default
        if changed or option.group in OFTEN:
            rows.append((f"{'*' if changed else ' '} {option.word}", shown(value)))
    width = max(len(name) for name, _ in rows)
    return "\n".join([*(f"{name:<{width}}  {value}" for name, value in rows), "* differs from the default"])


def differing(chat: Chat) -> dict[str, Any]:
    """Settings worth saving with a conversation: how text is drawn, guessed and cut, where it is not the default."""
    return {
        option.word: shown(chat.values[option.name])
        for option in settable(chat.values)
        if option.group in OFTEN and chat.values[option.name] != option.default
    }


def system_taken_over(chat: Chat, saved: str | None) -> tuple[str | None, list[str]]:
    """The system message of a saved conversation is part of it, unless one was given on the command line: which one
    is used, and lines that say so where they differ."""
    now = chat.conversation.system
    if now == saved:
        return saved, []
    if chat.typed.isdisjoint({"system", "system_file"}):
        return saved, [f"system message: {in_short(now or '(none)')} -> {in_short(saved or '(none)')}"]
    return now, [f"as it is now: the system message (saved: {in_short(saved or '(none)')})"]


def taken_over(chat: Chat, saved: Values) -> list[str]:
    """Sets what a saved conversation brought, together if possible: one may need another, and each may need the engine
    to be loaded anew. What was given on the command line stays. Returns lines: what changed, what stayed, and what
    could not be set and why."""
    safe = [option for option in settable(chat.values) if option.group in OFTEN]
    before, stay, lost = chat.values, [], []
    changes: dict[str, Any] = {}
    for name, text in saved.items():
        try:
            option = find(name, safe)
            value = parse(option, str(text))
        except UsageError as error:
            lost.append(f"setting {name}: {error.message}")
            continue
        now = before[option.name]
        if option.name not in chat.typed:
            changes[option.name] = value
        elif value != now:
            stay.append(f"{option.word} {_brief(now)} (saved: {_brief(value)})")
    loaded, failed = _apply_what_can_be(chat, changes)
    changed = changes_between(before, chat.values, safe)
    lines = ["settings: " + ", ".join(changed) + ("; the engine was loaded anew" if loaded else "")] if changed else []
    lines += ["as it is now: " + ", ".join(stay)] if stay else []
    return [*lines, *lost, *failed]


def changes_between(before: Values, now: Values, options: Iterable[Option]) -> list[str]:
    """``temp 0.8 -> 0.2`` for each option that has another value."""
    return [
        f"{option.word} {_brief(before[option.name])} -> {_brief(now[option.name])}"
        for option in options
        if now[option.name] != before[option.name]
    ]


def _apply_what_can_be(chat: Chat, changes: Values) -> tuple[bool, list[str]]:
    """All at once, or those that are possible one by one. Returns whether the engine was loaded anew, and why the
    others are not set."""
    try:
        return apply(chat, changes), []
    except LocalspecError:
        pass
    loaded, failed = False, []
    for option in settable(chat.values):
        if option.name in changes:
            try:
                loaded = apply(chat, {option.name: changes[option.name]}) or loaded
            except LocalspecError as error:
                failed.append(f"setting {option.word}: {error.message}")
    return loaded, failed


def _brief(value: Any) -> str:
    text = one_line(shown(value))
    return text if len(text) <= BRIEF else f"{text[: BRIEF - 1]}…"
