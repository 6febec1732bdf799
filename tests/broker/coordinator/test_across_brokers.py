"""Groups and transactions in a cluster of three brokers: who coordinates them, and what a failover changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.groups import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.topics import DeleteTopicsRequest
from odradek.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ElectionType
from tests.broker.coordinator.three_brokers import (
    GROUP,
    IDS,
    TRANSACTION,
    Brokers,
    patiently,
    three_brokers,
)
from tests.patience import until
from tests.wire import requests


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with three_brokers(tmp_path) as brokers:
        yield brokers


# Who coordinates


async def test_every_broker_names_the_coordinator_and_where_it_is(brokers: Brokers) -> None:
    """The internal topics are created by the first request, whichever broker receives it."""
    follower = next(broker_id for broker_id in IDS if broker_id != brokers.controller.broker_id)
    for kind, topic in ((GROUP, GROUP_TOPIC), (TRANSACTION, TRANSACTION_TOPIC)):
        first = await brokers.ask(follower, FindCoordinatorRequest(key="g", key_type=kind), 3)
        assert first.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        seen = set()
        for name in brokers.names_by_partition():
            coordinator = await brokers.coordinator(name, kind)
            seen.add(coordinator)
            for broker_id in IDS:
                found = await brokers.ask(broker_id, FindCoordinatorRequest(key=name, key_type=kind), 3)
                assert f"{found.host}:{found.port}" == brokers.brokers[coordinator].bootstrap
        assert seen == set(IDS), topic


async def test_a_partition_without_a_leader_has_no_coordinator(brokers: Brokers) -> None:
    await brokers.create(GROUP_TOPIC, (1,), (2,), (3,))
    names = brokers.names_by_partition()
    stopped = next(broker_id for broker_id in IDS if broker_id != brokers.controller.broker_id)
    await brokers.coordinator(names[stopped - 1])
    await brokers.stop(stopped)
    expected = [0, 0, 0]
    expected[stopped - 1] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    request = FindCoordinatorRequest(coordinator_keys=names, key_type=GROUP)
    for broker_id in brokers.brokers:

        async def are_expected(broker_id: int = broker_id) -> bool:
            response = await brokers.ask(broker_id, request, 4)
            return [one.error_code for one in response.coordinators] == expected

        await until(are_expected)


async def demote(brokers: Brokers, broker_id: int) -> None:
    """Gives all partitions of the internal topics that the broker leads to others; it stays a replica."""
    controller = brokers.controller
    targets = {}
    for topic in (GROUP_TOPIC, TRANSACTION_TOPIC):
        metadata = controller.metadata.topic(topic)
        for number, state in ({} if metadata is None else metadata.partitions).items():
            if state.leader == broker_id:
                others = [replica for replica in state.replicas if replica != broker_id]
                targets[TopicPartition(topic, number)] = [*others, broker_id]
    await controller.controller.replicas.reassign(targets)
    await controller.controller.replicas.elect(ElectionType.PREFERRED, list(targets), timeout_ms=10_000)
    await until(lambda: all(brokers.leader(*key) != broker_id for key in targets))


# Groups

SUBSCRIBED_TO_T = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x01t" + b"\xff\xff\xff\xff"
"""A consumer's subscription in version 0."""


class Member:
    """A member of the group "g", which asks the coordinator at the time."""

    def __init__(self, brokers: Brokers, metadata: bytes = b"") -> None:
        self._brokers = brokers
        self.metadata = metadata
        self.member_id = ""
        self.generation_id = -1

    async def ask(self, request: Any, version: int) -> Any:
        return await self._brokers.ask_alone(await self._brokers.coordinator("g"), request, version)

    def joining(self) -> JoinGroupRequest:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=self.metadata)
        return JoinGroupRequest(
            group_id="g",
            member_id=self.member_id,
            session_timeout_ms=20_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[protocol],
        )

    async def join(self) -> Any:
        response = await self.ask(self.joining(), 3)
        assert response.error_code == 0
        self.member_id, self.generation_id = response.member_id, response.generation_id
        return response

    async def sync(self, *members: Member) -> bytes:
        """`members` get an assignment each, if this one is the leader."""
        given = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"%d" % number)
            for number, each in enumerate(members)
        ]
        request = SyncGroupRequest(
            group_id="g", generation_id=self.generation_id, member_id=self.member_id, assignments=given
        )
        response = await self.ask(request, 2)
        assert response.error_code == 0
        return bytes(response.assignment)

    async def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(group_id="g", generation_id=self.generation_id, member_id=self.member_id)
        return ErrorCode.of((await self.ask(request, 2)).error_code)

    async def commit(self, offset: int) -> ErrorCode:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=self.generation_id,
            member_id=self.member_id,
            topics=[topic],
        )
        return ErrorCode.of((await self.ask(request, 7)).topics[0].partitions[0].error_code)


async def until_rebalancing(member: Member) -> None:
    async def is_rebalancing() -> bool:
        return await member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS

    await until(is_rebalancing)


async def group_of_two(brokers: Brokers) -> tuple[Member, Member]:
    """Returns the leader and the other member of a Stable group."""
    leader, other = Member(brokers), Member(brokers)
    await leader.join()
    await leader.sync(leader)
    joining = asyncio.create_task(other.join())
    await until_rebalancing(leader)
    await leader.join()
    await joining
    assert leader.generation_id == other.generation_id == 2
    assert tuple(await asyncio.gather(leader.sync(leader, other), other.sync())) == (b"0", b"1")
    return leader, other


async def committed(brokers: Brokers, group: str = "g") -> dict[str, int]:
    request = OffsetFetchRequest(group_id=group, topics=None, require_stable=True)
    response = await brokers.ask(await brokers.coordinator(group), request, 7)
    assert response.error_code == 0
    return {topic.name: topic.partitions[0].committed_offset for topic in response.topics}


class Consumer:
    """A member of the consumer group "g", which asks the coordinator at the time."""

    def __init__(self, brokers: Brokers, member_id: str) -> None:
        self._brokers = brokers
        self.member_id = member_id
        self.epoch = 0

    async def beat(self, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=self.member_id, member_epoch=self.epoch, **fields
        )
        response = await self._brokers.ask_alone(await self._brokers.coordinator("g"), request, 1)
        assert response.error_code == 0
        self.epoch = response.member_epoch
        return response

    async def join(self) -> Any:
        return await self.beat(rebalance_timeout_ms=30_000, subscribed_topic_names=["t"], topic_partitions=[])


async def test_a_consumer_group_goes_on_when_its_coordinator_fails(brokers: Brokers) -> None:
    """Amid a rebalance: "a" must give up a partition that "b" waits for."""
    await brokers.create("t", IDS, IDS)
    a, b = Consumer(brokers, "a"), Consumer(brokers, "b")
    (everything,) = (await a.join()).assignment.topic_partitions
    await b.join()

    async def must_give_up() -> bool:
        return (await a.beat()).assignment is not None

    await until(must_give_up)
    failed = await brokers.coordinator("g")
    await brokers.stop(failed)
    assert await brokers.coordinator("g") != failed
    owned = [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=everything.topic_id, partitions=[0, 1])]
    full: dict[str, Any] = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"]}
    (told,) = (await a.beat(**full, topic_partitions=owned)).assignment.topic_partitions
    assert a.epoch == 2
    owned[0].partitions = told.partitions
    await a.beat(topic_partitions=owned)
    (given,) = (await b.beat()).assignment.topic_partitions
    assert (a.epoch, b.epoch) == (3, 3)
    assert sorted(told.partitions + given.partitions) == [0, 1]
    await brokers.start(failed)
    assert (await a.beat()).member_epoch == (await b.beat()).member_epoch == 3


async def test_a_group_that_changes_its_protocol_goes_on_when_its_coordinators_fail(brokers: Brokers) -> None:
    """The first fails when the group has become a consumer group, the second when it has become a classic one."""
    await brokers.create("t", IDS, IDS)
    classic, consumer = Member(brokers, SUBSCRIBED_TO_T), Consumer(brokers, "a")
    await classic.join()
    await classic.ask(SyncGroupRequest(group_id="g", generation_id=1, member_id=classic.member_id), 2)
    assert await classic.commit(5) is ErrorCode.NONE
    await consumer.join()
    failed = await brokers.coordinator("g")
    await brokers.stop(failed)
    assert await brokers.coordinator("g") != failed
    assert await classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    await classic.join()
    assert classic.generation_id == consumer.epoch
    assert await classic.sync() != b""
    assert await classic.commit(6) is ErrorCode.NONE
    await brokers.start(failed)

    generation, consumer.epoch = consumer.epoch, -1
    await consumer.beat()
    failed = await brokers.coordinator("g")
    await brokers.stop(failed)
    assert await brokers.coordinator("g") != failed
    assert await classic.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    await classic.join()
    assert classic.generation_id == generation + 1
    assert await committed(brokers) == {"t": 6}
    await brokers.start(failed)


async def test_a_group_goes_on_without_a_rebalance_when_its_coordinator_fails(brokers: Brokers) -> None:
    await brokers.create("t", IDS)
    leader, other = await group_of_two(brokers)
    assert await leader.commit(5) is ErrorCode.NONE
    failed = await brokers.coordinator("g")
    await brokers.stop(failed)
    assert await brokers.coordinator("g") != failed
    assert [await leader.heartbeat(), await other.heartbeat()] == [ErrorCode.NONE] * 2
    assert await other.sync() == b"1"
    assert await committed(brokers) == {"t": 5}
    assert await other.commit(6) is ErrorCode.NONE
    await brokers.start(failed)
    assert await committed(brokers) == {"t": 6}


async def test_a_group_that_was_rebalancing_rebalances_at_the_next_coordinator(brokers: Brokers) -> None:
    leader, other = await group_of_two(brokers)
    third = Member(brokers)
    failed = await brokers.coordinator("g")
    waiting = asyncio.create_task(brokers.ask_alone(failed, third.joining(), 3))
    await until_rebalancing(leader)
    await demote(brokers, failed)
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert await other.heartbeat() is ErrorCode.NONE
    joining = asyncio.create_task(third.join())
    await until_rebalancing(other)
    await asyncio.gather(leader.join(), other.join(), joining)
    assert {member.generation_id for member in (leader, other, third)} == {3}


async def test_a_deleted_topic_leaves_no_offsets_at_any_coordinator(brokers: Brokers) -> None:
    await brokers.create("t", IDS)
    await brokers.create("u", IDS)
    groups = brokers.names_by_partition("group")
    assert {await brokers.coordinator(group) for group in groups} == set(IDS)
    for group in groups:
        for topic in ("t", "u"):
            request = requests.commit(group, topic, 0, 1)
            response = await brokers.ask(await brokers.coordinator(group), request, 7)
            assert response.topics[0].partitions[0].error_code == 0
    deleting = DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
    assert (await brokers.ask(brokers.controller.broker_id, deleting, 3)).responses[0].error_code == 0
    for group in groups:

        async def has_only_the_other(group: str = group) -> bool:
            return await committed(brokers, group) == {"u": 1}

        await until(has_only_the_other)


# Transactions


class Producer:
    """A transactional producer "tx". Its requests are sent again while their errors are transient."""

    def __init__(self, brokers: Brokers, name: str = "tx") -> None:
        self._brokers = brokers
        self._sequences: dict[TopicPartition, int] = {}
        self.name = name
        self.id = self.epoch = -1

    @property
    def who(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch}

    async def coordinator(self) -> int:
        return await self._brokers.coordinator(self.name, TRANSACTION)

    async def ask(self, request: Any, version: int) -> Any:
        async def once() -> Any:
            return await self._brokers.ask(await self.coordinator(), request, version)

        return await patiently(once)

    async def init(self) -> None:
        given = await self.ask(InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000), 4)
        assert given.error_code == 0
        self.id, self.epoch = given.producer_id, given.producer_epoch

    async def add(self, *keys: TopicPartition) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[number])
                for topic, number in keys
            ],
        )

        async def is_added() -> bool:
            response = await self._brokers.ask(await self.coordinator(), request, 3)
            codes = {
                each.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            }
            assert codes == {0} or codes <= {ErrorCode.CONCURRENT_TRANSACTIONS}
            return codes == {0}

        await until(is_added)

    async def produce(self, key: TopicPartition) -> ErrorCode:
        batch = build_batch(
            [Record(0, 1_700_000_000_000, None, b"v")],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=self._sequences.setdefault(key, 0),
            is_transactional=True,
        )
        request = requests.produce(key.topic, batch, key.partition, transactional_id=self.name)
        response = await self._brokers.ask(self._brokers.leader(*key), request, 8)
        code = ErrorCode.of(response.responses[0].partition_responses[0].error_code)
        self._sequences[key] += code is ErrorCode.NONE
        return code

    async def commit_offset(self, offset: int, group: str = "g") -> ErrorCode:
        """Adds the group to the transaction and commits an offset of "t" in it."""
        assert (await self.ask(AddOffsetsToTxnRequest(group_id=group, **self.who), 3)).error_code == 0
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
        request = TxnOffsetCommitRequest(group_id=group, topics=[topic], **self.who)
        response = await self._brokers.ask(await self._brokers.coordinator(group), request, 3)
        return ErrorCode.of(response.topics[0].partitions[0].error_code)

    async def end(self, committed: bool = True) -> ErrorCode:
        response = await self.ask(EndTxnRequest(committed=committed, **self.who), 3)
        return ErrorCode.of(response.error_code)

    async def state(self) -> str:
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        response = await self._brokers.ask(await self.coordinator(), request, 0)
        return str(response.transaction_states[0].transaction_state)

    async def until_state(self, wanted: str) -> None:
        async def is_reached() -> bool:
            return await self.state() == wanted

        await until(is_reached)


async def stable_and_end(brokers: Brokers, key: TopicPartition) -> tuple[int, int]:
    """The last stable offset and the high watermark."""
    found = []
    for isolation_level in (1, 0):
        request = requests.list_offsets(key.topic, key.partition, isolation_level=isolation_level)
        found.append((await brokers.ask(brokers.leader(*key), request, 5)).topics[0].partitions[0].offset)
    return found[0], found[1]


async def producer_elsewhere(brokers: Brokers, *, replicated: bool = True) -> tuple[Producer, list[TopicPartition]]:
    """Returns a producer whose coordinator leads none of the partitions that are also returned. There are two, led by
    different brokers.
    """
    producer = Producer(brokers)
    coordinator = await producer.coordinator()
    others = [broker_id for broker_id in IDS if broker_id != coordinator]
    await brokers.create(
        "t", *((leader, *(each for each in IDS if each != leader and replicated)) for leader in others)
    )
    await producer.init()
    keys = [TopicPartition("t", number) for number in range(len(others))]
    assert coordinator not in {brokers.leader(*key) for key in keys}
    return producer, keys


@pytest.mark.parametrize("committed", [True, False])
async def test_the_coordinator_of_a_transaction_need_not_lead_its_partitions(brokers: Brokers, committed: bool) -> None:
    producer, keys = await producer_elsewhere(brokers)
    await producer.add(*keys)
    assert [await producer.produce(key) for key in keys] == [ErrorCode.NONE] * 2
    assert [await stable_and_end(brokers, key) for key in keys] == [(0, 1)] * 2
    assert await producer.end(committed) is ErrorCode.NONE
    await producer.until_state("CompleteCommit" if committed else "CompleteAbort")
    assert [await stable_and_end(brokers, key) for key in keys] == [(2, 2)] * 2


async def test_a_leader_elsewhere_refuses_batches_that_are_in_no_open_transaction(brokers: Brokers) -> None:
    producer, (first, second) = await producer_elsewhere(brokers)
    await producer.add(first)
    assert await producer.produce(second) is ErrorCode.INVALID_TXN_STATE
    assert await producer.produce(first) is ErrorCode.NONE
    await producer.end()
    await producer.until_state("CompleteCommit")
    assert await producer.produce(first) is ErrorCode.INVALID_TXN_STATE


async def test_a_leader_that_cannot_ask_the_coordinator_lets_the_producer_try_again(brokers: Brokers) -> None:
    producer, (key, _) = await producer_elsewhere(brokers)
    await producer.add(key)
    leader = brokers.brokers[brokers.leader(*key)]
    coordinator = await producer.coordinator()
    known = leader.metadata.brokers.pop(coordinator)
    assert await producer.produce(key) is ErrorCode.NOT_ENOUGH_REPLICAS
    leader.metadata.brokers[coordinator] = known
    assert await producer.produce(key) is ErrorCode.NONE


async def test_the_next_coordinator_completes_what_the_failed_one_had_decided(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, keys = await producer_elsewhere(brokers)
    await producer.add(*keys)
    for key in keys:
        assert await producer.produce(key) is ErrorCode.NONE
    failed = await producer.coordinator()
    monkeypatch.setattr(brokers.brokers[failed].coordinators.transactions.markers, "_writer_to", lambda _: None)
    assert await producer.end() is ErrorCode.NONE
    assert await producer.state() == "PrepareCommit"
    assert [await stable_and_end(brokers, key) for key in keys] == [(0, 1)] * 2
    await brokers.stop(failed)
    await producer.until_state("CompleteCommit")
    assert [await stable_and_end(brokers, key) for key in keys] == [(2, 2)] * 2
    await producer.add(*keys)
    assert await producer.produce(keys[0]) is ErrorCode.NONE


async def test_a_marker_waits_until_its_partition_has_a_leader_again(brokers: Brokers) -> None:
    producer, keys = await producer_elsewhere(brokers, replicated=False)
    await producer.add(*keys)
    assert [await producer.produce(key) for key in keys] == [ErrorCode.NONE] * 2
    stopped = brokers.leader(*keys[1])
    await brokers.stop(stopped)
    assert await producer.end() is ErrorCode.NONE
    await asyncio.sleep(0.3)
    assert await producer.state() == "PrepareCommit"
    await brokers.start(stopped)
    await producer.until_state("CompleteCommit")


async def test_offsets_of_a_transaction_take_effect_at_another_coordinator(brokers: Brokers) -> None:
    await brokers.create("t", IDS)
    producer = Producer(brokers)
    await producer.init()
    transactional = await producer.coordinator()
    for group in brokers.names_by_partition("group"):
        if await brokers.coordinator(group) != transactional:
            break
    assert await brokers.coordinator(group) != transactional
    assert await producer.commit_offset(5, group) is ErrorCode.NONE
    assert await producer.end() is ErrorCode.NONE
    await producer.until_state("CompleteCommit")
    assert await committed(brokers, group) == {"t": 5}
    assert await producer.commit_offset(9, group) is ErrorCode.NONE
    assert await producer.end(False) is ErrorCode.NONE
    await producer.until_state("CompleteAbort")
    assert await committed(brokers, group) == {"t": 5}


async def test_offsets_of_a_transaction_survive_both_coordinators(brokers: Brokers) -> None:
    await brokers.create("t", IDS)
    producer = Producer(brokers)
    await producer.init()
    assert await producer.commit_offset(5) is ErrorCode.NONE
    await demote(brokers, await brokers.coordinator("g"))
    await demote(brokers, await producer.coordinator())
    assert await producer.end() is ErrorCode.NONE
    await producer.until_state("CompleteCommit")
    assert await committed(brokers) == {"t": 5}


async def test_producer_ids_of_all_brokers_differ(brokers: Brokers) -> None:
    given = [
        await brokers.ask(broker_id, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4)
        for broker_id in IDS * 3
    ]
    assert [each.error_code for each in given] == [0] * 9
    assert len({each.producer_id for each in given}) == 9
