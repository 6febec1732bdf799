from collections.abc import Iterator
from typing import Any

import pytest
import structlog


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[Any]]:
    """What the storage logs, instead of on the screen."""
    with structlog.testing.capture_logs() as entries:
        yield entries
