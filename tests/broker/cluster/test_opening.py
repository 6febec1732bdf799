"""A broker opens the metadata store: creates the fixed entries, determines the cluster id, reads settings and topics.

Messages take a second in each direction: a cut half a second after a call loses the call, one and a half seconds after
it the answer alone.
"""

from __future__ import annotations

import asyncio
from random import Random
from uuid import UUID

import pytest

from odradek.broker.cluster.known_topics import KnownTopics
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import ConnectionLost, Create, StoreUnavailable
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.broker.metadata_store.start_up import open_store
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import ManualClock
from tests.broker.cluster.configs_harness import ConfigsHarness, to
from tests.simulation.loop import in_virtual_time, run_in_virtual_time

SESSION_TIMEOUT_MS = 60_000
KNOWN_ID = "nlQg0zzARJuGzyqjahpCMg"
TOPIC_ID = UUID(int=7)
CONNECTED_AFTER_S = 2
CALLS = 14
"""How many calls broker 1 makes, one after the other, if nothing disturbs it."""


class Room:
    """Broker 1, which opens a store with slow messages, and another broker, which has stored a topic before."""

    def __init__(self) -> None:
        self.shared = SharedStore(session_timeout_ms=SESSION_TIMEOUT_MS, delay=lambda name: float(name == "slow"))
        self.store = self.shared.session("slow")
        self.other_store = self.shared.session("other")
        self.configs = ConfigsHarness(1, self.store, ManualClock())
        self.other = ConfigsHarness(2, self.other_store, ManualClock())
        self.known_topics = KnownTopics(1)

    async def prepared(self) -> Room:
        await self.other_store.open()
        paths = [path for path in znodes.PERSISTENT_PATHS if path not in ("/cluster", znodes.CONFIG_CHANGES)]
        await self.other_store.multi(Create(path) for path in paths)
        topic = znodes.encode_topic(TOPIC_ID, [PartitionState(0, 1, 0, (1, 2), (1, 2))])
        await self.other_store.create(znodes.topic_path("t"), topic)
        await self.other_store.create(znodes.topic_config_path("t"), znodes.encode_config({"segment.bytes": "1000"}))
        return self

    async def open(self, known_cluster_id: str | None = None) -> str:
        cluster_id = await open_store(self.store, known_cluster_id, Random(1))
        await self.configs.load()
        await self.known_topics.load(self.store)
        return cluster_id

    async def check(self, cluster_id: str) -> None:
        """Everything is stored once and known, and later changes are followed."""
        entries = await self.other_store.entries([*znodes.PERSISTENT_PATHS, znodes.CLUSTER_ID])
        assert [entry.version for entry in entries if entry is not None] == [0] * len(entries)
        assert entries[-1] is not None
        assert znodes.parse_cluster_id(entries[-1].data) == cluster_id
        assert self.known_topics.has(TopicPartition("t", 0), TOPIC_ID)
        assert self.configs.in_effect.log_config("t").segment_bytes == 1000
        await self.other.load()
        await self.other.configs.alter_broker_config(1, to({"log.cleaner.threads": "2"}))
        await asyncio.sleep(60)
        assert self.configs.config.log_cleaner_threads == 2


async def opened_despite(room: Room, moment: float, *, is_expired: bool) -> None:
    """The connection breaks at `moment`."""
    loop = asyncio.get_running_loop()
    loop.call_later(moment, room.shared.cut, "slow")
    if is_expired:
        loop.call_later(moment + 0.1, room.shared.expire, "slow")
    loop.call_later(moment + 5, room.shared.heal, "slow")
    cluster_id = await room.open()
    assert loop.time() > moment
    await room.check(cluster_id)


@pytest.mark.parametrize("is_expired", [False, True], ids=["the session goes on", "the session expires"])
@pytest.mark.parametrize("second", range(CONNECTED_AFTER_S, CONNECTED_AFTER_S + 2 * CALLS))
def test_a_store_is_opened_whichever_call_or_answer_is_lost(second: int, is_expired: bool) -> None:
    async def test() -> None:
        await opened_despite(await Room().prepared(), second + 0.5, is_expired=is_expired)

    run_in_virtual_time(test())


@pytest.mark.parametrize("seed", range(20))
def test_a_store_is_opened_however_often_the_connection_is_lost(seed: int) -> None:
    async def test() -> None:
        room, source = await Room().prepared(), Random(seed)

        async def disturb() -> None:
            while True:
                await asyncio.sleep(source.uniform(0, 25))
                room.shared.cut("slow", lost_answers=source)
                await asyncio.sleep(source.uniform(0, 5))
                if source.random() < 0.3:
                    room.shared.expire("slow")
                room.shared.heal("slow")

        disturbing = asyncio.ensure_future(disturb())
        cluster_id = await room.open(KNOWN_ID)
        disturbing.cancel()
        room.shared.heal("slow")
        await asyncio.sleep(60)
        assert cluster_id == KNOWN_ID
        await room.check(cluster_id)

    run_in_virtual_time(test())


@pytest.mark.parametrize("second", range(CONNECTED_AFTER_S, CONNECTED_AFTER_S + 2 * CALLS))
def test_a_store_that_is_closed_ends_the_opening(second: int) -> None:
    async def test() -> None:
        room = await Room().prepared()
        opening = asyncio.ensure_future(room.open())
        await asyncio.sleep(second + 0.5)
        room.shared.cut("slow")
        await asyncio.sleep(5)
        assert not opening.done()
        await room.store.close()
        with pytest.raises(StoreUnavailable) as caught:
            await opening
        assert not isinstance(caught.value, ConnectionLost)

    run_in_virtual_time(test())


@in_virtual_time
async def test_an_opening_without_disturbance_makes_as_many_calls_as_are_cut_off_above() -> None:
    room = await Room().prepared()
    await room.open()
    assert asyncio.get_running_loop().time() == CONNECTED_AFTER_S + 2 * CALLS
