"""The group APIs over sockets: every version, restarts and stops of the broker, closed connections, its log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from odradek.protocol.messages.groups import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from tests.broker.handlers.test_offsets_api import coordinated, loaded
from tests.patience import PATIENCE_S, until
from tests.wire.api import Api, api_of_a_broker
from tests.wire.records import connect

SETTINGS: dict[str, object] = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}
JOIN_WITH_KNOWN_ID = 4
_Protocol = JoinGroupRequest.JoinGroupRequestProtocol
SAYS_SOMETHING_NEW = [_Protocol(name="range", metadata=b"new")]


def joining(group: str = "g", member_id: str = "", version: int = 3, **more: Any) -> JoinGroupRequest:
    """Version 0 has no rebalance timeout."""
    asked: dict[str, Any] = {
        "group_id": group,
        "member_id": member_id,
        "session_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [_Protocol(name="range", metadata=b"")],
    }
    if version > 0:
        asked["rebalance_timeout_ms"] = 30_000
    return JoinGroupRequest(**{**asked, **more})


async def joined(api: Api, group: str = "g", version: int = 3, **more: Any) -> Any:
    """Joins a new member and returns the response. From version 4 on it joins again with the returned id."""
    answer = await api(joining(group, version=version, **more), version)
    if version >= JOIN_WITH_KNOWN_ID and not more.get("group_instance_id"):
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        answer = await api(joining(group, answer.member_id, version, **more), version)
    return answer


async def stable(api: Api, group: str = "g") -> tuple[str, int]:
    """Returns the only member of a Stable group and its generation."""
    answer = await joined(api, group)
    assert answer.error_code == ErrorCode.NONE
    given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"mine")
    request = SyncGroupRequest(
        group_id=group, generation_id=answer.generation_id, member_id=answer.member_id, assignments=[given]
    )
    assert (await api(request, 2)).assignment == b"mine"
    return answer.member_id, answer.generation_id


async def heartbeat(api: Api, member_id: str, generation_id: int, group: str = "g") -> ErrorCode:
    request = HeartbeatRequest(group_id=group, generation_id=generation_id, member_id=member_id)
    return ErrorCode((await api(request, 2)).error_code)


async def described(api: Api, group: str = "g") -> Any:
    return (await api(DescribeGroupsRequest(groups=[group]), 4)).groups[0]


class Other:
    """A second connection to the broker."""

    def __init__(self, api: Api) -> None:
        self._bootstrap = api.broker.bootstrap

    async def __aenter__(self) -> Other:
        self.client = await connect(self._bootstrap)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    async def __call__(self, request: Any, version: int) -> Any:
        return await self.client.send(request, version=version, timeout_ms=PATIENCE_S * 1000)


@pytest.mark.parametrize("version", range(10))
async def test_every_version_serves_the_life_of_a_member(version: int) -> None:
    async with api_of_a_broker(SETTINGS) as api:
        await coordinated(api)
        answer = await joined(api, version=version)
        assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, answer.member_id)
        me = {"group_id": "g", "generation_id": 1, "member_id": answer.member_id}
        given = [SyncGroupRequest.SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"x")]
        protocol: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        synced = await api(SyncGroupRequest(**me, assignments=given, **protocol), min(version, 5))
        assert synced.assignment == b"x"
        assert (await api(HeartbeatRequest(**me), min(version, 4))).error_code == ErrorCode.NONE
        asked = DescribeGroupsRequest(groups=["g", "none"], include_authorized_operations=version >= 3)
        one, none = (await api(asked, min(version, 6))).groups
        assert (one.group_state, none.group_state, one.members[0].client_host) == ("Stable", "Dead", "/127.0.0.1")
        assert (one.error_code, none.error_code) == (0, ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
        assert (one.error_message, bool(none.error_message)) == (None, version >= 6)
        states = {"states_filter": ["stable"]} if version >= 4 else {}
        listed = await api(ListGroupsRequest(**states), min(version, 5))
        assert [group.group_id for group in listed.groups] == ["g"]
        who = LeaveGroupRequest.MemberIdentity(member_id=answer.member_id)
        leaving = {"members": [who, who]} if version >= 3 else {"member_id": answer.member_id}
        left = await api(LeaveGroupRequest(group_id="g", **leaving), min(version, 5))
        assert left.error_code == ErrorCode.NONE
        assert [each.error_code for each in left.members] == ([0, 25] if version >= 3 else [])
        deleted = await api(DeleteGroupsRequest(groups_names=["g", "none", "g"]), min(version, 3))
        assert {each.group_id: each.error_code for each in deleted.results} == {"g": 0, "none": 69}
        texts = {each.group_id: bool(each.error_message) for each in deleted.results}
        assert texts == {"g": False, "none": version >= 3}
        assert (await api(ListGroupsRequest(), 3)).groups == []


async def test_groups_are_listed_by_type() -> None:
    async with api_of_a_broker(SETTINGS) as api:
        await coordinated(api)
        await stable(api)
        await stable(api, "other")

        async def listed(*types: str, states: tuple[str, ...] = ()) -> list[tuple[str, str]]:
            response = await api(ListGroupsRequest(types_filter=list(types), states_filter=list(states)), 5)
            assert response.error_code == 0
            return sorted((group.group_id, group.group_type) for group in response.groups)

        both = [("g", "classic"), ("other", "classic")]
        for types in ((), ("classic",), ("consumer", "CLASSIC")):
            assert await listed(*types) == both
            assert await listed(*types, states=("Stable",)) == both
            assert await listed(*types, states=("Empty",)) == []
        for types in (("consumer",), ("share", "unknown"), ("",)):
            assert await listed(*types) == []


async def test_a_restart_restores_a_stable_group_and_its_sessions(tmp_path: Path) -> None:
    settings = {**SETTINGS, "group.min.session.timeout.ms": 300}
    async with api_of_a_broker(settings, data_dir=tmp_path) as api:
        await coordinated(api)
        member_id, generation_id = await stable(api)
        other, _ = await stable(api, "silent")
        request = joining("silent", other, session_timeout_ms=300)
        assert (await api(request, 3)).generation_id == 2
        again = SyncGroupRequest(group_id="silent", generation_id=2, member_id=other)
        assert (await api(again, 2)).error_code == ErrorCode.NONE
    async with api_of_a_broker(settings, data_dir=tmp_path) as api:
        await loaded(api)
        assert (await described(api)).members[0].member_assignment == b"mine"
        assert await heartbeat(api, member_id, generation_id) is ErrorCode.NONE
        await until_state(api, "Empty", "silent")  # the session of the loaded member expires
        assert await heartbeat(api, other, 2, "silent") is ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_stopping_broker_answers_waiting_members_with_not_coordinator() -> None:
    async with api_of_a_broker(SETTINGS) as api, Other(api) as other:
        await coordinated(api)
        await stable(api)
        waiting = asyncio.create_task(other(joining(), 3))
        await until_state(api, "PreparingRebalance")
        stopping = asyncio.create_task(api.broker.stop())
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
        await stopping


async def test_a_new_member_whose_connection_closes_is_removed() -> None:
    async with api_of_a_broker(SETTINGS) as api:
        await coordinated(api)
        member_id, _ = await stable(api)
        async with Other(api) as other:
            waiting = asyncio.create_task(other(joining(), 3))
            await until_state(api, "PreparingRebalance")
            waiting.cancel()

        async def is_alone() -> bool:
            return len((await described(api)).members) == 1

        await until(is_alone)
        answer = await api(joining(member_id=member_id), 3)
        assert (answer.error_code, answer.generation_id, len(answer.members)) == (0, 2, 1)


async def test_a_member_whose_connection_closes_while_it_rejoins_is_kept() -> None:
    async with api_of_a_broker(SETTINGS) as api, Other(api) as third:
        await coordinated(api)
        leader, _ = await stable(api)
        new = asyncio.create_task(third(joining(), 3))
        await until_state(api, "PreparingRebalance")
        assert (await api(joining(member_id=leader), 3)).generation_id == 2
        follower = (await new).member_id
        async with Other(api) as other:
            waiting = asyncio.create_task(other(joining(member_id=follower, protocols=SAYS_SOMETHING_NEW), 3))
            await until_state(api, "PreparingRebalance")
            waiting.cancel()
        again = asyncio.create_task(third(joining(member_id=follower, protocols=SAYS_SOMETHING_NEW), 3))
        assert (await api(joining(member_id=leader), 3)).generation_id == 3
        assert (await again).member_id == follower


async def until_state(api: Api, state: str, group: str = "g") -> None:
    async def is_so() -> bool:
        return bool((await described(api, group)).group_state == state)

    await until(is_so)


async def test_names_of_maximum_length_are_accepted_and_survive_a_restart(tmp_path: Path) -> None:
    group = "ü" * 16_383
    async with api_of_a_broker(SETTINGS, data_dir=tmp_path) as api:
        await coordinated(api)
        member_id, _ = await stable(api, group)
    async with api_of_a_broker(SETTINGS, data_dir=tmp_path) as api:
        await loaded(api)
        assert await heartbeat(api, member_id, 1, group) is ErrorCode.NONE


async def test_an_assignment_too_large_for_the_log_is_refused_without_affecting_other_groups() -> None:
    async with api_of_a_broker(SETTINGS) as api:
        await coordinated(api)
        other, generation_id = await stable(api, "other")
        answer = await joined(api)
        given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=answer.member_id, assignment=bytes(2_000_000))
        me = {"group_id": "g", "generation_id": 1, "member_id": answer.member_id}
        refused = await api(SyncGroupRequest(**me, assignments=[given]), 2)
        assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await described(api)).group_state == "PreparingRebalance"
        assert await heartbeat(api, other, generation_id, "other") is ErrorCode.NONE
        again = await api(joining(member_id=answer.member_id), 3)
        assert again.generation_id == 2


async def test_groups_are_counted_by_state_and_purgatories_by_name() -> None:
    async with api_of_a_broker({**SETTINGS, "odradek.metrics.port": 0}) as api:
        await coordinated(api)
        await stable(api)
        member_id, _ = await stable(api, "empty")
        await api(LeaveGroupRequest(group_id="empty", member_id=member_id), 2)
        text = await _metrics(api)
        prefix = "kafka_coordinator_group_groupmetadatamanager_numgroups"
        assert f"{prefix} 2.0" in text
        assert f"{prefix}stable 1.0" in text
        assert f"{prefix}empty 1.0" in text
        assert "kafka_server_group_coordinator_metrics_group_completed_rebalance_total 2.0" in text
        assert 'numdelayedoperations{delayedOperation="Heartbeat"} 1.0' in text
        assert 'numdelayedoperations{delayedOperation="Rebalance"} 0.0' in text


async def _metrics(api: Api) -> str:
    assert api.broker.metrics_server is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", api.broker.metrics_server.port)
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return text
