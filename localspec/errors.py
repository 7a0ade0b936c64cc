"""One tree of errors; each knows its exit code and what the user can do.

LocalspecError            1   anything the engine could not do
├── UsageError            2   a flag, a request or a file of options that makes no sense
│   └── PromptError       2   there is nothing to start from, or more than the context holds
├── ModelError            3   a model that is missing, damaged, or not usable as asked
│   ├── ModelLoadError    3   the file does not load; the reason is in the message
│   ├── ModelFault        3   it loads, but computes nonsense (NaN logits)
│   └── PairingError      3   draft and target have no token in common
├── NetworkError          4   a hub or a server that does not answer as it should
├── OutOfMemory           6   weights, cache or buffers do not fit
├── SpeculationFault      7   speculation changes a text by more than rounding does
├── StoreError            1   saved conversations that cannot be read or written
└── EngineError           1   decoding failed
    ├── DecodeError       1   a forward pass returned an error code
    ├── Cancelled         1   a pass was given up because the request was cancelled
    └── EngineDied        1   the engine process is gone
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a localspec process ends with."""

    OK = 0
    RUNTIME = 1
    USAGE = 2
    MODEL = 3
    NETWORK = 4
    PARTIAL = 5
    MEMORY = 6
    FAULT = 7
    INTERRUPTED = 130
    TERMINATED = 143


class LocalspecError(Exception):
    """Base of everything localspec raises on purpose.

    Args:
        message: what went wrong and why, one sentence without a final newline.
        hint: what to do about it, one sentence; may be empty.
    """

    exit_code: ExitCode = ExitCode.RUNTIME

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.hint))


def _rebuild(kind: type[LocalspecError], message: str, hint: str) -> LocalspecError:
    return kind(message, hint=hint)


class UsageError(LocalspecError):
    exit_code = ExitCode.USAGE


class PromptError(UsageError):
    """``facts``: how many tokens there are and how many the context holds, by llama.cpp's names; empty: no prompt."""

    def __init__(self, message: str, *, hint: str = "", facts: tuple[tuple[str, int], ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.facts = facts

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.hint), {"facts": self.facts})


class ModelError(LocalspecError):
    exit_code = ExitCode.MODEL


class ModelLoadError(ModelError):
    pass


class ModelFault(ModelError):
    pass


class PairingError(ModelError):
    pass


class NetworkError(LocalspecError):
    exit_code = ExitCode.NETWORK


class OutOfMemory(LocalspecError):
    exit_code = ExitCode.MEMORY


class SpeculationFault(LocalspecError):
    exit_code = ExitCode.FAULT


class StoreError(LocalspecError):
    pass


class EngineError(LocalspecError):
    pass


class DecodeError(EngineError):
    pass


class Cancelled(EngineError):
    pass


class EngineDied(EngineError):
    pass
