"""A ZooKeeper model, and an empty path in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.broker.migration.nodes import Migrations
from tests.zookeeper.model import ZooKeeperModel
from tests.zookeeper.stores import new_chroot


@pytest.fixture
async def migrations() -> AsyncIterator[Migrations]:
    model = ZooKeeperModel()
    async with model.served() as address:
        yield Migrations(model, address, new_chroot())
