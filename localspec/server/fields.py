"""Fields of a JSON object that somebody sent: read by name, refused by name where they have another type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from localspec.errors import LocalspecError
from localspec.server.errors import ApiError, invalid

_INT = 2**31 - 1
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse(body: bytes) -> Fields:
    """The object that a request's body is.

    Raises:
        ApiError: it is none.
    """
    try:
        found = json.loads(body, parse_constant=_refused)
        if _SURROGATE.search(body):  # half of a character: no tokenizer takes it
            _encodable(found)
    except RecursionError:
        raise invalid("the body is nested too deeply") from None
    except UnicodeError:
        raise invalid("the body is not UTF-8 text") from None
    except ValueError as error:
        raise invalid(f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise invalid("the body is no JSON object")
    return Fields(found)


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _encodable(value: Any) -> None:
    json.dumps(value, ensure_ascii=False).encode()


class Fields:
    """``null`` is as good as a missing field, unknown ones are nobody's business.

    Args:
        found: the object.
        place: where it stands, for messages (``tools[0].function``).
    """

    def __init__(self, found: Mapping[str, Any], place: str = "") -> None:
        self.found = found
        self.place = place

    def name(self, field: str) -> str:
        """How messages call a field."""
        return f"{self.place}.{field}" if self.place else field

    def has(self, field: str) -> bool:
        return self.found.get(field) is not None

    def get(self, field: str) -> Any:
        return self.found.get(field)

    def wrong(self, field: str, wanted: str) -> ApiError:
        return invalid(f"{self.name(field)} is not {wanted}", self.name(field))

    def text(self, field: str) -> str | None:
        value = self.get(field)
        if value is not None and not isinstance(value, str):
            raise self.wrong(field, "a text")
        return value

    def needed_text(self, field: str) -> str:
        value = self.text(field)
        if value is None:
            raise invalid(f"{self.name(field)} is missing", self.name(field))
        return value

    def choice(self, field: str, choices: Sequence[str]) -> str | None:
        value = self.text(field)
        if value is not None and value not in choices:
            raise self.wrong(field, f"one of {', '.join(choices)}")
        return value

    def flag(self, field: str, default: bool = False) -> bool:
        value = self.get(field)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(field, "true or false")
        return value

    def whole(self, field: str, *, least: int = -_INT - 1, most: int = _INT) -> int | None:
        value = self.get(field)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not is_whole(value):
            raise self.wrong(field, "an integer")
        if not least <= value <= most:
            raise self.wrong(field, f"in {least} … {most}")
        return int(value)

    def number(self, field: str) -> float | None:
        value = self.get(field)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e300:
            raise self.wrong(field, "a number")
        return float(value)

    def items(self, field: str) -> list[Any] | None:
        value = self.get(field)
        if value is not None and not isinstance(value, list):
            raise self.wrong(field, "a list")
        return value

    def texts(self, field: str) -> tuple[str, ...] | None:
        """A list of texts, or a single one."""
        value = self.get(field)
        if isinstance(value, str):
            return (value,)
        items = self.items(field)
        if items is not None and not all(isinstance(item, str) for item in items):
            raise self.wrong(field, "a text or a list of texts")
        return None if items is None else tuple(items)

    def part(self, field: str) -> Fields | None:
        """An object within this one."""
        value = self.get(field)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(field, "an object")
        return Fields(value, self.name(field))

    def parts(self, field: str) -> Iterator[Fields]:
        """A list of objects."""
        for number, item in enumerate(self.items(field) or ()):
            if not isinstance(item, dict):
                raise self.wrong(field, "a list of objects")
            yield Fields(item, f"{self.name(field)}[{number}]")

    def refused(self, field: str, why: str) -> ApiError:
        return invalid(f"{self.name(field)} {why}", self.name(field), code="unsupported_parameter")


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def blamed(error: LocalspecError, field: str) -> ApiError:
    """What the library says of a value, as the fault of ``field``."""
    message = f"{error.message}. {error.hint}" if error.hint else error.message
    return invalid(message, field)
