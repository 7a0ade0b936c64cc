from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.support import Site, serving


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A server that a test leaves as it found it."""
    with serving() as found:
        yield found
