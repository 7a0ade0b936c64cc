"""What an error in a step ends, and what it does not."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from localspec.engine.answer import Answer
from localspec.engine.slots import Slots
from localspec.errors import Cancelled, LocalspecError

log = logging.getLogger(__name__)


class Guard:
    """An error ends these answers and no others; their state is in doubt, so their slots go with them."""

    __slots__ = ("_answers", "_slots")

    def __init__(self, answers: Sequence[Answer], slots: Slots) -> None:
        self._answers = answers
        self._slots = slots

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, LocalspecError) or isinstance(error, Cancelled):
            return False
        log.warning("%s", error)
        for answer in self._answers:
            answer.fail(error)
            self._slots.drop(answer.slot)
        return True
