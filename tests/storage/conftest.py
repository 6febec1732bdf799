from collections.abc import Iterator
from typing import Any

import pytest
import structlog


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[Any]]:
    """Captures what the storage logs."""
    with structlog.testing.capture_logs() as entries:
        yield entries
