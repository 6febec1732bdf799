"""Invalid requests to a coordinator get Kafka's error code at once and do not affect other groups.

Each request goes over a socket to a broker that also has a Stable group. That group is checked after each request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.broker.coordinator.runtime.loading import PartitionLoading
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from odradek.protocol.messages.groups import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
)
from odradek.protocol.schema import Message
from tests.broker.handlers.test_offsets_api import coordinated
from tests.broker.test_broker_settings_at_work import peer_of
from tests.wire.api import Api, api_of_a_broker
from tests.wire.frames import framed, request_payload

SETTINGS: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.max.size": 2,
    "offset.metadata.max.bytes": 10,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 1,
}
ID_LENGTH = 100
LONG_ID = "G" * ID_LENGTH
LONGEST = 65_536


class Member(NamedTuple):
    group_id: str
    member_id: str
    generation_id: int


def join_request(group_id: str, member_id: str = "", **more: Any) -> JoinGroupRequest:
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name=name) for name in more.pop("names", ["range"])]
    fields = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 1_000, "protocol_type": "consumer", **more}
    return JoinGroupRequest(group_id=group_id, member_id=member_id, protocols=protocols, **fields)


def sync_request(member: Member, **more: Any) -> SyncGroupRequest:
    given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"mine")
    fields = {**member._asdict(), "protocol_type": "consumer", "protocol_name": "range", **more}
    return SyncGroupRequest(assignments=[given], **fields)


def leave_request(group_id: str, member_id: str) -> LeaveGroupRequest:
    return LeaveGroupRequest(group_id=group_id, members=[LeaveGroupRequest.MemberIdentity(member_id=member_id)])


def commit_request(group_id: str, *partitions: int, text: str = "", **more: Any) -> OffsetCommitRequest:
    asked = [
        OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=7, committed_metadata=text
        )
        for partition in partitions or (0,)
    ]
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=asked)
    return OffsetCommitRequest(group_id=group_id, topics=[topic], **more)


def commit_in_transaction(group_id: str) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
    return TxnOffsetCommitRequest(
        transactional_id="tx", producer_id=0, producer_epoch=0, group_id=group_id, topics=[topic]
    )


async def joined(api: Api, group_id: str) -> Member:
    """Returns the only member of a new Stable group."""
    answer = await api(join_request(group_id), 3)
    assert answer.error_code == 0
    member = Member(group_id, answer.member_id, answer.generation_id)
    assert (await api(sync_request(member), 5)).error_code == 0
    return member


async def codes(api: Api, request: Message, version: int) -> list[ErrorCode]:
    """Returns every error code of the response, the outer ones first."""
    return list(map(ErrorCode, _codes_in(await api(request, version))))


def _codes_in(value: Any) -> list[int]:
    if isinstance(value, list):
        return [code for each in value for code in _codes_in(each)]
    if not isinstance(value, Message):
        return []
    inner = [code for name in value.__slots__ for code in _codes_in(getattr(value, name))]
    own = [getattr(value, name) for name in ("error_code", "partition_error_code") if hasattr(value, name)]
    return own + inner


class Witness:
    """A Stable group that requests to other groups must not affect."""

    def __init__(self, api: Api, member: Member) -> None:
        self.api, self.member = api, member

    async def has_noticed_nothing(self) -> None:
        assert (await self.api(HeartbeatRequest(**self.member._asdict()), 3)).error_code == 0
        (seen,) = (await self.api(DescribeGroupsRequest(groups=[self.member.group_id]), 3)).groups
        assert (seen.group_state, [one.member_assignment for one in seen.members]) == ("Stable", [b"mine"])


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker(SETTINGS) as api:
        await coordinated(api, "t")
        yield api


@pytest.fixture
async def witness(api: Api) -> Witness:
    return Witness(api, await joined(api, "witness"))


async def test_what_a_request_says_of_its_member_reaches_the_group(api: Api, witness: Witness) -> None:
    me = await joined(api, "g")
    stale: dict[str, Any] = {"member_id": me.member_id, "generation_id_or_member_epoch": me.generation_id - 1}
    rows: list[tuple[Message, int, ErrorCode]] = [
        (join_request("g", "nobody", group_instance_id="i"), 9, ErrorCode.UNKNOWN_MEMBER_ID),
        (join_request("g", protocol_type="connect"), 9, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (join_request("g", names=["sticky"]), 9, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (sync_request(me, group_instance_id="i"), 5, ErrorCode.UNKNOWN_MEMBER_ID),
        (sync_request(me, protocol_type="connect"), 5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (sync_request(me, protocol_name="sticky"), 5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (HeartbeatRequest(**me._asdict(), group_instance_id="i"), 4, ErrorCode.UNKNOWN_MEMBER_ID),
        (commit_request("g"), 8, ErrorCode.UNKNOWN_MEMBER_ID),
        (commit_request("g", **stale), 8, ErrorCode.ILLEGAL_GENERATION),
    ]
    for request, version, code in rows:
        assert (await codes(api, request, version))[0] is code, request
    await witness.has_noticed_nothing()


async def test_an_empty_group_id_is_refused(api: Api, witness: Witness) -> None:
    nobody = Member("", "m", 0)
    rows: list[tuple[Message, int]] = [
        (join_request(""), 9),
        (join_request(""), 0),
        (sync_request(nobody), 5),
        (HeartbeatRequest(**nobody._asdict()), 4),
        (leave_request("", "m"), 5),
        (commit_in_transaction(""), 3),
        (AddOffsetsToTxnRequest(transactional_id="tx", producer_id=0, producer_epoch=0, group_id=""), 3),
    ]
    for request, version in rows[:-1]:
        assert (await codes(api, request, version))[0] is ErrorCode.INVALID_GROUP_ID, request
    assert (await codes(api, *rows[-1]))[0] is not ErrorCode.NONE
    await witness.has_noticed_nothing()


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (join_request(LONG_ID), 9),
        (sync_request(Member(LONG_ID, "m", 0)), 5),
        (HeartbeatRequest(group_id=LONG_ID), 4),
        (leave_request(LONG_ID, "m"), 5),
        (commit_request(LONG_ID), 8),
        (OffsetFetchRequest(group_id=LONG_ID, topics=None), 7),
        (DescribeGroupsRequest(groups=[LONG_ID]), 5),
        (DeleteGroupsRequest(groups_names=[LONG_ID]), 2),
        (FindCoordinatorRequest(coordinator_keys=[LONG_ID]), 4),
        (commit_in_transaction(LONG_ID), 3),
        (AddOffsetsToTxnRequest(transactional_id="tx", producer_id=0, producer_epoch=0, group_id=LONG_ID), 3),
        (InitProducerIdRequest(transactional_id=LONG_ID, transaction_timeout_ms=60_000), 4),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else f"v{value}",
)
async def test_an_id_of_64_kb_closes_only_the_connection_that_sends_it(
    api: Api, witness: Witness, request_: Message, version: int
) -> None:
    """Versions with compact strings can encode one. Kafka's decoder, too, accepts at most 32767 bytes."""
    payload = request_payload(request_, version)
    short = bytes([ID_LENGTH + 1]) + LONG_ID.encode()
    assert payload.count(short) == 1
    async with peer_of(api.broker) as peer:
        peer.send(framed(payload))
        assert await peer.frame() is not None
        peer.send(framed(payload.replace(short, b"\x81\x80\x04" + b"G" * LONGEST)))
        assert await peer.frame() is None
    await witness.has_noticed_nothing()


async def test_an_id_of_maximum_length_is_accepted(api: Api, witness: Witness) -> None:
    longest = "g" * 32_767
    me = await joined(api, longest)
    commits: dict[str, Any] = {"member_id": me.member_id, "generation_id_or_member_epoch": me.generation_id}
    assert await codes(api, commit_request(longest, **commits), 8) == [ErrorCode.NONE]
    assert await codes(api, leave_request(longest, me.member_id), 5) == [ErrorCode.NONE, ErrorCode.NONE]
    assert await codes(api, DeleteGroupsRequest(groups_names=[longest]), 2) == [ErrorCode.NONE]
    await witness.has_noticed_nothing()


@pytest.fixture
def held_load(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Returns an event; loading of partitions waits until it is set."""
    go, run = asyncio.Event(), PartitionLoading.run

    async def held(self: PartitionLoading, *arguments: Any) -> None:
        await go.wait()
        await run(self, *arguments)

    monkeypatch.setattr(PartitionLoading, "run", held)
    return go


def asked_while_it_loads(member: Member) -> list[tuple[Message, int, list[ErrorCode]]]:
    """Returns each group and transaction request with Kafka's error codes while the coordinator loads."""
    loading, group = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, member.group_id
    producer: dict[str, Any] = {"transactional_id": "tx", "producer_id": 0, "producer_epoch": 0}
    adding = AddPartitionsToTxnRequest(
        **{f"v3_and_below_{name}": value for name, value in producer.items()},
        v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    deleted = OffsetDeleteRequest.OffsetDeleteRequestTopic(
        name="t", partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
    )
    asked = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    same = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    several = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=[same])]
    return [
        (FindCoordinatorRequest(key=group), 3, [ErrorCode.NONE]),
        (join_request(group, member.member_id), 9, [loading]),
        (sync_request(member), 5, [ErrorCode.REBALANCE_IN_PROGRESS]),
        (HeartbeatRequest(**member._asdict()), 4, [ErrorCode.NONE]),
        (leave_request(group, member.member_id), 5, [loading]),
        (commit_request(group), 8, [loading]),
        (OffsetFetchRequest(group_id=group, topics=[asked]), 7, [loading]),
        (OffsetFetchRequest(groups=several), 8, [ErrorCode.NONE, loading]),
        (OffsetDeleteRequest(group_id=group, topics=[deleted]), 0, [loading]),
        (commit_in_transaction(group), 3, [loading]),
        (commit_in_transaction(group), 1, [ErrorCode.COORDINATOR_NOT_AVAILABLE]),
        (DescribeGroupsRequest(groups=[group]), 5, [loading]),
        (ListGroupsRequest(), 4, [loading]),
        (DeleteGroupsRequest(groups_names=[group]), 2, [loading]),
        (InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4, [loading]),
        (adding, 3, [ErrorCode.NONE, loading]),
        (AddOffsetsToTxnRequest(group_id=group, **producer), 3, [loading]),
        (EndTxnRequest(committed=True, **producer), 3, [loading]),
        (DescribeTransactionsRequest(transactional_ids=["tx"]), 0, [loading]),
        (ListTransactionsRequest(), 0, [loading]),
    ]


async def test_a_loading_coordinator_refuses_requests_while_other_partitions_are_served(
    tmp_path: Path, held_load: asyncio.Event
) -> None:
    held_load.set()
    async with api_of_a_broker(SETTINGS, data_dir=tmp_path) as api:
        await coordinated(api, "t")
        me = await joined(api, "a")
        assert (await api(commit_request("a", **_as_member(me)), 8)).topics[0].partitions[0].error_code == 0
        given = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        assert (await api(given, 4)).error_code == 0
    held_load.clear()
    async with api_of_a_broker(SETTINGS, data_dir=tmp_path) as api:
        runtime, _ = api.broker.coordinators.runtimes
        elsewhere = next(name for name in "bcdef" if runtime.partition_for(name) != runtime.partition_for("a"))
        for request, version, expected in asked_while_it_loads(me):
            assert await codes(api, request, version) == expected, request
        witness = Witness(api, await joined(api, elsewhere))
        assert await codes(api, commit_request(elsewhere, **_as_member(witness.member)), 8) == [ErrorCode.NONE]
        await witness.has_noticed_nothing()
        held_load.set()
        await coordinated(api)
        assert (await api(HeartbeatRequest(**me._asdict()), 4)).error_code == 0
        fetched = await api(OffsetFetchRequest(group_id="a", topics=None), 7)
        assert fetched.topics[0].partitions[0].committed_offset == 7
        await witness.has_noticed_nothing()


def _as_member(member: Member) -> dict[str, Any]:
    return {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation_id}
