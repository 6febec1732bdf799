"""Calls and changes whose response was lost with the connection: sends them again, and tells one's own change from
another's.

`retry_until_connected` only calls again. `multi_or_read_back` and `pipeline_or_read_back` also find out whether a
change was applied. It is sent again as soon as the store is connected, as it was. If it was not applied before, it is
applied now. If it was, its own effect is in its way (BadVersion, EntryExists, NoEntry): then the entries are read, and
the change counts as applied if they are as it left them.

    operation           the entry as the operation left it
    ------------------  ----------------------------------------------------------------------------------------------
    Set                 has the data; and the version after the expected one, unless that is ANY_VERSION
    Create              has the data, and version 0; and belongs to this session if it is ephemeral
    Delete              does not exist
    Check               an error of a Check always stands: a change is never in the way of its own conditions
    Create, sequential  cannot be found: the other operations of the group decide. If none of them is in the way, the
                        group is applied twice; such entries must be harmless when doubled.

An entry that others have changed since is not recognized: the error stands, and the caller reads and decides anew.
When the session has ended meanwhile, the change is not sent again: ConnectionLost stays the outcome, and the caller
starts over with the new session (case G of `interface.py`).

Source: Kafka's `KafkaZkClient` (retryRequestUntilConnected, retryRequestsUntilConnected; conditionalUpdatePath reads
after BADVERSION).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from odradek.broker.metadata_store.interface import (
    ANY_VERSION,
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    Entry,
    EntryExists,
    MetadataStore,
    MetadataStoreError,
    NoEntry,
    Operation,
    Outcome,
    Result,
    StoreUnavailable,
)

CONFLICTS = (BadVersion, EntryExists, NoEntry)

T = TypeVar("T")


async def retry_until_connected(store: MetadataStore, call: Callable[[], Awaitable[T]]) -> T:
    """Returns the result of `call`. After ConnectionLost, waits for the connection and calls again, possibly in another
    session: a call that changes something must read first whether it has been done.

    Raises StoreUnavailable if the store is closed, and what else `call` raises.
    """
    while True:
        try:
            return await call()
        except ConnectionLost:
            await store.connected()


async def multi_or_read_back(store: MetadataStore, operations: Sequence[Operation]) -> list[Result]:
    """`store.multi`, which waits for the connection and sends the change again when the response is lost."""
    (outcome,) = await pipeline_or_read_back(store, [operations])
    if isinstance(outcome, MetadataStoreError):
        raise outcome
    return outcome


async def pipeline_or_read_back(store: MetadataStore, groups: Sequence[Sequence[Operation]]) -> list[Outcome]:
    """`store.pipeline`, which waits for the connection and sends again the groups whose response is lost.

    The result of a sequential Create is None if the group was applied before its response was lost.
    """
    session = store.session_epoch
    outcomes = await store.pipeline(groups)
    lost = _lost(outcomes)
    while lost and await _is_connected_again(store, session):
        again = await store.pipeline([groups[index] for index in lost])
        for index, outcome in zip(lost, again, strict=True):
            if isinstance(outcome, CONFLICTS):
                outcome = await _read_back(store, groups[index], outcome)
            outcomes[index] = outcome
        lost = _lost(outcomes)
    return outcomes


def _lost(outcomes: Sequence[Outcome]) -> list[int]:
    return [index for index, outcome in enumerate(outcomes) if isinstance(outcome, ConnectionLost)]


async def _is_connected_again(store: MetadataStore, session: int) -> bool:
    """Returns False if the session has ended."""
    try:
        await store.connected()
    except StoreUnavailable:
        return False
    return store.session_epoch == session


async def _read_back(store: MetadataStore, operations: Sequence[Operation], conflict: MetadataStoreError) -> Outcome:
    """Returns the results of the operations if they were applied, else `conflict`."""
    if _is_unfindable(operations[conflict.index]):
        return conflict
    last = {each.path: each for each in operations if not _is_unfindable(each)}
    try:
        entries = dict(zip(last, await store.entries(list(last)), strict=True))
    except StoreUnavailable as error:
        return error
    if not all(_left(entries[path], operation, store.session_id) for path, operation in last.items()):
        return conflict
    return [_result(operation, entries) for operation in operations]


def _is_unfindable(operation: Operation) -> bool:
    return isinstance(operation, Check) or (isinstance(operation, Create) and operation.sequential)


def _left(entry: Entry | None, operation: Operation, session_id: int) -> bool:
    """Whether the entry is as `operation`, the last one on its path, left it."""
    if entry is None or isinstance(operation, Delete):
        return entry is None and isinstance(operation, Delete)
    if isinstance(operation, Create):
        owner = session_id if operation.ephemeral else 0
        return (entry.data, entry.version, entry.owner) == (operation.data, 0, owner)
    assert not isinstance(operation, Check)
    return entry.data == operation.data and operation.version in (ANY_VERSION, entry.version - 1)


def _result(operation: Operation, entries: dict[str, Entry | None]) -> Result:
    if isinstance(operation, Create):
        return None if operation.sequential else operation.path
    entry = entries.get(operation.path)
    return entry.version if entry is not None and not isinstance(operation, (Check, Delete)) else None
