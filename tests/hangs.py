"""Ends the process of a test that its time limit does not end, a minute later, and prints the stack of each thread.

pytest-timeout raises in the main thread. If a task of an event loop runs just then, asyncio takes the error for that
task's; if the thread is in a C library, nothing is raised. Such a test would wait forever, and the run with it.
pytest-xdist reports the process that ended as the failure of its test, and goes on with another one.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator

import pytest

from tests.kinds import timeout_s

GRACE_S = 60
STDERR = pytest.StashKey[int]()
"""The descriptor that is not captured."""


def pytest_configure(config: pytest.Config) -> None:
    assert sys.__stderr__ is not None
    config.stash[STDERR] = os.dup(sys.__stderr__.fileno())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if limit_s := timeout_s(item):
        faulthandler.dump_traceback_later(limit_s + GRACE_S, exit=True, file=item.config.stash[STDERR])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
