"""How long prompts are, as the server counts them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from localspec.client.asking import message_record
from localspec.client.facts import Facts
from localspec.client.site import Site
from localspec.client.web import Broken
from localspec.errors import LocalspecError, ModelError, UsageError
from localspec.types import GenerationRequest

#: Bytes of a token, about, where nobody counts.
_BYTES = 4
#: What stands for a token whose id nobody tells.
UNKNOWN = -1


class Counter:
    """Asks a server for the tokens of prompts.

    Attributes:
        works: it tells them; else they are estimated.
    """

    def __init__(self, site: Site, facts: Facts) -> None:
        self._site = site
        self._facts = facts
        self.works = False
        with suppress(LocalspecError):
            self._of_text("a", special=False)
            self.works = True

    def tokens(self, request: GenerationRequest) -> list[int]:
        """The prompt in tokens; of an estimate only the number counts.

        Raises:
            ModelError: the server's chat template refuses the messages.
            NetworkError: the server is gone.
        """
        if request.tokens is not None:
            return list(request.tokens)
        if not self.works:
            return [UNKNOWN] * -(-_size(request) // _BYTES)
        if request.messages is None:
            return self._of_text(request.prompt or "", special=request.special)
        try:
            return self._of_messages(request)
        except UsageError as error:
            raise ModelError(error.message, hint=error.hint) from error

    def _of_messages(self, request: GenerationRequest) -> list[int]:
        assert request.messages is not None
        told: dict[str, Any] = {"messages": [message_record(one) for one in request.messages]}
        if request.template_kwargs:
            told["chat_template_kwargs"] = dict(request.template_kwargs)
        if not self._facts.template:  # only llama.cpp's servers show it, and what it makes of messages
            return self._ids({"model": self._facts.model, **told})
        found = self._site.told("/apply-template", told)
        prompt = found.get("prompt") if isinstance(found, dict) else None
        if not isinstance(prompt, str):
            raise Broken(f"{self._site.url}/apply-template gives no prompt", hint="See the server's log.")
        return self._of_text(prompt, special=True)

    def _of_text(self, text: str, *, special: bool) -> list[int]:
        """llama.cpp's servers read ``content``, vLLM and SGLang ``prompt``."""
        fields = {"content": text, "prompt": text, "add_special": special, "add_special_tokens": special}
        return self._ids({"model": self._facts.model, "parse_special": special, **fields})

    def _ids(self, body: dict[str, Any]) -> list[int]:
        found = self._site.told("/tokenize", body)
        ids = found.get("tokens") if isinstance(found, dict) else None
        if not isinstance(ids, list) or not all(isinstance(one, int) for one in ids):
            raise Broken(f"{self._site.url}/tokenize gives no tokens", hint="See the server's log.")
        return ids


def _size(request: GenerationRequest) -> int:
    texts = [request.prompt or ""] if request.messages is None else [one.content for one in request.messages]
    return sum(len(text.encode()) for text in texts)
