"""Asynchronous tests run on uvloop, as a broker does; with `second_loop` each runs again, on asyncio in debug mode.

A folder's conftest.py imports both hooks.
"""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

from tests.kinds import is_chosen


def debugging_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    return loop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    loops = {"quick": ("uvloop", uvloop.new_event_loop), "second_loop": ("asyncio", debugging_loop)}
    return dict(loop for kind, loop in loops.items() if is_chosen(config, kind))


def pytest_itemcollected(item: pytest.Function) -> None:
    if hasattr(item, "callspec") and debugging_loop in item.callspec.params.values():
        item.add_marker("second_loop")
