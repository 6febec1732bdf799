"""A group member by confluent-kafka (librdkafka): processes, then commits."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.clients.members.orders import (
    BATCH,
    HEARTBEAT_MS,
    MAX_POLL_INTERVAL_MS,
    METADATA_MS,
    POLL_S,
    SESSION_TIMEOUT_MS,
    Membership,
    Orders,
    membership,
    positions_after,
    processed,
    tell,
)


class Member:
    def __init__(self, who: Membership) -> None:
        self.topic = who.topic
        self.uncommitted: dict[int, int] = {}
        self.is_out = False
        """Whether the group goes on without it; until it is told, librdkafka hands out what it has prefetched."""
        settings = {
            "bootstrap.servers": who.bootstrap,
            "group.id": who.group,
            "partition.assignment.strategy": who.strategy,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
            "topic.metadata.refresh.interval.ms": METADATA_MS,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        if who.instance:
            settings["group.instance.id"] = who.instance
        self.consumer = Consumer(settings)
        self.consumer.subscribe([who.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def run(self, orders: Orders) -> None:
        while not orders.stop.is_set():
            if seconds := orders.stall_s():
                self._stall(seconds)
            self._step()
        self.consumer.close()
        tell("closed")

    def _step(self) -> None:
        positions = []
        for message in self.consumer.consume(BATCH, POLL_S):
            if (error := message.error()) is None:
                positions.append((message.partition(), message.offset()))
                continue
            tell("error", error.name(), error.str())
            if error.fatal() or error.code() == KafkaError._FATAL:
                raise SystemExit(3)
        if self.is_out:
            return
        processed(positions)
        self.uncommitted.update(positions_after(positions))
        self._commit(list(self.uncommitted))

    def _commit(self, partitions: list[int]) -> None:
        offsets = {p: self.uncommitted[p] for p in partitions if p in self.uncommitted}
        if not offsets:
            return
        try:
            self.consumer.commit(
                offsets=[TopicPartition(self.topic, *pair) for pair in offsets.items()], asynchronous=False
            )
        except KafkaException as failure:
            error = failure.args[0]
            tell("commit-failed", error.name())
            return  # it is tried again, until they are committed, revoked or lost
        self._forget(list(offsets))

    def _forget(self, partitions: list[int]) -> None:
        for partition in partitions:
            self.uncommitted.pop(partition, None)

    def _stall(self, seconds: float) -> None:
        mine = self.consumer.position(self.consumer.assignment())
        time.sleep(seconds)
        try:
            self.consumer.commit(offsets=mine, asynchronous=False)
            tell("commit-after-stall", "accepted")
        except KafkaException as failure:
            tell("commit-after-stall", failure.args[0].name())
            self.is_out = True

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        tell("assigned", *(p.partition for p in partitions))

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit([p.partition for p in partitions])
        self._forget([p.partition for p in partitions])
        tell("revoked", *(p.partition for p in partitions))

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.uncommitted.clear()
        self.is_out = False
        tell("lost", *(p.partition for p in partitions))


if __name__ == "__main__":
    Member(membership()).run(Orders())
