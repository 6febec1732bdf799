from tests.both_loops import pytest_asyncio_loop_factories, pytest_itemcollected

__all__ = ["pytest_asyncio_loop_factories", "pytest_itemcollected"]
