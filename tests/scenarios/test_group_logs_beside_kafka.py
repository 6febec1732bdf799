"""Coordinators of Kafka 4.4 and ours load each other's `__consumer_offsets`, amid a rebalance, and go on alike.

A group is driven by one of the two until members must give up partitions; the other one loads its log. Both must then
describe the same group, and answer the heartbeats that end the rebalance with the same epochs and assignments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.coordinator.group.consumer.heartbeat import Heartbeat
from odradek.broker.coordinator.group.group import Committer
from odradek.broker.coordinator.group.offsets.commits import commit_offsets
from odradek.broker.coordinator.group.offsets.records import CommittedOffset
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.records import Record, build_batch, iter_batches, read_records
from odradek.protocol.topic_partition import TopicPartition
from tests.beside_kafka.control import apache_node
from tests.broker.coordinator.group.consumer.group_at_work import REBALANCE_MS, FakeTopics
from tests.broker.coordinator.group.consumer.shard_at_work import ShardAtWork
from tests.spawned_broker import free_port_beside_another
from tests.wire import requests
from tests.wire.blocking_client import Client

LOG = "__consumer_offsets"
MAY_WRITE_INTO_IT = "__admin_client"
"""The id of the client that Kafka lets write into internal topics."""
TOPICS = {"orders": 6, "payments": 3}
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.consumer.assignors": "range,uniform",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
}
KAFKAS, OURS = "kafkas", "ours"
RESOLVED_S = 1.0
Assigned = Mapping[str, list[int]]


class Answer(NamedTuple):
    """What a heartbeat is answered: the error, the member's epoch, and its partitions unless they are as before."""

    error: int
    epoch: int = 0
    assigned: Assigned | None = None


class Side(Protocol):
    def beat(self, group: str, member: str, epoch: int, **fields: Any) -> Answer: ...

    def describe(self, group: str) -> Any: ...

    def resolve(self) -> None: ...

    def commit(self, group: str, member: str, epoch: int) -> None: ...

    def committed(self, group: str) -> int: ...


class KafkasSide:
    """A node of Kafka."""

    def __init__(self, client: Client) -> None:
        self.client = client
        while self.client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0].error_code:
            time.sleep(0.1)

    def create_topics(self) -> None:
        for name, count in TOPICS.items():
            self.client.create(name, count)
        time.sleep(RESOLVED_S)

    @property
    def ids(self) -> dict[str, UUID]:
        return {each.name: each.topic_id for each in self.client.ask(MetadataRequest(topics=None), 12).topics}

    def beat(self, group: str, member: str, epoch: int, **fields: Any) -> Answer:
        ids = self.ids
        owned = fields.pop("owned", None)
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            instance_id=fields.get("instance"),
            rebalance_timeout_ms=REBALANCE_MS if epoch == 0 else -1,
            subscribed_topic_names=fields.get("topics"),
            subscribed_topic_regex=fields.get("regex"),
            topic_partitions=None
            if owned is None
            else [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=ids[name], partitions=partitions)
                for name, partitions in owned.items()
            ],
        )
        return answer_of(self._loaded(lambda: self.client.ask(request, 1)), ids)

    def _loaded(self, ask: Callable[[], Any]) -> Any:
        """Asks again while the coordinator loads."""
        while (response := ask()).error_code in (14, 15, 16):
            time.sleep(0.1)
        return response

    def describe(self, group: str) -> Any:
        def ask() -> Any:
            return self.client.ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups[0]

        return shown(self._loaded(ask))

    def resolve(self) -> None:
        time.sleep(RESOLVED_S)

    def commit(self, group: str, member: str, epoch: int) -> None:
        each = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=7, committed_metadata=""
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[each])
        request = OffsetCommitRequest(
            group_id=group, member_id=member, generation_id_or_member_epoch=epoch, topics=[topic]
        )
        assert self.client.ask(request, 9).topics[0].partitions[0].error_code == 0

    def committed(self, group: str) -> int:
        wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
        response = self.client.ask(OffsetFetchRequest(group_id=group, topics=[wanted]), 7)
        return int(response.topics[0].partitions[0].committed_offset)

    def log(self) -> list[CoordinatorRecord]:
        found: list[CoordinatorRecord] = []
        offset = 0
        while True:
            request = requests.fetch((TopicPartition(LOG, 0), offset), min_bytes=0)
            data = self.client.ask(request, 11).responses[0].partitions[0].records
            if not data:
                return found
            for position, header in iter_batches(data):
                records = read_records(data, position, header)
                found += [CoordinatorRecord(bytes(each.key or b""), each.value) for each in records]
                offset = header.last_offset + 1

    def append(self, records: list[CoordinatorRecord]) -> None:
        now_ms = int(time.time() * 1000)
        batch = build_batch([Record(number, now_ms, each.key, each.value) for number, each in enumerate(records)])
        written = self.client.ask(requests.produce(LOG, batch), 9).responses[0].partition_responses[0]
        assert written.error_code == 0


class SameTopics(FakeTopics):
    """Topics with the ids of another broker, and without racks."""

    def __init__(self, ids: Mapping[str, UUID]) -> None:
        super().__init__(**TOPICS)
        self.ids = {name: ids[name] for name in TOPICS}

    def racks(self, topic_id: UUID, partition: int) -> list[str]:
        return []


class OurSide:
    """Our coordinator."""

    def __init__(self, ids: Mapping[str, UUID]) -> None:
        self.ids = ids
        self.shard = ShardAtWork(SameTopics(ids))
        self.shard.clock.set_wall_ms(int(time.time() * 1000))

    def load(self, records: list[CoordinatorRecord]) -> None:
        self.shard.log.records = list(records)
        self.shard.restart()

    def beat(self, group: str, member: str, epoch: int, **fields: Any) -> Answer:
        owned = fields.get("owned")
        request = Heartbeat(
            group,
            member,
            epoch,
            instance_id=fields.get("instance"),
            rebalance_timeout_ms=REBALANCE_MS if epoch == 0 else -1,
            topics=fields.get("topics"),
            regex=fields.get("regex"),
            owned=None
            if owned is None
            else {self.ids[name]: frozenset(partitions) for name, partitions in owned.items()},
            client_id=MAY_WRITE_INTO_IT,
            client_host="/127.0.0.1",
        )
        answers: list[Any] = []
        try:
            self.shard.coordinator.consumer_heartbeat(request, lambda _: True, answers.append)
        except ProtocolError as error:
            return Answer(error.code)
        return answer_of(answers[0], self.ids)

    def describe(self, group: str) -> Any:
        return shown(finished(self.shard.coordinator.describe_consumer_group(group)))

    def resolve(self) -> None:
        assert self.shard.work()

    def commit(self, group: str, member: str, epoch: int) -> None:
        errors: list[ProtocolError | None] = []
        offset = CommittedOffset(7, -1, "", self.shard.clock.wall_ms(), -1, topic_id=self.ids["orders"])
        commit_offsets(self.shard.shard, Committer(group, epoch, member), {"orders": {0: offset}}, errors.append)
        assert errors == [None]

    def committed(self, group: str) -> int:
        return self.shard.shard.offsets.committed(group)["orders"][0].offset


def answer_of(response: Any, ids: Mapping[str, UUID]) -> Answer:
    if response.error_code:
        return Answer(response.error_code)
    names = {topic_id: name for name, topic_id in ids.items()}
    told = response.assignment
    assigned = None
    if told is not None:
        assigned = {names[each.topic_id]: sorted(each.partitions) for each in told.topic_partitions}
    return Answer(0, response.member_epoch, assigned)


def shown(group: Any) -> Any:
    def partitions(assignment: Any) -> list[tuple[str, list[int]]]:
        return sorted((each.topic_name, sorted(each.partitions)) for each in assignment.topic_partitions)

    members = {
        member.member_id: (
            (member.instance_id, member.rack_id, member.member_epoch, member.client_id, member.client_host),
            (sorted(member.subscribed_topic_names), member.subscribed_topic_regex or "", member.member_type),
            (partitions(member.assignment), partitions(member.target_assignment)),
        )
        for member in group.members
    }
    return group.error_code, group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name, members


def begin(side: Side, group: str) -> dict[str, Answer]:
    """Three members and a static one that is away. `a` has been told to give up partitions, and has not."""
    last = {"a": side.beat(group, "a", 0, topics=[*TOPICS], owned={})}
    side.commit(group, "a", last["a"].epoch)
    last["s"] = side.beat(group, "s", 0, topics=["orders"], owned={}, instance="static")
    assert side.beat(group, "s", -2, instance="static").error == 0
    last["r"] = side.beat(group, "r", 0, regex="pay.*", topics=[], owned={})
    side.resolve()
    last["b"] = side.beat(group, "b", 0, topics=["orders"], owned={})
    told = side.beat(group, "a", last["a"].epoch)
    assert told.epoch == last["a"].epoch
    last["a"] = told
    return last


def end(side: Side, group: str, last: Mapping[str, Answer]) -> Iterator[Any]:
    """Yields what the side answers while the rebalance ends, and what the group is like then."""
    known = dict(last)
    for member in ("a", "r", "b", "a", "r", "b"):
        before = known[member]
        owned = before.assigned or {}
        answer = side.beat(group, member, before.epoch, owned=owned)
        yield member, answer
        known[member] = answer if answer.assigned is not None else answer._replace(assigned=owned)
    yield side.beat(group, "t", 0, topics=["orders"], owned={}, instance="static")
    yield side.beat(group, "s", known["s"].epoch, owned={})
    yield side.describe(group)


@contextmanager
def kafka(control: list[str], directory: Path, port: int) -> Iterator[KafkasSide]:
    with (
        apache_node(control, directory, SETTINGS, release="4.4.0", port=port),
        Client(f"127.0.0.1:{port}", MAY_WRITE_INTO_IT) as client,
    ):
        yield KafkasSide(client)


@pytest.mark.timeout(300)
def test_each_goes_on_with_what_the_other_has_written(kafka_control: list[str], tmp_path: Path) -> None:
    port = free_port_beside_another()
    with kafka(kafka_control, tmp_path, port) as theirs:
        theirs.create_topics()
        told = begin(theirs, KAFKAS)
        loaded = OurSide(theirs.ids)
        loaded.load(theirs.log())
        assert loaded.describe(KAFKAS) == theirs.describe(KAFKAS)
        assert loaded.committed(KAFKAS) == theirs.committed(KAFKAS) == 7
        assert list(end(loaded, KAFKAS, told)) == list(end(theirs, KAFKAS, told))

        ours = OurSide(theirs.ids)
        told = begin(ours, OURS)
        theirs.append(ours.shard.log.records)
    with kafka(kafka_control, tmp_path, port) as theirs:
        assert theirs.describe(OURS) == ours.describe(OURS)
        assert theirs.committed(OURS) == 7
        assert list(end(theirs, OURS, told)) == list(end(ours, OURS, told))
