"""Every asynchronous test of the broker runs twice: on uvloop, and on asyncio in debug mode."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def debugging_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    return loop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": uvloop.new_event_loop, "asyncio": debugging_loop}
