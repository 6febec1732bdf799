from collections.abc import Callable

import pytest

from tests.purgatory.rooms import PurgatoryRoom


@pytest.fixture
def room() -> PurgatoryRoom:
    return PurgatoryRoom()


@pytest.fixture
def make_room() -> Callable[..., PurgatoryRoom]:
    return PurgatoryRoom
