"""Which server it is, and by which names it knows how tokens are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from localspec.errors import UsageError
from localspec.options.rules import depth
from localspec.types import SamplingParams, SpecParams

Body = dict[str, Any]
#: These always go along where the server knows them: what the settings show is what is asked for. Of the others the
#: server's own values count until they are changed here.
_ALWAYS = ("temperature", "top_k", "top_p", "min_p")
#: Sent by functions of their own.
_APART = ("seed", "logit_bias", "grammar")
_OPENAI = ("temperature", "top_p", "frequency_penalty", "presence_penalty")
_LLAMACPP = tuple(one.name for one in fields(SamplingParams) if one.name not in (*_APART, "min_tokens"))
_VLLM = {
    **{name: name for name in (*_OPENAI, "top_k", "min_p", "min_tokens", "ignore_eos")},
    "repeat_penalty": "repetition_penalty",
}
_DEFAULTS = SamplingParams()
#: OpenAI's least bias: it bans a token.
_BANNED = -100.0


def _openai_bias(biases: tuple[tuple[int, float], ...]) -> Any:
    return {str(token): max(bias, _BANNED) for token, bias in biases}


def _llamacpp_bias(biases: tuple[tuple[int, float], ...]) -> Any:
    return [[token, False if bias == -math.inf else bias] for token, bias in biases]


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of server.

    Attributes:
        name: for messages.
        names: field of `SamplingParams` → the name that the server has for it.
        bias: how biases are written.
        grammar: where a grammar stands in a request, from the outside in; none: it takes none.
        extra: fields of every request.
        guesses: whether a request may say how much is guessed.
        continued: fields of a request that goes on with the last message.
        ends: whether an answer to a prompt goes on until the model ends it, if the request names no limit.
        counters: whether its metrics tell of guesses, since its answers do not.
    """

    name: str
    names: Mapping[str, str]
    bias: Callable[[tuple[tuple[int, float], ...]], Any] = _openai_bias
    grammar: tuple[str, ...] = ()
    extra: tuple[tuple[str, Any], ...] = ()
    continued: tuple[tuple[str, Any], ...] = ()
    guesses: bool = False
    ends: bool = False
    counters: bool = False

    def drawn(self, sampling: SamplingParams, seed: int) -> Body:
        """How tokens are drawn, as fields of a request.

        Raises:
            UsageError: the server does not know what was asked for.
        """
        body: Body = {"seed": seed}
        for one in fields(SamplingParams):
            value, usual = getattr(sampling, one.name), getattr(_DEFAULTS, one.name)
            if one.name in _APART or (value == usual and one.name not in _ALWAYS):
                continue
            if one.name in self.names:
                body[self.names[one.name]] = list(value) if isinstance(value, tuple) else value
            elif value != usual:
                raise self.unknown(one.name)
        if sampling.logit_bias:
            body["logit_bias"] = self.bias(sampling.logit_bias)
        if sampling.grammar is not None:
            body |= self._bound(sampling.grammar)
        return body

    def _bound(self, grammar: str) -> Body:
        if not self.grammar:
            raise self.unknown("a grammar or a JSON schema")
        body: Any = grammar
        for name in reversed(self.grammar):
            body = {name: body}
        return dict(body)

    def guessed(self, spec: SpecParams) -> Body:
        """How much may be guessed, where that is not left to the server; raises as `drawn`."""
        usual = SpecParams(mode=spec.mode, depth=depth({"draft_n_max": None, "spec": spec.mode}))
        wish: Body = {} if spec.mode == "auto" else {"mode": spec.mode}
        wish |= {
            told: getattr(spec, name)
            for name, told in _OF_GUESSES.items()
            if getattr(spec, name) != getattr(usual, name)
        }
        if wish and not self.guesses:
            raise self.unknown("--spec and what goes with it")
        return {"speculative": wish} if wish else {}

    def unknown(self, what: str) -> UsageError:
        return UsageError(f"{what} is set, which {self.name} does not know", hint="Leave it as it is by default.")


_OF_GUESSES = {
    "depth": "n_max",
    "min_depth": "n_min",
    "p_min": "p_min",
    "nodes": "tree_nodes",
    "width": "tree_width",
    "accept": "accept",
    "types": "types",
}
_LIVE = ("timings_per_token", True)
_THINKING = ("reasoning_format", "auto")
_GOES_ON = (("add_generation_prompt", False), ("continue_final_message", True))
OPENAI = Dialect("this server", {name: name for name in _OPENAI})
LLAMACPP = Dialect(
    "llama.cpp's server",
    {name: name for name in _LLAMACPP},
    _llamacpp_bias,
    ("grammar",),
    (_LIVE, _THINKING),
    ends=True,
)
LOCALSPEC = Dialect(
    "localspec serve",
    {name: name for name in (*_LLAMACPP, "min_tokens")},
    _llamacpp_bias,
    ("grammar",),
    (_LIVE, _THINKING),
    guesses=True,
    ends=True,
)
VLLM = Dialect("vLLM", _VLLM, grammar=("structured_outputs", "grammar"), continued=_GOES_ON, counters=True)
SGLANG = Dialect("SGLang", _VLLM, grammar=("ebnf",), continued=_GOES_ON)
#: By what a server calls the owner of its models.
_OWNERS = {"llamacpp": LLAMACPP, "localspec": LOCALSPEC, "vllm": VLLM, "sglang": SGLANG}


def dialect_of(owner: object) -> Dialect:
    return _OWNERS.get(owner.lower(), OPENAI) if isinstance(owner, str) else OPENAI
