from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.replica.rooms import Room


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(tmp_path)
    yield room
    room.logs.close()
    assert not room.threads.waiting
