"""What an engine process died of, in words."""

from __future__ import annotations

import re
import signal

from localspec.errors import EngineDied

_MEANINGS = {
    "SIGABRT": "an internal check failed",
    "SIGBUS": "bad memory access",
    "SIGFPE": "arithmetic fault",
    "SIGILL": "illegal instruction",
    "SIGKILL": "killed from outside",
    "SIGSEGV": "bad memory access",
    "SIGTERM": "asked to end from outside",
}
_HINTS = {
    "SIGILL": "This build of llama.cpp does not fit this CPU: rebuild it with scripts/setup, or set"
    " LOCALSPEC_NO_EXTRA_BUFFERS=1.",
    "SIGKILL": "The system may have run out of memory: try a smaller model, a smaller context (-c) or a quantised"
    " cache (-ctk q8_0).",
}
_AGAIN = "Start it again; if it dies again on the same request, that is worth a bug report."
# How ggml, the C++ runtime and the CUDA backend announce an abort.
_LAST_WORDS = re.compile(
    r"GGML_ASSERT|GGML_ABORT|fatal error|what\(\):|CUDA error|out of memory|Remote RPC server|Failed to connect to",
    re.IGNORECASE,
)


def died(returncode: int, log: str) -> EngineDied:
    """The error to report.

    Args:
        returncode: as `subprocess.Popen.returncode`: negative is a signal.
        log: the end of what the process wrote; its last words, if it had any, go into the message.
    """
    if returncode >= 0:
        return EngineDied(_with(f"the engine process ended with code {returncode}", _last_line(log)), hint=_AGAIN)
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = f"signal {-returncode}"
    meaning = f" ({_MEANINGS[name]})" if name in _MEANINGS else ""
    words = next((line for line in reversed(_lines(log)) if _LAST_WORDS.search(line)), "")
    return EngineDied(_with(f"the engine process was killed by {name}{meaning}", words), hint=_HINTS.get(name, _AGAIN))


def _with(message: str, words: str) -> str:
    return f"{message}: {words}" if words else message


def _last_line(log: str) -> str:
    lines = _lines(log)
    return lines[-1] if lines else ""


def _lines(log: str) -> list[str]:
    return [line.strip()[:300] for line in log.splitlines() if line.strip()]
