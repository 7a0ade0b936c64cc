"""What llama.cpp's server answers, and a server that answers so."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.http import answering

METRICS = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total {prompt}
# HELP llamacpp:tokens_predicted_total Number of generation tokens processed.
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total {predicted}
llamacpp:prompt_tokens_cached_total 64
llamacpp:tokens_predicted_seconds_total 1.6e+01
# HELP llamacpp:spec_decode_num_draft_tokens_total Speculative: Total draft tokens generated
# TYPE llamacpp:spec_decode_num_draft_tokens_total counter
llamacpp:spec_decode_num_draft_tokens_total {drafted}
# HELP llamacpp:spec_decode_num_accepted_tokens_total Speculative: Total draft tokens accepted by the target model
# TYPE llamacpp:spec_decode_num_accepted_tokens_total counter
llamacpp:spec_decode_num_accepted_tokens_total {accepted}
# HELP llamacpp:spec_decode_num_drafts_total Speculative: Total speculative decoding verification steps
# TYPE llamacpp:spec_decode_num_drafts_total counter
llamacpp:spec_decode_num_drafts_total {steps}
# HELP llamacpp:requests_processing Number of requests processing
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1
# HELP llamacpp:requests_deferred Number of requests deferred
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 2
# HELP llamacpp:n_busy_slots_per_decode Average number of busy slots per llama_decode() call
# TYPE llamacpp:n_busy_slots_per_decode gauge
llamacpp:n_busy_slots_per_decode nan
# HELP llamacpp:spec_decode_num_accepted_tokens_per_pos_total Accepted tokens per draft position
# TYPE llamacpp:spec_decode_num_accepted_tokens_per_pos_total counter
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="0"}} 40
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="1"}} 10
"""
PROPS = {
    "default_generation_settings": {"params": {"temperature": 0.8}, "n_ctx": 4096},
    "total_slots": 2,
    "model_alias": "smol.gguf",
    "model_path": "/models/smol.gguf",
    "endpoint_slots": True,
    "endpoint_metrics": True,
    "build_info": "b6500-abcdef",
    "is_sleeping": False,
}


def metrics(prompt: float = 100, predicted: float = 1000) -> str:
    return METRICS.format(prompt=prompt, predicted=predicted, drafted=100, accepted=50, steps=50)


def slot(number: int = 0, *, task: int = 7, decoded: int = 20, busy: bool = True) -> dict[str, object]:
    return {
        "id": number,
        "n_ctx": 4096,
        "speculative": True,
        "is_processing": busy,
        "id_task": task,
        "n_prompt_tokens": 30 + decoded,
        "n_prompt_tokens_processed": 30,
        "n_prompt_tokens_cache": 0,
        "params": {"temperature": 0.8},
        "next_token": [{"has_next_token": True, "has_new_line": False, "n_remain": -1, "n_decoded": decoded}],
    }


#: As servers of a year before have it, and one that has done nothing yet.
OLD_SLOT = {"id": 0, "id_task": 3, "n_ctx": 512, "is_processing": True, "next_token": {"n_decoded": 5}}
FRESH_SLOT = {"id": 1, "n_ctx": 4096, "speculative": True, "is_processing": False}
#: One whose answer is over: its tokens are in the counters now.
DONE_SLOT = {**slot(decoded=0, busy=False), "n_prompt_tokens": 54, "n_prompt_tokens_processed": 0}


def refusal(code: int, message: str) -> tuple[int, str]:
    kind = "not_supported_error" if code == 501 else "unavailable_error"
    return code, json.dumps({"error": {"code": code, "message": message, "type": kind}})


@dataclass
class Pages:
    """Path → status and body; what was asked, with the keys that came."""

    pages: dict[str, tuple[int, str]] = field(default_factory=dict)
    keys: list[str | None] = field(default_factory=list)

    @classmethod
    def usual(cls, **changes: tuple[int, str]) -> Pages:
        pages = {
            "/health": (200, '{"status":"ok"}'),
            "/props": (200, json.dumps(PROPS)),
            "/slots": (200, json.dumps([slot(), FRESH_SLOT])),
            "/metrics": (200, metrics()),
        }
        return cls({**pages, **{f"/{name}": page for name, page in changes.items()}})


@contextmanager
def serving(pages: Pages) -> Iterator[str]:
    """The URL of a server with these pages."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            pages.keys.append(self.headers.get("Authorization"))
            found: Mapping[str, tuple[int, str]] = pages.pages
            status, body = found.get(self.path, refusal(404, "File Not Found"))
            data = body.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with answering(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url
