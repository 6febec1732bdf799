"""The memory that each operation leaves behind is measured, and every API has an operation."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from benchmarks import memory_of_operations
from benchmarks.memory_of_operations import LEFT_OUT, Kept, Operation, Operations, notes, soak, table
from odradek.broker.handlers.api_table import api_table
from odradek.testing import BrokerThread
from tests.scenarios.known_world import SETTINGS

AGAIN = ("Fetch", "a topic created and deleted", "a member joins, syncs and leaves", "a transaction with offsets")


@pytest.fixture(scope="module")
def operations() -> Iterator[Operations]:
    with BrokerThread(SETTINGS) as thread, closing(Operations(thread)) as operations:
        yield operations


def test_every_api_is_measured_or_excluded_with_a_reason(operations: Operations) -> None:
    names = {operation.name for operation in operations.all()}
    assert {row.key.api_name for row in api_table().client_rows()} <= names | LEFT_OUT.keys()


@pytest.mark.parametrize(
    "name", ["Fetch", "a topic created and deleted", "a member joins, syncs and leaves", "a transaction with offsets"]
)
def test_an_operation_can_be_repeated(operations: Operations, name: str) -> None:
    (operation,) = [operation for operation in operations.all() if operation.name == name]
    operation.run(3)
    operation.run(3)


def test_retained_memory_excludes_the_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bytes] = []

    class Leaking:
        def all(self) -> Iterator[Operation]:
            yield Operation("leaks", keep)
            yield Operation("clean", lambda count: None)

    def keep(count: int) -> None:
        held.append(bytes(100 * count))

    monkeypatch.setattr(memory_of_operations, "memory", lambda: (sum(map(len, held)), 0))
    leaking: Any = Leaking()
    kept = soak(leaking, set(), 1000, 0)
    assert kept == {"leaks": Kept(1000, 100_000, 0), "clean": Kept(1000, 0, 0)}
    assert table(kept).splitlines()[2] == "| leaks | 1,000 | 1,000,000 | 0 |"


def test_requests_that_return_an_error_are_named(operations: Operations) -> None:
    for operation in operations.all():
        if operation.name in ("Metadata", "SaslHandshake"):
            operation.run(2)
    assert operations.errors["Metadata"] == set()
    lines = notes(operations.errors).splitlines()
    assert "* DeleteGroups: there is nothing to delete the second time" in lines
    assert "* SaslHandshake: ILLEGAL_SASL_STATE" in lines
    assert not any(line.startswith("* Metadata") for line in lines)
