"""A client of the metadata store: it reads, watches and changes a few entries, with a session of its own over the
simulated network, by the code of the brokers. What it does is in the history (store_history.py).

    /simulation/entries/N     are changed by all clients, each time in the version that was read before
    /simulation/turns/NAME-N  belong to the session in which their change was made; their data is its id
    /simulation/names/n-      are created with a number, and deleted soon
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import count
from random import Random
from typing import Any

from odradek.broker.metadata_store.interface import (
    Create,
    EntryExists,
    MetadataStoreError,
    Operation,
    Set,
    StoreUnavailable,
    TooLarge,
    WatchEvent,
)
from odradek.broker.metadata_store.read_back import multi_or_read_back, retry_until_connected
from odradek.broker.metadata_store.zookeeper.zookeeper_store import ZooKeeperStore
from odradek.broker.settings.connect_string import parse_connect_string
from tests.simulation.history import History, Outcome
from tests.simulation.store_history import ENTRIES, NAMES, ROOT, TURNS, StoreChange, StoreRead, TooLong

PATHS = [f"{ENTRIES}/{number}" for number in range(3)]
ACT_EVERY_S = 0.25
LONGEST_THOUGHT_S = 0.05
PART_BYTES, PARTS = 400_000, 3
"""What is too long."""
LONGEST_REFUSAL_S = 2.0


class _Watching:
    """A watch that was set when its entry had this version."""

    def __init__(self, path: str, version: int, session_epoch: int) -> None:
        self.path = path
        self.version = version
        self.session_epoch = session_epoch
        self.is_called = False
        """Perhaps before the reader goes on: the event may come right behind the answer."""


class StoreClient:
    """`connect` and the time-out as the brokers' settings have them. `run` returns soon after `is_ending` was set."""

    def __init__(self, history: History, source: Random, *, name: str, connect: str, session_timeout_ms: int) -> None:
        self.name = name
        self.is_ending = False
        self._history = history
        self._source = source
        self._texts = count(1)
        self._silent: dict[_Watching, None] = {}
        """The watches that were not called."""
        self._store = ZooKeeperStore(
            parse_connect_string(connect),
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=session_timeout_ms,
            max_in_flight=10,
            spawn=lambda coroutine, name: asyncio.get_running_loop().create_task(coroutine, name=name),
            source=source,
        )

    async def run(self) -> None:
        """Acts at random until the end."""
        await self._store.open()
        for path in (ROOT, ENTRIES, TURNS, NAMES, *PATHS):
            with suppress(EntryExists):
                await self._until_done(partial(self._store.create, path, b""))
        actions: list[Callable[[], Awaitable[object]]] = [self._read, self._change, self._name, self._change_too_much]
        while not self.is_ending:
            await asyncio.sleep(self._source.expovariate(1 / ACT_EVERY_S))
            (act,) = self._source.choices(actions, (8, 8, 3, 0.2))
            with suppress(StoreUnavailable):
                await act()
        await self._until_done(self._read)
        await self._store.close()

    async def _until_done(self, call: Callable[[], Awaitable[Any]]) -> Any:
        return await retry_until_connected(self._store, call)

    # --- reading ------------------------------------------------------------------------------------------------

    async def _read(self) -> StoreRead:
        """Reads an entry and sets a watch. Raises StoreUnavailable."""
        path = self._source.choice(PATHS)
        read = self._history.begin(StoreRead(process=self.name, path=path))
        watching = _Watching(path, -1, 0)
        try:
            entry = await self._store.get(path, lambda event: self._called(watching, event))
        except StoreUnavailable as error:
            self._history.end(read, Outcome.UNKNOWN, str(error))
            raise
        watching.version, watching.session_epoch = entry.version, self._store.session_epoch
        read.version = entry.version
        read.silent_since = max(
            (
                each.version
                for each in self._silent
                if each.path == path
                and each.session_epoch == self._store.session_epoch
                and each.version < entry.version
            ),
            default=read.silent_since,
        )
        if not watching.is_called:
            self._silent[watching] = None
        self._history.end(read, Outcome.OK)
        return read

    def _called(self, watching: _Watching, event: WatchEvent) -> None:
        watching.is_called = True
        self._silent.pop(watching, None)

    # --- changing -----------------------------------------------------------------------------------------------

    async def _change(self) -> None:
        """Sets an entry in the version in which it was read."""
        read = await self._read()
        await asyncio.sleep(self._source.uniform(0.0, LONGEST_THOUGHT_S))
        number, session_id = next(self._texts), self._store.session_id
        text = f"{self.name}:{number}"
        change = self._history.begin(StoreChange(process=self.name, path=read.path, text=text, session_id=session_id))
        operations: list[Operation] = [
            Set(read.path, text.encode(), read.version),
            Create(f"{TURNS}/{self.name}-{number}", str(session_id).encode(), ephemeral=True),
        ]
        try:
            version, _ = await multi_or_read_back(self._store, operations)
        except StoreUnavailable as error:
            self._history.end(change, Outcome.UNKNOWN, str(error))
        except MetadataStoreError as error:
            self._history.end(change, Outcome.FAILED, str(error))
        else:
            assert isinstance(version, int)
            change.version = version
            self._history.end(change, Outcome.OK)

    async def _name(self) -> None:
        created = await self._store.create(f"{NAMES}/n-", b"", sequential=True)
        if self._source.random() < 0.8:
            await self._store.delete(created)

    async def _change_too_much(self) -> None:
        part = bytes(PART_BYTES)
        change = self._history.begin(TooLong(process=self.name, size=PARTS * PART_BYTES))
        try:
            async with asyncio.timeout(LONGEST_REFUSAL_S):
                await multi_or_read_back(self._store, [Set(path, part) for path in PATHS[:PARTS]])
        except TooLarge:
            change.refused = True
        except (MetadataStoreError, TimeoutError) as error:
            change.error = str(error)
        self._history.end(change, Outcome.FAILED)
