"""What goes wrong, as clients of OpenAI's protocol know it: a status, and an object that says why."""

from __future__ import annotations

from typing import Any

from localspec.errors import LocalspecError, PromptError
from localspec.types import Failed

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    503: "unavailable_error",
    504: "timeout_error",
}
#: Of `LocalspecError`, those that the request is to blame for.
_BLAMED = ("UsageError", "ModelError", "PromptError")
_GONE = "EngineDied"


class ApiError(Exception):
    """An answer that is an error.

    Args:
        status: of HTTP.
        message: what is wrong, and what to do.
        param: the field that it is about.
        code: a word for programs.
        retry_after: seconds after which it may be tried again.
        facts: numbers beside these, by llama.cpp's names.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
        facts: tuple[tuple[str, int], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after = retry_after
        self.facts = facts

    @classmethod
    def of(cls, error: LocalspecError | Failed, prompt: str | None = None) -> ApiError:
        """What the engine says; ``prompt`` is the field that has one.

        A request that makes no sense is 400, one that came to an engine which is gone 503.
        """
        kind = error.kind if isinstance(error, Failed) else type(error).__name__
        message = f"{error.message}. {error.hint}" if error.hint else error.message
        if kind == "PromptError":
            facts = error.facts if isinstance(error, Failed | PromptError) else ()
            return cls(400, message, param=prompt, code="context_length_exceeded" if facts else None, facts=facts)
        if kind in _BLAMED:
            return cls(400, message)
        if kind == _GONE:
            return cls(503, f"{error.message}. It is being started again.", code="engine_died", retry_after=1)
        return cls(500, message)

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}

    @property
    def record(self) -> dict[str, Any]:
        """OpenAI's object, with numbers of llama.cpp's in it where there are any."""
        kind = _KINDS.get(self.status, "server_error")
        told = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": told | dict(self.facts)}


def invalid(message: str, param: str | None = None, *, code: str | None = None) -> ApiError:
    """A request that makes no sense."""
    return ApiError(400, message, param=param, code=code)
