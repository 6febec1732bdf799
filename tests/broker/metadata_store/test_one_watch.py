"""A path that is read again and again has one watch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from odradek.broker.metadata_store.interface import MetadataStore, NoEntry, WatchEvent
from odradek.broker.metadata_store.one_watch import OneWatch
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from tests.patience import until
from tests.simulation.loop import run_in_virtual_time

PATH = "/a"


Scene = Callable[[SharedStore, MetadataStore, OneWatch, MetadataStore, list[WatchEvent]], Awaitable[None]]


def watched(scene: Scene) -> None:
    """Runs a scene: the store, the session of somebody who writes, a watch, the session of the one who reads by it, and
    the events.
    """

    async def whole() -> None:
        shared = SharedStore(session_timeout_ms=6000)
        writer, store = shared.session("writer"), shared.session("reader")
        await writer.open()
        await store.open()
        events: list[WatchEvent] = []
        await scene(shared, writer, OneWatch(store, PATH, events.append), store, events)
        await store.close()
        await writer.close()

    run_in_virtual_time(whole())


def test_a_path_that_is_read_twice_before_it_changes_has_one_event() -> None:
    async def scene(
        _shared: SharedStore, writer: MetadataStore, watch: OneWatch, reader: MetadataStore, events: list[WatchEvent]
    ) -> None:
        for number in range(3):
            assert await watch.read(reader.exists) == await watch.read(reader.exists)
            if number == 0:
                await writer.create(PATH, b"")
            else:
                await writer.set(PATH, b"")
            await until(lambda number=number: len(events) == number + 1)

    watched(scene)


def test_a_reading_that_fails_sets_no_watch() -> None:
    async def scene(
        _shared: SharedStore, writer: MetadataStore, watch: OneWatch, reader: MetadataStore, events: list[WatchEvent]
    ) -> None:
        with pytest.raises(NoEntry):
            await watch.read(reader.children)
        await writer.create(PATH, b"")
        assert await watch.read(reader.children) == []
        await writer.create(f"{PATH}/b", b"")
        await until(lambda: len(events) == 1)

    watched(scene)


def test_another_session_has_a_watch_of_its_own() -> None:
    async def scene(
        shared: SharedStore, writer: MetadataStore, watch: OneWatch, reader: MetadataStore, events: list[WatchEvent]
    ) -> None:
        await watch.read(reader.exists)
        shared.expire("reader")
        await until(lambda: reader.session_epoch == 2)
        await reader.connected()
        await watch.read(reader.exists)
        await writer.create(PATH, b"")
        await until(lambda: len(events) == 1)

    watched(scene)
