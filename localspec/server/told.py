"""What the server says of itself: its model, its settings, its slots."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from localspec import __version__
from localspec.server.ledger import Reading
from localspec.server.setting import Setting
from localspec.types import SamplingParams

Record = dict[str, Any]


def models(setting: Setting) -> Record:
    """``/v1/models``."""
    info = setting.info
    meta = {"n_vocab": info.n_vocab, "n_ctx": info.n_ctx, "n_ctx_train": info.n_ctx_train}
    model = {"id": setting.name, "object": "model", "created": setting.since, "owned_by": "localspec", "meta": meta}
    return {"object": "list", "data": [model]}


def props(setting: Setting, sequences: int) -> Record:
    """``/props``, with llama.cpp's names."""
    info, vocab, base = setting.info, setting.vocab, setting.base
    params = {**drawn(base.sampling), "max_tokens": base.max_tokens, "n_predict": base.max_tokens}
    guesses = {"speculative.types": ",".join(info.drafters) or "none", "speculative.n_max": base.spec.depth}
    return {
        "default_generation_settings": {"params": {**params, **guesses}, "n_ctx": info.n_ctx},
        "total_slots": sequences,
        "model_alias": setting.name,
        "model_path": PurePath(info.target).name,
        "modalities": {"vision": False, "audio": False},
        "chat_template": info.chat_template or "",
        "bos_token": vocab.bos_text,
        "eos_token": vocab.eos_text,
        "build_info": f"localspec {__version__} ({info.backend})",
        "drafters": list(info.drafters),
        "warnings": list(info.warnings),
    }


def drawn(params: SamplingParams) -> Record:
    """How tokens are drawn; seed -1: any."""
    told = asdict(params)
    for name in ("logit_bias", "grammar"):
        del told[name]
    return {**told, "seed": -1 if params.seed is None else params.seed}


def slots(reading: Reading, setting: Setting) -> list[Record]:
    """``/slots``, with llama.cpp's names."""
    return [
        {
            "id": slot.number,
            "id_task": slot.task,
            "n_ctx": setting.info.n_ctx,
            "speculative": bool(setting.info.drafters) and slot.speculative,
            "is_processing": slot.busy,
            "n_prompt_tokens": slot.prompt_n + slot.decoded,
            "n_prompt_tokens_cache": slot.cache_n,
            "next_token": [{"n_decoded": slot.decoded}],
        }
        for slot in reading.slots
    ]
