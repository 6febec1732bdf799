"""The metadata store as an active controller uses it. Each write contains a check that the controller epoch is still
this controller's own, so that nothing is written once another controller has been elected.

    (A) If the check fails, or the session with the store has ended, this broker is no longer the controller:
        ControllerMoved.
    (B) While the connection is lost, calls wait. A write whose answer is lost is sent again and read back
        (`read_back.py`).
    (C) Any other error is the caller's. BadVersion and EntryExists mean that the state it decided on was old: it reads
        the entry and decides again. After StoreUnavailable nothing was written.

Source: Kafka's `KafkaZkClient` (`wrapRequestWithControllerEpochCheck`, `retryRequestUntilConnected`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import (
    BadVersion,
    Check,
    Entry,
    MetadataStore,
    MetadataStoreError,
    NoEntry,
    Operation,
    Outcome,
    Result,
    Watch,
    listed,
)
from odradek.broker.metadata_store.read_back import pipeline_or_read_back, retry_until_connected

COST = 2
"""The cost of an operation in items of a step."""

T = TypeVar("T")


class ControllerMoved(Exception):
    """This broker is no longer the controller."""


class FencedStore:
    """`epoch_version` is the version of `/controller_epoch` since this controller was elected. `in_term` returns
    False once the session has ended or the controller has resigned.
    """

    def __init__(self, store: MetadataStore, epoch_version: int, in_term: Callable[[], bool]) -> None:
        self._store = store
        self._check = Check(znodes.CONTROLLER_EPOCH, epoch_version)
        self._in_term = in_term

    async def entries(self, paths: Sequence[str]) -> list[Entry | None]:
        """See MetadataStore."""
        return await self._connected(lambda: self._store.entries(paths)) if paths else []

    async def watched(self, paths: Sequence[str], watch_of: Callable[[str], Watch | None]) -> list[Entry | None]:
        """Returns the entries as `entries` does, and sets a watch of each."""
        return list(await asyncio.gather(*(self.exists(path, watch_of(path)) for path in paths)))

    async def exists(self, path: str, watch: Watch | None = None) -> Entry | None:
        """See MetadataStore."""
        return await self._connected(lambda: self._store.exists(path, watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See MetadataStore."""
        return await self._connected(lambda: self._store.children(path, watch))

    async def check_epoch(self) -> None:
        """Raises ControllerMoved if another controller was elected, and MetadataStoreError."""
        await self.multi([])

    async def multi(self, operations: Iterable[Operation]) -> list[Result]:
        """Applies all operations or none, and returns their results. Raises ControllerMoved and MetadataStoreError."""
        (outcome,) = await self.pipeline([operations])
        if isinstance(outcome, MetadataStoreError):
            raise outcome
        return outcome

    async def pipeline(self, groups: Sequence[Iterable[Operation]]) -> list[Outcome]:
        """Applies each group as `multi` does, all sent together. Returns, per group, the results or the error.

        Raises ControllerMoved.
        """
        self._check_term()
        if not groups:
            return []
        outcomes = await pipeline_or_read_back(self._store, await listed(groups, self._check, cost=COST))
        self._check_term()
        return [self._seen(outcome) for outcome in outcomes]

    async def _connected(self, read: Callable[[], Awaitable[T]]) -> T:
        """Reads as soon as the store is connected (B)."""

        async def read_in_term() -> T:
            self._check_term()
            return await read()

        return await retry_until_connected(self._store, read_in_term)

    def _check_term(self) -> None:
        if not self._in_term():
            raise ControllerMoved("the session with the metadata store has ended")

    def _seen(self, outcome: Outcome) -> Outcome:
        """Returns the outcome without that of the check. Raises ControllerMoved (A)."""
        if not isinstance(outcome, MetadataStoreError):
            return outcome[1:]
        if outcome.path == self._check.path and isinstance(outcome, BadVersion | NoEntry):
            raise ControllerMoved(f"another controller was elected: {outcome}")
        outcome.index -= 1
        return outcome
