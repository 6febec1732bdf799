import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[Any]]:
    """What the storage logs, instead of on the screen."""
    with structlog.testing.capture_logs() as entries:
        yield entries
