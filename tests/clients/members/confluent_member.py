"""A group member with confluent-kafka (librdkafka): processes, then commits."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.clients.members.orders import (
    BATCH,
    BY_THE_BROKER,
    POLL_S,
    SETTINGS,
    Membership,
    Orders,
    Uncommitted,
    membership,
    processed,
    report,
)


class Member:
    def __init__(self, who: Membership) -> None:
        self.topic = who.topic
        self.uncommitted = Uncommitted(self._commit)
        self.is_out = False
        """Whether the group continues without this member. librdkafka returns prefetched records until it notices."""
        strategy = {} if who.strategy == BY_THE_BROKER else {"partition.assignment.strategy": who.strategy}
        self.consumer = Consumer(
            {
                **who.settings(),
                **strategy,
                # How often librdkafka asks for metadata; metadata.max.age.ms is how long it uses a response.
                "topic.metadata.refresh.interval.ms": SETTINGS["metadata.max.age.ms"],
                "log_level": 0,
            }
        )
        self.consumer.subscribe([who.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def run(self, orders: Orders) -> None:
        while not orders.stop.is_set():
            if seconds := orders.stall_s():
                self._stall(seconds)
            self._step()
        self.consumer.close()
        report("closed")

    def _step(self) -> None:
        positions = []
        for message in self.consumer.consume(BATCH, POLL_S):
            if (error := message.error()) is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                positions.append((partition, offset))
                continue
            report("error", error.name(), error.str())
            if error.fatal() or error.code() == KafkaError._FATAL:
                raise SystemExit(3)
        if self.is_out:
            return
        processed(positions)
        self.uncommitted.add(positions)
        self.uncommitted.commit()

    def _commit(self, offsets: dict[int, int]) -> bool:
        try:
            self.consumer.commit(
                offsets=[TopicPartition(self.topic, *pair) for pair in offsets.items()], asynchronous=False
            )
        except KafkaException as failure:
            report("commit-failed", failure.args[0].name())
            return False
        return True

    def _stall(self, seconds: float) -> None:
        mine = self.consumer.position(self.consumer.assignment())
        time.sleep(seconds)
        try:
            self.consumer.commit(offsets=mine, asynchronous=False)
            report("commit-after-stall", "accepted")
        except KafkaException as failure:
            report("commit-after-stall", failure.args[0].name())
            self.is_out = True

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        report("assigned", *(p.partition for p in partitions))

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.uncommitted.revoked(p.partition for p in partitions)
        report("revoked", *(p.partition for p in partitions))

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.uncommitted.lost()
        self.is_out = False
        report("lost", *(p.partition for p in partitions))


if __name__ == "__main__":
    Member(membership()).run(Orders())
