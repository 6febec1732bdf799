"""A group member with kafka-python: processes, then commits."""

from __future__ import annotations

import time
from collections.abc import Iterable

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import CommitFailedError, FencedInstanceIdError, KafkaError

from tests.clients.members.orders import BATCH, POLL_S, Membership, Orders, Uncommitted, membership, processed, report

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Member(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, who: Membership) -> None:
        self.topic = who.topic
        self.uncommitted = Uncommitted(self._commit)
        self.consumer = KafkaConsumer(partition_assignment_strategy=[ASSIGNORS[who.strategy]], **who.options())
        self.consumer.partitions_for_topic(who.topic)  # else it joins twice: before it knows the topic, and after
        self.consumer.subscribe([who.topic], listener=self)

    def run(self, orders: Orders) -> None:
        while not orders.stop.is_set():
            if seconds := orders.stall_s():
                self._stall(seconds)
            self._step()
        self.consumer.close()
        report("closed")

    def _step(self) -> None:
        try:
            polled = self.consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=BATCH)
        except FencedInstanceIdError:
            report("error", "FENCED_INSTANCE_ID")
            raise SystemExit(3) from None
        positions = [(record.partition, record.offset) for records in polled.values() for record in records]
        processed(positions)
        self.uncommitted.add(positions)
        self.uncommitted.commit()

    def _commit(self, offsets: dict[int, int]) -> bool:
        try:
            self.consumer.commit(self._to_commit(offsets))
        except FencedInstanceIdError:
            report("error", "FENCED_INSTANCE_ID")
            raise SystemExit(3) from None
        except KafkaError as failure:
            report("commit-failed", type(failure).__name__)
            return False
        return True

    def _to_commit(self, offsets: dict[int, int]) -> dict[TopicPartition, OffsetAndMetadata]:
        return {TopicPartition(self.topic, p): OffsetAndMetadata(offset, "", -1) for p, offset in offsets.items()}

    def _stall(self, seconds: float) -> None:
        mine = {p.partition: self.consumer.position(p) for p in self.consumer.assignment()}
        time.sleep(seconds)
        try:
            self.consumer.commit(self._to_commit(mine))
            report("commit-after-stall", "accepted")
        except (CommitFailedError, KafkaError) as failure:
            report("commit-after-stall", type(failure).__name__)

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        report("assigned", *(p.partition for p in assigned))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        partitions = [p.partition for p in revoked]
        self.uncommitted.revoked(partitions)
        report("revoked", *partitions)

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self.uncommitted.lost()
        report("lost", *(p.partition for p in lost))


if __name__ == "__main__":
    Member(membership()).run(Orders())
