from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.replica.harness import ReplicaHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[ReplicaHarness]:
    harness = ReplicaHarness(tmp_path)
    yield harness
    harness.logs.close()
    assert not harness.threads.waiting
