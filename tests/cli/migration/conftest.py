"""A ZooKeeper model, and an empty path in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.both_loops import pytest_asyncio_loop_factories, pytest_itemcollected
from tests.cli.migration.nodes import Migrations
from tests.zookeeper.model import ZooKeeperModel
from tests.zookeeper.stores import new_chroot

__all__ = ["pytest_asyncio_loop_factories", "pytest_itemcollected"]


@pytest.fixture
async def migrations() -> AsyncIterator[Migrations]:
    model = ZooKeeperModel()
    async with model.served() as address:
        yield Migrations(model, address, new_chroot())
