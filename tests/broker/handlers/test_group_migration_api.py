"""Groups of a broker that change their protocol while they have members, in all versions of their members' requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.compiler import decode_versioned, encode_versioned
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from odradek.protocol.messages.group_admin import DescribeGroupsRequest, ListGroupsRequest
from odradek.protocol.messages.groups import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from tests.broker.handlers import test_consumer_groups_api as consumers
from tests.broker.handlers.test_consumer_groups_api import SETTINGS, commit, describe, fetched
from tests.broker.handlers.test_offsets_api import coordinated, loaded
from tests.wire.api import Api, api_of_a_broker

LONG_MS = 60_000
WITHOUT_DELAY = {**SETTINGS, "group.initial.rebalance.delay.ms": 0}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker(WITHOUT_DELAY) as api:
        await coordinated(api, "t", "u")
        yield api


async def join(
    api: Api, member_id: str = "", version: int = 9, *, topic: str = "t", instance: str | None = None
) -> Any:
    metadata = encode_versioned(ConsumerProtocolSubscription(topics=[topic]), 0)
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=LONG_MS,
        rebalance_timeout_ms=LONG_MS,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    response = await api(request, version)
    if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        return await join(api, response.member_id, version, topic=topic)
    return response


async def sync(api: Api, joined: Any, version: int = 5, *, topic: str | None = None) -> dict[str, list[int]]:
    """Returns the partitions that the member is told. With a topic, it leads and takes all partitions of that."""
    assignments = []
    if topic is not None:
        share = ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=[0, 1])
        assignment = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[share]), 0)
        assignments = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment),
        ]
    request = SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        assignments=assignments,
    )
    response = await api(request, version)
    assert response.error_code == 0
    if version >= 5:
        assert (response.protocol_type, response.protocol_name) == ("consumer", "range")
    _, told = decode_versioned(ConsumerProtocolAssignment, bytes(response.assignment))
    return {each.topic: each.partitions for each in told.assigned_partitions}


async def heartbeat(api: Api, member_id: str, generation: int, version: int = 4) -> int:
    request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
    code: int = (await api(request, version)).error_code
    return code


async def committed(api: Api, joined: Any, offset: int) -> list[int]:
    who = {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
    return await commit(api, "t", {0: offset}, 2, **who)


async def leave(api: Api, *member_ids: str, version: int = 5) -> Any:
    members = [LeaveGroupRequest.MemberIdentity(member_id=each) for each in member_ids]
    if version >= 3:
        return await api(LeaveGroupRequest(group_id="g", members=members), version)
    return await api(LeaveGroupRequest(group_id="g", member_id=member_ids[0]), version)


async def listed(api: Api) -> list[tuple[str, str, str]]:
    response = await api(ListGroupsRequest(), 5)
    return [(each.group_type, each.protocol_type, each.group_state) for each in response.groups]


VERSIONS = [(0, 0, 0, 0), (3, 1, 1, 2), (4, 2, 2, 3), (9, 5, 4, 5)]
"""Of JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""


@pytest.mark.parametrize("versions", VERSIONS, ids=str)
async def test_a_group_changes_its_protocol_and_back(api: Api, versions: tuple[int, ...]) -> None:
    joining, syncing, staying, leaving = versions
    classic = await join(api, version=joining)
    assert await sync(api, classic, syncing, topic="t") == {"t": [0, 1]}
    assert await listed(api) == [("classic", "consumer", "Stable")]
    assert await committed(api, classic, 5) == [0]

    response = await consumers.join(api, "n", "t")
    assert (response.error_code, response.member_epoch) == (0, classic.generation_id + 1)
    assert await listed(api) == [("consumer", "consumer", "Reconciling")]
    (described,) = await describe(api, "g")
    assert {each.member_id: each.member_type for each in described.members} == {classic.member_id: 0, "n": 1}
    assert await heartbeat(api, classic.member_id, classic.generation_id, staying) == ErrorCode.REBALANCE_IN_PROGRESS

    again = await join(api, classic.member_id, joining)
    assert (again.error_code, again.generation_id) == (0, classic.generation_id + 1)
    own = await sync(api, again, syncing)
    assert await heartbeat(api, classic.member_id, again.generation_id, staying) == 0
    others = await consumers.assigned(api, await consumers.beat(api, "n", response.member_epoch))
    assert sorted([*own["t"], *(others or {})["t"]]) == [0, 1]
    assert await committed(api, again, 7) == [0]
    assert await fetched(api) == {"t": {0: 7}}

    left = await leave(api, "n", version=leaving)
    assert [left.error_code, *(each.error_code for each in left.members)] == [0] * (2 if leaving >= 3 else 1)
    assert await listed(api) == [("classic", "consumer", "PreparingRebalance")]
    assert await heartbeat(api, classic.member_id, again.generation_id, staying) == ErrorCode.REBALANCE_IN_PROGRESS
    last = await join(api, classic.member_id, joining)
    assert (last.leader, last.generation_id) == (classic.member_id, again.generation_id + 1)
    assert await sync(api, last, syncing, topic="t") == {"t": [0, 1]}
    assert await fetched(api) == {"t": {0: 7}}


@pytest.mark.parametrize("version", [0, 2])
async def test_old_clients_are_told_in_the_response_why_they_do_not_leave(api: Api, version: int) -> None:
    await consumers.join(api, "n", "t")
    assert (await leave(api, "x", version=version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_several_members_leave_at_once(api: Api) -> None:
    await consumers.join(api, "n", "t")
    first, second = await join(api), await join(api)
    response = await leave(api, first.member_id, "x", second.member_id)
    rows = [(each.member_id, each.error_code) for each in response.members]
    assert rows == [(first.member_id, 0), ("x", ErrorCode.UNKNOWN_MEMBER_ID), (second.member_id, 0)]


async def test_a_group_of_both_protocols_goes_on_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    async with api_of_a_broker(WITHOUT_DELAY, data_dir=tmp_path) as api:
        await coordinated(api, "t")
        await consumers.join(api, "n", "t")
        classic = await join(api)
    async with api_of_a_broker(WITHOUT_DELAY, data_dir=tmp_path) as api:
        await loaded(api)
        assert await sync(api, classic) == {}
        response = await consumers.beat(api, "n", 2)
        told = await consumers.assigned(api, response)
        assert told is not None
        assert len(told["t"]) == 1, "it gives up the other partition"
        await consumers.beat(api, "n", -1)
    async with api_of_a_broker(WITHOUT_DELAY, data_dir=tmp_path) as api:
        await loaded(api)
        assert await listed(api) == [("classic", "consumer", "PreparingRebalance")]
        (group,) = (await api(DescribeGroupsRequest(groups=["g"]), 5)).groups
        assert [each.member_id for each in group.members] == [classic.member_id]


@pytest.mark.parametrize("policy", ["Disabled", "upgrade", "DOWNGRADE", "bidirectional"])
async def test_the_policy_says_whether_a_group_changes_its_protocol(policy: str) -> None:
    async with api_of_a_broker({**WITHOUT_DELAY, "group.consumer.migration.policy": policy}) as api:
        await coordinated(api, "t")
        classic = await join(api)
        await sync(api, classic, topic="t")
        response = await consumers.join(api, "n", "t")
        is_upgraded = policy in ("upgrade", "bidirectional")
        assert response.error_code == (0 if is_upgraded else ErrorCode.GROUP_ID_NOT_FOUND)
        await leave(api, classic.member_id)
        response = await consumers.join(api, "n", "t")
        assert response.error_code == 0
        joined = await join(api)
        assert joined.error_code == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL if policy == "Disabled" else 0)
        await leave(api, "n")
        is_downgraded = policy in ("DOWNGRADE", "bidirectional")
        assert [kind for kind, _, _ in await listed(api)] == ["classic" if is_downgraded else "consumer"]
