from collections.abc import AsyncIterator

import pytest

from odradek.broker.network.connection_limits import ConnectionLimits
from tests.both_loops import pytest_asyncio_loop_factories, pytest_itemcollected
from tests.broker.network.echo_server import Bench, running
from tests.table_settings import of_table

__all__ = ["pytest_asyncio_loop_factories", "pytest_itemcollected"]


@pytest.fixture
def limits() -> ConnectionLimits:
    return of_table(ConnectionLimits)


@pytest.fixture
async def bench(limits: ConnectionLimits) -> AsyncIterator[Bench]:
    async with running(limits) as bench:
        yield bench
