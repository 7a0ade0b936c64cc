"""What a server says of itself before it is asked anything else."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from localspec.client.dialect import Dialect, dialect_of
from localspec.client.numbers import count, part
from localspec.client.site import Site
from localspec.client.sse import whole
from localspec.client.web import Broken
from localspec.errors import LocalspecError, UsageError
from localspec.types import EngineInfo

#: What a context is taken for that nobody tells: rather too large, since a server says when it is full.
_UNKNOWN_CONTEXT = 131_072


@dataclass(frozen=True, slots=True)
class Facts:
    """``n_ctx`` is 0 and ``template`` and ``build`` are empty where they are not told; ``drafters`` are those that
    `localspec serve` has."""

    model: str
    dialect: Dialect
    n_ctx: int = 0
    n_ctx_train: int = 0
    n_vocab: int = 0
    template: str = ""
    build: str = ""
    drafters: tuple[str, ...] = ()

    def info(self, url: str, *, n_ctx: int, counts: bool) -> EngineInfo:
        """An engine's facts; what the server does not tell is said in its warnings.

        Args:
            n_ctx: what the user says of the context; 0: nothing.
            counts: the server counts tokens.
        """
        context, warnings = self.n_ctx or n_ctx, []
        if not context:
            context = _UNKNOWN_CONTEXT
            warnings.append(f"{url} does not say how much context it has: -c N does, {context} is assumed")
        if not counts:
            warnings.append(f"{url} counts no tokens before it answers: sizes of prompts are estimates")
        return EngineInfo(
            target=self.model,
            draft=None,
            drafters=self.drafters,
            backend=self.build or self.dialect.name,
            n_ctx=context,
            n_ctx_train=self.n_ctx_train or context,
            n_vocab=self.n_vocab,
            has_template=True,
            warnings=tuple(warnings),
            chat_template=self.template or None,
            server=url,
        )


def facts(site: Site, model: str | None = None) -> Facts:
    """Asks a server what it is.

    Args:
        model: the one to ask for; the first that is listed if ``None``.

    Raises:
        UsageError: it does not have that model.
        NetworkError: it does not answer, or lists no model.
    """
    listed = _models(site)
    if not listed and model is None:
        raise Broken(f"{site.url}/v1/models lists no model", hint="Name one with --server-model, or check the URL.")
    one = _chosen(site.url, listed, model)
    dialect, meta, props = dialect_of(one.get("owned_by")), part(one, "meta"), _props(site)
    settings = part(props, "default_generation_settings")
    build, template, drafters = props.get("build_info"), props.get("chat_template"), props.get("drafters")
    return Facts(
        model=whole(str(one["id"])),
        dialect=dialect,
        n_ctx=count(settings, "n_ctx") or count(meta, "n_ctx") or count(one, "max_model_len"),
        n_ctx_train=count(meta, "n_ctx_train"),
        n_vocab=count(meta, "n_vocab"),
        template=whole(template) if isinstance(template, str) else "",
        build=whole(build) if isinstance(build, str) else "",
        drafters=tuple(whole(str(name)) for name in drafters) if isinstance(drafters, list) else (),
    )


def _models(site: Site) -> list[Mapping[str, Any]]:
    """Those that are listed; none where there is no such list."""
    try:
        found = site.told("/v1/models")
    except UsageError:
        return []
    data = found.get("data") if isinstance(found, dict) else None
    return [one for one in data if isinstance(one, dict) and "id" in one] if isinstance(data, list) else []


def _chosen(url: str, listed: list[Mapping[str, Any]], model: str | None) -> Mapping[str, Any]:
    if model is None:
        return listed[0]
    named = next((one for one in listed if one["id"] == model), None)
    # Servers with one model take any name for it; only of several does it have to be one.
    if named is None and len(listed) > 1:
        names = ", ".join(str(one["id"]) for one in listed[:8])
        raise UsageError(f"{url} has no model {model}", hint=f"It lists {names}.")
    return {**(named or (listed[0] if listed else {})), "id": model}


def _props(site: Site) -> Mapping[str, Any]:
    """llama.cpp's ``/props``; other servers have none."""
    with suppress(LocalspecError):
        found = site.told("/props")
        if isinstance(found, dict):
            return found
    return {}
