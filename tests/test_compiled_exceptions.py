"""An exception of a compiled module is an ordinary class: mypyc would never free the attributes of its instances.

A client that sends what does not decode raises one each time.
"""

from __future__ import annotations

import gc
import importlib

import pytest

from tests.conftest import SETUP

COUNT = 100


def exceptions() -> list[type[BaseException]]:
    """Returns those that are defined in a compiled module."""
    names = [path.removesuffix(".py").replace("/", ".") for path in SETUP.COMPILED]
    modules = [importlib.import_module(name) for name in names]
    return [
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, BaseException) and each.__module__ == module.__name__
    ]


@pytest.mark.parametrize("exception", exceptions(), ids=lambda exception: exception.__name__)
def test_an_exception_frees_its_attributes(exception: type[BaseException]) -> None:
    for _ in range(COUNT):
        error = exception.__new__(exception)
        error.__dict__["a mark of this test"] = exception
        del error
    gc.collect()
    left = [each for each in gc.get_objects() if type(each) is dict and "a mark of this test" in each]
    assert len(left) == 0
