from collections.abc import Callable

import pytest

from tests.timer.recording_tasks import WheelRoom


@pytest.fixture
def room() -> WheelRoom:
    """Ticks of 1 ms, 20 buckets, at time 0: Kafka's defaults."""
    return WheelRoom()


@pytest.fixture
def make_room() -> Callable[..., WheelRoom]:
    return WheelRoom
