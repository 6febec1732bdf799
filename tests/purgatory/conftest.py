from collections.abc import Callable

import pytest

from tests.purgatory.harness import PurgatoryHarness


@pytest.fixture
def harness() -> PurgatoryHarness:
    return PurgatoryHarness()


@pytest.fixture
def new_harness() -> Callable[..., PurgatoryHarness]:
    return PurgatoryHarness
