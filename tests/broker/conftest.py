"""Every asynchronous test of the broker runs twice: on uvloop, and on asyncio in debug mode."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from odradek.broker.network.connection_limits import ConnectionLimits
from tests.broker.echo_server import Bench, running


def debugging_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    return loop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": debugging_loop}


@pytest.fixture
def limits() -> ConnectionLimits:
    return ConnectionLimits()


@pytest.fixture
async def bench(limits: ConnectionLimits) -> AsyncIterator[Bench]:
    async with running(limits) as bench:
        yield bench
