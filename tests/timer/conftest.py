from collections.abc import Callable

import pytest

from tests.timer.recording_tasks import WheelHarness


@pytest.fixture
def harness() -> WheelHarness:
    """Ticks of 1 ms, 20 buckets, at time 0: Kafka's defaults."""
    return WheelHarness()


@pytest.fixture
def new_harness() -> Callable[..., WheelHarness]:
    return WheelHarness
