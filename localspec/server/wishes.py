"""What one HTTP request wants of the engine, whatever protocol it came by."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from localspec.chat import Reasoning, reasoning_of, template_variables
from localspec.chat.reasoning import Mode
from localspec.errors import LocalspecError, UsageError
from localspec.server.errors import ApiError, invalid
from localspec.server.fields import Fields, blamed, is_whole
from localspec.server.messages import content, messages
from localspec.server.sampling import format_grammar, grammar, sampling, speculation
from localspec.server.setting import Setting
from localspec.server.tools import NO_TOOLS, Tools, tools
from localspec.types import GenerationRequest, Message

_MOST_CHOICES, _MOST_STOPS, _MOST_RIVALS = 128, 256, 100
#: Fields that would change the answer and cannot be honoured, with the values that mean nothing.
_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "echo": (False,),
    "suffix": ("",),
    "best_of": (1,),
    "n_indent": (0,),
    "t_max_predict_ms": (0, -1),
    "lora": ([],),
    "post_sampling_probs": (False,),
    "modalities": (["text"],),
    "audio": ({},),
    "previous_response_id": ("",),
    "conversation": ("",),
    "background": (False,),
    "response_fields": ([],),
    "web_search_options": (),
}


@dataclass(frozen=True, slots=True)
class Wish:
    """One request a choice, in order; ``each`` choices belong to one prompt.

    ``reasoning``: how thinking is told from the answer, ``None``: it is not. ``rivals``: log-probabilities are wanted,
    with so many rivals a token. ``slot``: the one to be shown in, -1 for any. ``live``: timings in every chunk;
    ``progress``: how far the prompt is read. ``source``: the field that has the prompt; ``texts``: prompts as they are
    read, for forms that repeat them; ``echo``: what a response repeats of its request.
    """

    requests: tuple[GenerationRequest, ...]
    model: str
    each: int = 1
    stream: bool = False
    usage: bool = False
    live: bool = False
    progress: bool = False
    rivals: int | None = None
    slot: int = -1
    tools: Tools = NO_TOOLS
    reasoning: Reasoning | None = None
    ids: bool = False
    source: str = "messages"
    texts: tuple[str, ...] = ()
    echo: Mapping[str, Any] = field(default_factory=dict)


def chat(fields: Fields, setting: Setting) -> Wish:
    """``/v1/chat/completions``.

    Raises:
        ApiError: it makes no sense, or cannot be honoured.
    """
    offered = tools(fields)
    told = _told(fields, setting)
    rivals = fields.whole("top_logprobs", least=0, most=_MOST_RIVALS) or 0
    if rivals and not fields.flag("logprobs"):
        raise invalid("top_logprobs is given without logprobs", "top_logprobs")
    request = _drawn(fields, setting)
    wanted = rivals if fields.flag("logprobs") else None
    return _of_messages(fields, setting, request, told, offered, rivals=wanted)


def responses(fields: Fields, setting: Setting) -> Wish:
    """``/v1/responses``, without anything that a server would have to remember.

    Raises:
        ApiError: as `chat`.
    """
    offered = tools(fields)
    renamed = Fields({**fields.found, "messages": _turns(fields), "max_tokens": fields.get("max_output_tokens")})
    told = _told(renamed, setting)
    request = _drawn(renamed, setting)
    if "message.output_text.logprobs" in (fields.texts("include") or ()) or fields.get("top_logprobs"):
        name = "top_logprobs" if fields.get("top_logprobs") else "include"
        raise fields.refused(name, "asks for log-probabilities, which are offered by /v1/chat/completions alone")
    metadata = fields.part("metadata")
    fields.flag("store")  # nothing is stored, whatever it says, and the response says so
    echo = {
        "metadata": {} if metadata is None else metadata.found,
        "instructions": fields.text("instructions"),
        "strict": [(one.part("function") or one).flag("strict") for one in fields.parts("tools")],
    }
    text = fields.part("text")
    if text is not None and (form := text.part("format")) is not None and (bound := format_grammar(form)) is not None:
        request = replace(request, sampling=replace(request.sampling, grammar=bound))
    wish = _of_messages(renamed, setting, request, told, offered, rivals=None)
    return replace(wish, source="input", echo=echo)


def completions(fields: Fields, setting: Setting) -> Wish:
    """``/v1/completions``; raises as `chat`."""
    rivals = fields.whole("logprobs", least=0, most=_MOST_RIVALS)
    return _of_prompts(fields, setting, rivals)


def native(fields: Fields, setting: Setting) -> Wish:
    """llama.cpp's ``/completion``; raises as `chat`."""
    rivals = fields.whole("n_probs", least=0, most=_MOST_RIVALS)
    return replace(_of_prompts(fields, setting, rivals or None), ids=fields.flag("return_tokens"))


def _told(fields: Fields, setting: Setting) -> tuple[Message, ...]:
    """The messages, behind the server's own system message where they have none."""
    found = messages(fields, template_has_tools=setting.knows_tools)
    if setting.system is None or found[0].role == "system":
        return found
    return (Message("system", setting.system), *found)


def _of_messages(
    fields: Fields,
    setting: Setting,
    request: GenerationRequest,
    told: tuple[Message, ...],
    offered: Tools,
    *,
    rivals: int | None,
) -> Wish:
    if offered.forced:
        if request.sampling.grammar is not None:
            raise invalid("tool_choice demands a call, and a form of the answer is given, too", "tool_choice")
        request = replace(request, sampling=replace(request.sampling, grammar=offered.grammar()))
    if not _opens(fields, told):
        raise fields.refused("add_generation_prompt", "is false: an answer is always begun here")
    told, variables = _with_tools(fields, setting, told, offered)
    bound = request.sampling.grammar is not None
    reasoning = reasoning_of(setting.info.chat_template, _mode(fields, setting), variables, bound=bound)
    request = replace(
        request,
        prompt=None,
        messages=told,
        logprobs=rivals,
        template_kwargs=tuple(reasoning.variables.items()),
        draft_from=_prediction(fields),
    )
    told_apart = not bound and fields.choice("reasoning_format", ("none", "auto", "deepseek")) != "none"
    wish = _wish(fields, setting, (request,), rivals)
    return replace(wish, tools=offered, reasoning=reasoning if told_apart else None)


def rendered(fields: Fields, setting: Setting) -> str:
    """The text that a chat's request makes the model read: ``/apply-template``.

    Raises:
        ApiError: as `chat`, or there is no chat template.
    """
    if setting.template is None:
        raise invalid("this model has no chat template")
    offered, vocab = tools(fields), setting.vocab
    told = _told(fields, setting)
    opens = _opens(fields, told)
    told, variables = _with_tools(fields, setting, told, offered)
    bound = offered.forced or grammar(fields) is not None
    variables = reasoning_of(setting.info.chat_template, _mode(fields, setting), variables, bound=bound).variables
    try:
        return setting.template.render(
            told, bos=vocab.bos_text, eos=vocab.eos_text, answer=opens, variables=variables
        ).text
    except LocalspecError as error:
        raise ApiError.of(error) from None


def _with_tools(
    fields: Fields, setting: Setting, told: tuple[Message, ...], offered: Tools
) -> tuple[tuple[Message, ...], dict[str, object]]:
    """Messages and variables for the template, which tell of the functions in one way or the other."""
    variables = _variables(fields, setting)
    if offered.offered and not setting.knows_tools:
        return offered.in_words(told), variables
    return told, {**variables, "tools": list(offered.declared)} if offered.offered else variables


def _opens(fields: Fields, told: tuple[Message, ...]) -> bool:
    """Whether the text ends where an answer goes on; an answer that stands last is gone on with."""
    begins, said = fields.flag("add_generation_prompt", True), told[-1].role == "assistant"
    goes_on = fields.flag("continue_final_message", said and begins)
    if goes_on and not said:
        raise fields.refused("continue_final_message", "is true, but the last message is no answer")
    if said and begins and not goes_on:
        raise fields.refused("continue_final_message", "is false: an answer that stands last is always gone on with")
    return goes_on or begins


def _mode(fields: Fields, setting: Setting) -> Mode:
    told: object = fields.get("reasoning")
    match told:
        case None | dict():  # of responses an object, which asks for effort
            return setting.reasoning
        case "auto" | "on" | "off":
            return told
        case _:
            raise fields.wrong("reasoning", "one of auto, on, off")


def _variables(fields: Fields, setting: Setting) -> dict[str, object]:
    """For the template: the server's, then the request's."""
    found = dict(setting.base.template_kwargs)
    if (part := fields.part("chat_template_kwargs")) is not None:
        try:
            found |= template_variables(json.dumps(part.found))
        except UsageError as error:
            raise blamed(error, "chat_template_kwargs") from None
    if (effort := fields.text("reasoning_effort")) is not None:
        found.setdefault("reasoning_effort", effort)
    return found


def _prediction(fields: Fields) -> tuple[str, ...]:
    """A text that the answer may repeat in part: OpenAI's ``prediction``."""
    part = fields.part("prediction")
    text = "" if part is None else content(part)
    return (text,) if text else ()


def _of_prompts(fields: Fields, setting: Setting, rivals: int | None) -> Wish:
    prompts = _prompts(fields, setting)
    request = replace(_drawn(fields, setting), logprobs=rivals)
    asked = [
        replace(request, prompt=one) if isinstance(one, str) else replace(request, prompt=None, tokens=tuple(one))
        for one in prompts
    ]
    texts = tuple(one if isinstance(one, str) else _spelt(one, setting) for one in prompts)
    return replace(_wish(fields, setting, asked, rivals), source="prompt", texts=texts)


def _spelt(tokens: list[int], setting: Setting) -> str:
    return b"".join(setting.vocab.piece(one, special=True) for one in tokens).decode("utf-8", "replace")


def _prompts(fields: Fields, setting: Setting) -> list[str | list[int]]:
    value = fields.get("prompt")
    if value is None:
        raise invalid("prompt is missing", "prompt")
    several = isinstance(value, list) and bool(value) and not any(map(is_whole, value))
    found = [_prompt(one, fields, setting) for one in (value if several else [value])]
    if len(found) > _MOST_CHOICES:
        raise fields.wrong("prompt", f"a list of at most {_MOST_CHOICES} prompts")
    return found


def _prompt(value: Any, fields: Fields, setting: Setting) -> str | list[int]:
    """A text, or tokens, among which there may be texts."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        inner = Fields(value, "prompt")
        if inner.get("multimodal_data"):
            raise inner.refused("multimodal_data", "is given: this server takes text alone")
        return inner.needed_text("prompt_string")
    if not isinstance(value, list) or not value:
        raise fields.wrong("prompt", "a text, a list of tokens, or a list of such")
    tokens: list[int] = []
    for one in value:
        if isinstance(one, str):
            tokens += setting.vocab.tokenize(one, special=True)
        elif is_whole(one) and 0 <= one < setting.info.n_vocab:
            tokens.append(one)
        else:
            raise fields.wrong("prompt", f"of tokens below {setting.info.n_vocab}")
    return tokens


def _drawn(fields: Fields, setting: Setting) -> GenerationRequest:
    """The request without its text: how long, how drawn, how guessed."""
    for name, harmless in _REFUSED.items():
        if fields.has(name) and fields.get(name) not in harmless:
            raise fields.refused(name, "is not offered here")
    base = setting.base
    stop = fields.texts("stop")
    if stop is not None and (len(stop) > _MOST_STOPS or not all(stop)):
        raise invalid(f"stop has an empty text, or more than {_MOST_STOPS} texts", "stop")
    limits = [fields.whole(name, least=-1) for name in ("max_completion_tokens", "max_tokens", "n_predict")]
    limit = next((one for one in limits if one is not None), base.max_tokens)
    return replace(
        base,
        max_tokens=limit,
        stop=base.stop if stop is None else stop,
        sampling=sampling(fields, base.sampling, setting.vocab.tokenize, setting.info.n_vocab),
        spec=speculation(fields, base.spec),
    )


def _wish(fields: Fields, setting: Setting, asked: Sequence[GenerationRequest], rivals: int | None) -> Wish:
    each = fields.whole("n", least=1, most=_MOST_CHOICES) or 1
    requests = tuple(_variant(one, number) for one in asked for number in range(each))
    if len(requests) > setting.places:
        raise invalid(f"{len(requests)} answers are asked for at once, this server has {setting.places} places", "n")
    options, slot = fields.part("stream_options"), fields.whole("id_slot", least=-1)
    fields.text("model")
    return Wish(
        requests,
        setting.name,
        each=each,
        stream=fields.flag("stream"),
        usage=options is not None and options.flag("include_usage"),
        live=fields.flag("timings_per_token"),
        progress=fields.flag("return_progress"),
        rivals=rivals,
        slot=-1 if slot is None else slot,
    )


def _variant(request: GenerationRequest, number: int) -> GenerationRequest:
    """Choices of one prompt differ by their seeds."""
    seed = request.sampling.seed
    if number == 0 or seed is None:
        return request
    return replace(request, sampling=replace(request.sampling, seed=(seed + number) % 2**64))


def _turns(fields: Fields) -> list[dict[str, Any]]:
    """``instructions`` and ``input`` of a response as messages."""
    turns: list[dict[str, Any]] = []
    if (instructions := fields.text("instructions")) is not None:
        turns.append({"role": "system", "content": instructions})
    value = fields.get("input")
    if isinstance(value, str):
        return [*turns, {"role": "user", "content": value}]
    if not fields.has("input"):
        raise invalid("input is missing", "input")
    return turns + [_turn(item) for item in fields.parts("input")]


def _turn(item: Fields) -> dict[str, Any]:
    kind = item.text("type") or "message"
    if kind == "message":
        return {"role": item.text("role") or "user", "content": item.get("content")}
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        return {"role": "assistant", "tool_calls": [{"id": item.text("call_id"), "function": function}]}
    if kind == "function_call_output":
        output = item.get("output")
        told = output if isinstance(output, str) else json.dumps(output)
        return {"role": "tool", "tool_call_id": item.text("call_id"), "content": told}
    raise item.refused("type", f"is {kind!r}, which is not offered here")
