"""Brokers of one process share the API table. It depends on the release alone, and nothing of it can change."""

import inspect
from collections.abc import Iterator
from enum import Enum
from functools import partial
from types import FunctionType, MappingProxyType, NoneType
from typing import Any

import pytest

from odradek.broker.handlers import api_table as rows_of_apis
from odradek.broker.handlers.api_row import ApiRow, ApiTable
from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig
from odradek.broker.settings.odradek import RELEASES

ATOMS = (bool, int, str, bytes, Enum, type, NoneType)
OLDEST = RELEASES[0]


def broker(release: str | None = None) -> Broker:
    return Broker(BrokerConfig.single_node({} if release is None else {"odradek.as.version": release}))


def inside(value: Any) -> Iterator[Any]:
    """Yields what an immutable object consists of. Raises TypeError for an object that can change."""
    if isinstance(value, ATOMS):
        return
    if isinstance(value, MappingProxyType):
        yield from (*value.keys(), *value.values())
    elif isinstance(value, (tuple, frozenset)):
        assert not hasattr(value, "__dict__"), "a subclass needs __slots__"
        yield from value
    elif isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, FunctionType):
        yield from inspect.getclosurevars(value).nonlocals.values()
        yield from (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
    elif not inspect.isbuiltin(value):
        raise TypeError(f"{value!r} can change")


def assert_immutable(value: Any, seen: dict[int, Any], way: str) -> None:
    if id(value) not in seen:
        seen[id(value)] = value
        for part in inside(value):
            assert_immutable(part, seen, f"{way} > {type(value).__name__}")


@pytest.mark.parametrize("release", [None, OLDEST])
def test_nothing_in_the_table_can_change(release: str | None) -> None:
    table = broker(release).api_table
    assert {type(row) for row in table.rows()} == {ApiRow}
    assert_immutable(table, {}, "")


@pytest.mark.parametrize("part", [[], {}, set(), bytearray(), ApiRow.__new__.__globals__, lambda kept=[]: kept])
def test_what_can_change_would_be_found(part: Any) -> None:
    with pytest.raises(TypeError, match="can change"):
        assert_immutable((1, MappingProxyType({"a": part})), {}, "")


def test_brokers_share_one_table_for_each_release(monkeypatch: pytest.MonkeyPatch) -> None:
    first, old = broker().api_table, broker(OLDEST).api_table
    monkeypatch.setattr(ApiTable, "of", lambda _: pytest.fail("a table is made again"))
    monkeypatch.setattr(rows_of_apis, "api_row", lambda *_, **__: pytest.fail("a row is made again"))
    assert broker().api_table is first
    assert broker(OLDEST).api_table is old
    assert old is not first


def test_callers_cannot_change_the_rows_of_others() -> None:
    table = broker().api_table
    found = table.rows()
    table.rows().clear()
    table.client_rows().clear()
    assert table.rows() == found
    with pytest.raises(AttributeError):
        table.by_key = {}  # type: ignore[misc]
    with pytest.raises(TypeError):
        table.by_key[0] = found[0]  # type: ignore[index]
    with pytest.raises(AttributeError):
        found[0].served = found[1].served  # type: ignore[misc]
