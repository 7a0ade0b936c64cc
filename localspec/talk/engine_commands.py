"""Commands about settings, speculation and models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localspec.drafters.files import DRAFT_MODEL, FROM_FILE
from localspec.errors import UsageError
from localspec.hub import is_repo
from localspec.hub.shelf import located
from localspec.models.demo import DEMOS
from localspec.options import GENERATION_OPTIONS, Option, spec_params
from localspec.options.tables.groups import SPEC
from localspec.spec_types import draft_type
from localspec.talk import settings
from localspec.talk.chat import Chat
from localspec.talk.front import Front
from localspec.talk.presets import WORDS, user_presets
from localspec.talk.standing import guessers
from localspec.talk.totals import statistics
from localspec.text.layout import table
from localspec.types import SpecParams

#: Ways to name an option of speculation that leave out what all of them begin with.
PREFIXES = ("", "spec-", "spec-draft-", "spec-tree-")
#: The names that are shown for those that every drafter has.
SPEC_KEYS = ("n-max", "n-min", "p-min", "tree-nodes", "tree-width", "accept")
MODES = ("auto", "fixed", "off")
LONGEST_PATH = 40  # characters
LEFT = 14  # columns of a drafter's name
#: Why a server does not do it.
OWN_PACE = "It makes its steps by itself, and does not tell them apart."


def set_(front: Front, argument: str) -> None:
    name, _, text = argument.partition(" ")
    if not name:
        raise UsageError("/set needs the name of a setting", hint="/params lists them; for example /set temp 0.5")
    if text.strip():
        front.say(settings.change(front.chat, name, text.strip()))
        return
    option = settings.chosen(front.chat, name)
    now = settings.shown(front.chat.values[option.name]) + _drawn(front.chat, option)
    front.say(f"{option.word} = {now} ({option.help})")


def _drawn(chat: Chat, option: Option) -> str:
    """What a seed that is left to chance became."""
    if option.name != "seed" or chat.values["seed"] != -1:
        return ""
    return " (random)" if chat.seed is None else f" (random; the last answer used {chat.seed})"


def params(front: Front, argument: str) -> None:
    front.say(settings.listed(front.chat))


def preset(front: Front, argument: str) -> None:
    presets, chat = user_presets(), front.chat
    verb, _, name = argument.partition(" ")
    if not argument:
        front.say(", ".join(presets.names()) or "there are no presets; /preset save NAME keeps the settings of now")
    elif verb in WORDS and not name.strip():
        raise UsageError(f"/preset {verb} needs a name", hint=f"For example /preset {verb} creative")
    elif verb == "save":
        front.say(f"saved in {presets.save(chat, name.strip())}")
    elif verb == "delete":
        presets.delete(name.strip())
        front.say(f"the preset {name.strip()} is gone")
    else:
        front.say(", ".join(presets.load(chat, argument)) or "that changes nothing")


def stats(front: Front, argument: str) -> None:
    chat = front.chat
    exact = chat.engine.info.exact
    front.say(statistics(chat.last, chat.seed, chat.totals, chat.standings(), front.columns, exact))


def spec(front: Front, argument: str) -> None:
    chat = front.chat
    name, _, text = argument.partition(" ")
    if name in ("on", *MODES) and not text:
        settings.apply(chat, {"spec": _mode_on(chat) if name == "on" else name})
    elif name == "type" and text.strip():
        _set_types(front, text.strip())
    elif name and text.strip():
        option = _spec_option(name)
        front.say(settings.change_option(chat, option, text.strip(), called=settings.short(option)))
        return
    elif name:
        raise UsageError(
            f"/spec {name:.40} is not known or not complete", hint="Use /spec auto, fixed, off or n-max 5."
        )
    front.say(
        "\n".join(
            [_speculation(chat, changed=bool(name)), *table(chat.standings(), front.columns, left=LEFT, indent=2)]
        )
    )


def _mode_on(chat: Chat) -> str:
    """As it was at the start, if it was on."""
    given: str = chat.given["spec"]
    return "auto" if given == "off" else given


def _speculation(chat: Chat, *, changed: bool) -> str:
    """One line: what guesses, and how much; where it is off, what would, unless that was asked for just now."""
    asked, server = spec_params(chat.values), chat.engine.info.server
    if server is not None and not chat.drafters:
        return f"what is guessed is up to {server}"
    if asked.mode == "off" and changed:
        return "speculation is off from the next turn on; /spec on brings it back"
    if asked.mode == "off":
        kept = spec_params({**chat.values, "spec": _mode_on(chat)})
        return f"speculation is off; /spec on makes it {_amounts(chat, kept)}"
    if not chat.drafters:
        return "nothing is loaded that guesses: /spec type suffix, or /draft FILE"
    if asked.depth == 0:
        return "speculation is off: n-max is 0; /spec n-max 3 turns it on"
    return f"speculation is {_amounts(chat, asked)}"


def _amounts(chat: Chat, asked: SpecParams) -> str:
    return (
        f"{asked.mode}: {', '.join(chat.drafters) or 'nothing'} · n-max {asked.depth} · n-min {asked.min_depth}"
        f" · p-min {asked.p_min:g} · tree-nodes {asked.nodes} · tree-width {asked.width} · accept {asked.accept}"
    )


def _set_types(front: Front, text: str) -> None:
    chat = front.chat
    types = tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
    if types in ((), ("none",)):
        settings.apply(chat, {"spec": "off"})
        return
    _check_draft(chat, types)
    loaded = set(types) <= set(chat.engine.info.drafters)
    if not loaded:
        front.say("getting ready: other drafters; the engine starts anew with the same model …")
    settings.apply(chat, {"spec": _mode_on(chat), **({} if loaded else {"spec_type": ",".join(types)})})
    chat.types = types


def _check_draft(chat: Chat, types: tuple[str, ...]) -> None:
    """What loading would refuse as well, with a hint for the command line."""
    lacking = next((one for one in types if one in FROM_FILE), None)
    if lacking is not None and chat.values["model_draft"] is None and chat.values["hf_repo_draft"] is None:
        what = "a draft model" if lacking == DRAFT_MODEL else "a head"
        raise UsageError(f"{lacking} needs {what}", hint="/draft FILE loads one; so does F8 on the full screen.")


def _spec_option(name: str) -> Option:
    options = {one.word: one for one in GENERATION_OPTIONS if one.group == SPEC}
    for prefix in PREFIXES:
        if (option := options.get(prefix + name.lstrip("-").replace("_", "-"))) is not None:
            return option
    raise UsageError(f"/spec has no {name:.40}", hint=f"There are {', '.join(SPEC_KEYS)}.")


def step(front: Front, argument: str) -> None:
    if not front.paces:
        raise UsageError(
            "this prompt has no keys for single steps", hint="The full screen has: localspec chat without --no-tui."
        )
    running = front.chat.running
    if argument:
        running.pace(settings.switch(argument))
    front.say(step_mode(front.chat))


def step_mode(chat: Chat) -> str:
    """How it stands, in words."""
    if not chat.running.paced:
        return "step mode is off: answers come by themselves"
    seldom = "" if spec_params(chat.values).mode == "fixed" else "; with /spec fixed there are guesses in all of them"
    return f"step mode is on: answers wait before every verify step{seldom}"


def think(front: Front, argument: str) -> None:
    chat = front.chat
    if argument:
        option = next(one for one in GENERATION_OPTIONS if one.name == "reasoning")
        option.check(argument)
        settings.apply(chat, {"reasoning": argument})
    front.say(f"thinking: {chat.values['reasoning']}")
    if argument and (remark := chat.reasoning().notice):
        front.say(remark)


def model(front: Front, argument: str) -> None:
    if argument:
        changes = {"model": _path(argument), **_gone(front.chat.values, "hf_repo", "hf_file")}
        settings.apply(front.chat, changes)
    info, drafters = front.chat.engine.info, _drafters(front.chat)
    front.say(f"model {_short(info.target)} · context {info.n_ctx} · {info.backend} · guesses from {drafters}")


def draft(front: Front, argument: str) -> None:
    chat = front.chat
    if argument:
        changes = {"model_draft": None if argument == "off" else _path(argument)}
        changes |= _gone(chat.values, "hf_repo_draft", "hf_file_draft")
        types = _types_with(chat.values["spec_type"], changes["model_draft"])
        changes |= {"spec_type": types, "spec": chat.values["spec"] if argument == "off" else _mode_on(chat)}
        settings.apply(chat, changes)
    front.say(f"draft model: {_short(chat.engine.info.draft or 'none')} · guesses from {_drafters(chat)}")


def _types_with(types: str | None, draft: str | None) -> str | None:
    """--spec-type with what the file ``draft`` is, or without any such; ``None`` leaves the choice open."""
    if types is None:
        return None
    others = [one.strip() for one in types.split(",") if one.strip() not in (*FROM_FILE, "none", "")]
    return ",".join([*([draft_type(Path(draft))] if draft is not None else []), *others]) or None


def _path(name: str) -> str:
    """The file meant: a path (in quotes or not; spaces need none), one of `DEMOS`, or ``user/repo[:quant]`` of the
    cache.

    Raises:
        ModelError: it is one of the latter, and not here.
    """
    path = os.path.expanduser(name.strip("\"'"))
    known = path in DEMOS or (is_repo(path.partition(":")[0]) and not path.lower().endswith(".gguf"))
    return str(located(path)) if known and not os.path.exists(path) else path


def _short(path: str) -> str:
    """A path for one line; /params has it whole."""
    home = os.path.expanduser("~")
    near = path.replace(home, "~", 1) if path.startswith(home + os.sep) else path
    return near if len(near) <= LONGEST_PATH else os.path.basename(path)


def _gone(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: None for name in names if name in values}


def _drafters(chat: Chat) -> str:
    return guessers(chat.engine.info, chat.drafters)
