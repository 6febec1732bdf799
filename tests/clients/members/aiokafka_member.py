"""A group member with aiokafka: processes, then commits, and blocks a rebalance meanwhile.

aiokafka does not say which leader it believes in. A leader that was replaced and does not know it yet may find an
offset out of range that its successor has given out; with a policy for resetting offsets, the member would then start
again at the beginning. So it has none, and asks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError

from tests.clients.members.orders import (
    BATCH,
    POLL_S,
    Membership,
    Orders,
    membership,
    positions_after,
    processed,
    report,
)

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """aiokafka rebalances in the background. It waits for the lock, which is held from processing to commit.

    The lock is not held while polling, because a poll during a rebalance waits for the new assignment.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        async with self.lock:
            report("revoked", *(p.partition for p in revoked))

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        report("assigned", *(p.partition for p in assigned))


class Member:
    def __init__(self, who: Membership) -> None:
        self.who = who
        self.listener = Listener()
        options = {**who.options(), "auto_offset_reset": "none"}
        self.consumer = AIOKafkaConsumer(partition_assignment_strategy=(ASSIGNORS[who.strategy],), **options)

    async def run(self, orders: Orders) -> None:
        self.consumer.subscribe([self.who.topic], listener=self.listener)
        await self.consumer.start()
        while not orders.stop.is_set():
            if seconds := orders.stall_s():
                await self._stall(seconds)
            await self._step()
        await self.consumer.stop()
        report("closed")

    async def _step(self) -> None:
        try:
            polled = await self.consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=BATCH)
        except NoOffsetForPartitionError as missing:
            await self.consumer.seek_to_beginning(*missing.args)
            return
        except OffsetOutOfRangeError:  # aiokafka logs it
            return
        positions = [(record.partition, record.offset) for records in polled.values() for record in records]
        if positions:
            async with self.listener.lock:
                processed(positions)
                await self._commit(positions_after(positions))

    async def _commit(self, offsets: dict[int, int]) -> None:
        try:
            await self.consumer.commit({TopicPartition(self.who.topic, p): o for p, o in offsets.items()})
        except KafkaError as failure:
            report("commit-failed", type(failure).__name__)

    async def _stall(self, seconds: float) -> None:
        mine = {p: await self.consumer.position(p) for p in self.consumer.assignment()}
        await asyncio.sleep(seconds)
        try:
            await self.consumer.commit(mine)
            report("commit-after-stall", "accepted")
        except (KafkaError, ValueError) as failure:
            report("commit-after-stall", type(failure).__name__)


async def main() -> None:
    await Member(membership()).run(Orders())


if __name__ == "__main__":
    asyncio.run(main())
