"""A group as an administrator sees it, and the producer that gives it work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import confluent_kafka
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec

from odradek.protocol.compiler import decode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.wire.blocking_client import RawClient
from tests.wire.frames import request_payload

GIVE_UP_S = 60
T = TypeVar("T")
NOT_YET = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.GROUP_ID_NOT_FOUND,
)
"""Errors while an internal topic is created or loaded, and before the group's first member."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A group as DescribeGroups shows it: each member's partitions by (instance id or member id)."""

    state: str
    assigned: dict[str, tuple[int, ...]]

    def is_stable(self, members: int, partitions: int) -> bool:
        """Whether `members` members each have partitions, and together have all of them."""
        every = sorted(partition for part in self.assigned.values() for partition in part)
        return (
            self.state == ConsumerGroupState.STABLE.name
            and len(self.assigned) == members
            and all(self.assigned.values())
            and every == list(range(partitions))
        )


class Watch:
    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        self.bootstrap, self.group, self.topic, self.partitions = bootstrap, group, topic, partitions

    def _admin(self) -> AdminClient:
        """A new one: librdkafka's asks a coordinator that was gone from the metadata for ever (see its issue 5511)."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def look(self) -> Seen:
        admin = self._admin()
        try:
            described = admin.describe_consumer_groups([self.group])[self.group].result(20)
        except confluent_kafka.KafkaException as failure:
            if failure.args[0].code() not in NOT_YET:
                raise
            return Seen(failure.args[0].name(), {})
        except TimeoutError:  # the coordinator was lost meanwhile
            return Seen("no answer", {})
        assigned = {
            member.group_instance_id or member.member_id: tuple(
                sorted(p.partition for p in member.assignment.topic_partitions) if member.assignment else ()
            )
            for member in described.members
        }
        return Seen(described.state.name, assigned)

    def until_stable(self, members: int) -> Seen:
        """Waits until `members` members share all partitions."""
        return until(self.look, lambda seen: seen.is_stable(members, self.partitions), f"{members} stable members")

    def committed(self) -> dict[int, int]:
        admin, request = self._admin(), ConsumerGroupTopicPartitions(self.group)
        answer = admin.list_consumer_group_offsets([request])[self.group].result(20)
        return {p.partition: p.offset for p in answer.topic_partitions or [] if p.topic == self.topic}

    def ends(self) -> dict[int, int]:
        admin = self._admin()
        wanted = {TopicPartition(self.topic, p): OffsetSpec.latest() for p in range(self.partitions)}
        return {p.partition: future.result(20).offset for p, future in admin.list_offsets(wanted).items()}

    def grow(self, partitions: int) -> None:
        """Gives the topic more partitions."""
        admin = self._admin()
        admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result(20)
        self.partitions = partitions

    def commit_the_start(self) -> None:
        """Commits offset 0 of each partition. librdkafka 2.16 goes back to the earliest offset if the response to a
        query for it is late: 0.5 s after it has come, even if the partition has been assigned again and read since.
        """
        start = [TopicPartition(self.topic, partition, 0) for partition in range(self.partitions)]
        admin, request = self._admin(), ConsumerGroupTopicPartitions(self.group, start)
        admin.alter_consumer_group_offsets([request])[self.group].result(30)

    def until_all_is_committed(self) -> None:
        ends = {partition: end for partition, end in self.ends().items() if end}
        until(self.committed, lambda committed: committed == ends, f"offsets {ends}")


def until(look: Callable[[], T], is_good: Callable[[T], bool], wanted: str) -> T:
    give_up = time.monotonic() + GIVE_UP_S
    while True:
        seen = look()
        if is_good(seen):
            return seen
        assert time.monotonic() < give_up, f"no {wanted} for {GIVE_UP_S} s, but {seen}"
        time.sleep(0.1)


def until_coordinators(bootstrap: str) -> None:
    """Makes the broker create its internal topics, and waits: librdkafka gives up after two retries. The requests are
    of a version that Kafka has had since 0.11.
    """
    with RawClient(bootstrap) as client:
        for key_type in range(2):
            until(lambda kind=key_type: _find(client, kind), lambda error: error == 0, "coordinator")  # type: ignore[misc]


def _find(client: RawClient, key_type: int) -> int:
    answer = client.call(request_payload(FindCoordinatorRequest(key="any", key_type=key_type), 1))
    return decode(FindCoordinatorResponse, 1, answer, 4).error_code


class Work:
    """Writes records, each partition in turn, at about `per_second`, until `finish`."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: int) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self.topic, self.partitions, self.pause_s = topic, partitions, partitions / per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="work")
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(self.pause_s):
            for partition in range(self.partitions):
                self._producer.produce(self.topic, b"%d" % number, partition=partition)
                number += 1
            self._producer.poll(0)

    def finish(self) -> None:
        """Stops, and returns when every record is acknowledged."""
        self._stop.set()
        self._thread.join(30)
        assert self._producer.flush(60) == 0
