"""Keeps Python's cyclic garbage collector off what a whole run of tests keeps.

The tests of a run and what they import are about a million objects. To visit them all takes most of a second, and
during a run that happens every few seconds: a fifth of its processor time, and a pause in the middle of any test.
"""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
