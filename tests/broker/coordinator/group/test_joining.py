"""JoinGroup: how clients become members, when a generation begins, and which requests are refused."""

import pytest

from odradek.broker.coordinator.group.settings import GroupSettings
from odradek.broker.coordinator.group.state import GroupState
from odradek.protocol.errors import ErrorCode
from tests.broker.coordinator.group.group_room import GROUP, REBALANCE_MS, SESSION_MS, GroupRoom, subscription

DELAY_MS = 3_000


def test_the_first_member_leads_the_first_generation_and_gets_the_member_list() -> None:
    room = GroupRoom()
    asked = room.join(protocols={"range": b"said"})
    answer = asked.response
    assert asked.error is ErrorCode.NONE
    assert answer.member_id.startswith("client-")
    assert (answer.generation_id, answer.leader, answer.protocol_type) == (1, answer.member_id, "consumer")
    assert answer.protocol_name == "range"
    assert [(member.member_id, member.metadata) for member in answer.members] == [(answer.member_id, b"said")]
    assert room.state is GroupState.COMPLETING_REBALANCE


def test_a_new_member_is_given_an_id_and_must_join_again_with_it() -> None:
    room = GroupRoom()
    asked = room.join(known_ids=True)
    assert asked.error is ErrorCode.MEMBER_ID_REQUIRED
    assert room.state is GroupState.EMPTY
    again = room.join(asked.response.member_id, known_ids=True)
    assert again.error is ErrorCode.NONE
    assert again.response.member_id == asked.response.member_id
    assert not room.group.pending


def test_a_pending_member_that_does_not_join_is_forgotten_after_its_session() -> None:
    room = GroupRoom()
    member_id = room.join(known_ids=True).response.member_id
    room.advance(SESSION_MS - 1)
    assert list(room.group.pending) == [member_id]
    room.advance(1)
    assert not room.group.pending
    assert room.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.waiting == (0, 0)


def test_a_rebalance_waits_for_a_pending_member() -> None:
    room = GroupRoom()
    (leader,) = room.stable()
    pending = room.join(known_ids=True).response.member_id
    asked = room.join(leader)
    assert not asked.is_answered
    joined = room.join(pending)
    assert asked.response.generation_id == joined.response.generation_id == 2


def test_a_rebalance_completes_when_a_pending_member_expires() -> None:
    room = GroupRoom()
    (leader,) = room.stable()
    room.join(known_ids=True)
    asked = room.join(leader)
    room.advance(SESSION_MS)
    assert asked.response.generation_id == 2


def test_the_first_rebalance_waits_for_more_members() -> None:
    room = GroupRoom(GroupSettings(initial_rebalance_delay_ms=DELAY_MS))
    first = room.join()
    second = room.join()
    room.advance(DELAY_MS - 1)
    assert not first.is_answered
    room.advance(1 + DELAY_MS)
    assert first.response.generation_id == second.response.generation_id == 1
    assert len(first.response.members) == 2
    assert second.response.members == []


def test_each_join_extends_the_delay_of_the_first_rebalance() -> None:
    room = GroupRoom(GroupSettings(initial_rebalance_delay_ms=DELAY_MS))
    asked = [room.join()]
    room.advance(2_000)
    asked.append(room.join())
    room.advance(2_000)  # at 4000, in the second wait
    asked.append(room.join())
    room.advance(4_999)  # at 8999: no member joined in the third wait
    assert not any(each.is_answered for each in asked)
    room.advance(1)
    assert [each.response.generation_id for each in asked] == [1, 1, 1]


def test_the_first_rebalance_waits_at_most_for_the_rebalance_timeout() -> None:
    room = GroupRoom(GroupSettings(initial_rebalance_delay_ms=DELAY_MS))
    asked = [room.join(rebalance_ms=7_000)]
    for _ in range(6):
        room.advance(1_000)
        asked.append(room.join(rebalance_ms=7_000))
    room.advance(999)
    assert not asked[0].is_answered
    room.advance(1)
    assert all(each.response.generation_id == 1 for each in asked)


def test_only_the_first_rebalance_waits() -> None:
    room = GroupRoom(GroupSettings(initial_rebalance_delay_ms=DELAY_MS))
    (leader,) = room.stable()
    new = room.join()
    assert room.join(leader).is_answered
    assert new.response.generation_id == 2


def test_a_new_member_makes_the_others_rejoin() -> None:
    room = GroupRoom()
    ids = room.stable(3)
    generation = room.group.generation_id
    new = room.join()
    assert room.state is GroupState.PREPARING_REBALANCE
    assert [room.heartbeat(each, generation) for each in ids] == [ErrorCode.REBALANCE_IN_PROGRESS] * 3
    again = room.rejoined(ids)
    assert {each.response.generation_id for each in [new, *again]} == {generation + 1}
    assert len(again[0].response.members) == 4
    assert [len(each.response.members) for each in [new, *again[1:]]] == [0, 0, 0]


def test_members_that_do_not_rejoin_in_time_are_removed() -> None:
    room = GroupRoom()
    leader, *others = room.stable(3)
    new = room.join()
    asked = room.join(others[0])
    for _ in range(REBALANCE_MS // 5_000 - 1):  # the members send heartbeats but do not rejoin
        room.advance(5_000)
        assert room.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
        room.heartbeat(others[1], 2)
        assert not new.is_answered
    room.advance(5_000)
    assert {new.response.generation_id, asked.response.generation_id} == {3}
    assert {each.member_id for each in room.group.members} == {others[0], new.response.member_id}
    assert room.heartbeat(leader, 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_rejoin_is_replaced_by_a_member_that_has() -> None:
    room = GroupRoom()
    leader, other = room.stable(2)
    asked = room.join(other, protocols={"range": b"something new"})
    room.advance(SESSION_MS)
    assert asked.response.leader == other != leader
    assert len(asked.response.members) == 1


def test_the_longest_rebalance_timeout_of_all_members_applies() -> None:
    room = GroupRoom()
    (first,) = room.stable(1, rebalance_ms=20_000, session_ms=1_800_000)
    room.join(rebalance_ms=50_000, session_ms=1_800_000)
    room.advance(49_999)
    assert room.group.member(first) is not None
    room.advance(1)
    assert room.group.member(first) is None


def test_a_member_that_missed_the_join_response_gets_the_generation_again() -> None:
    room = GroupRoom()
    member_id = room.join().response.member_id
    again = room.join(member_id)
    assert (again.response.generation_id, room.state) == (1, GroupState.COMPLETING_REBALANCE)
    assert len(again.response.members) == 1


def test_a_follower_that_rejoins_a_stable_group_unchanged_gets_the_current_generation() -> None:
    room = GroupRoom()
    _, follower = room.stable(2)
    again = room.join(follower)
    assert (again.response.generation_id, room.state) == (2, GroupState.STABLE)


def test_a_member_that_changes_its_subscription_rebalances_the_group() -> None:
    room = GroupRoom()
    leader, follower = room.stable(2)
    asked = room.join(follower, protocols={"range": subscription("other")})
    assert (asked.is_answered, room.state) == (False, GroupState.PREPARING_REBALANCE)
    assert room.join(leader).response.generation_id == 3
    assert room.group.is_subscribed_to("other")


def test_a_leader_that_rejoins_a_stable_group_rebalances_it() -> None:
    room = GroupRoom()
    leader, follower = room.stable(2)
    asked = room.join(leader)
    assert room.state is GroupState.PREPARING_REBALANCE
    room.join(follower)
    assert asked.response.generation_id == 3


def test_a_member_that_changes_its_protocols_during_completing_rebalance_rebalances_the_group() -> None:
    room = GroupRoom()
    member_id = room.join().response.member_id
    again = room.join(member_id, protocols={"range": b"new"})
    assert again.response.generation_id == 2


def test_a_repeated_join_replaces_the_first_and_both_are_answered() -> None:
    room = GroupRoom()
    leader, follower = room.stable(2)
    first = room.join(leader)
    second = room.join(leader)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    room.join(follower)
    assert second.response.generation_id == 3


@pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 1_800_001, 2**31 - 1])
def test_a_session_timeout_out_of_bounds_is_refused(session_ms: int) -> None:
    room = GroupRoom()
    assert room.join(session_ms=session_ms).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert room.shard.groups == {}


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_session_timeouts_at_the_bounds_are_accepted(session_ms: int) -> None:
    assert GroupRoom().join(session_ms=session_ms).error is ErrorCode.NONE


def test_an_unknown_member_id_is_refused_and_creates_no_group() -> None:
    room = GroupRoom()
    asked = room.join("nobody")
    assert (asked.error, asked.response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "nobody")
    assert room.shard.groups == {}
    room.stable()
    assert room.join("nobody").error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", ["range"]), ("consumer", []), ("", [])])
def test_a_first_member_without_protocol_or_type_is_refused(protocol_type: str, protocols: list[str]) -> None:
    room = GroupRoom()
    asked = room.join(protocol_type=protocol_type, protocols=protocols)
    assert asked.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.shard.groups == {}


@pytest.mark.parametrize(("protocol_type", "protocols"), [("connect", ["range"]), ("consumer", ["sticky"])])
def test_a_member_without_a_common_protocol_is_refused(protocol_type: str, protocols: list[str]) -> None:
    room = GroupRoom()
    (member_id,) = room.stable()
    for asked_by in ("", member_id):
        asked = room.join(asked_by, protocol_type=protocol_type, protocols=protocols if not asked_by else ["sticky"])
        assert asked.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL or asked_by
    assert room.join("", protocol_type=protocol_type, protocols=protocols).error is not ErrorCode.NONE


def test_an_empty_group_accepts_another_protocol_type() -> None:
    room = GroupRoom()
    (member_id,) = room.stable()
    room.leave(member_id)
    assert room.join(protocol_type="connect", protocols={"eager": b""}).response.protocol_type == "connect"


def test_a_full_group_refuses_new_members() -> None:
    room = GroupRoom(GroupSettings(initial_rebalance_delay_ms=0, max_size=2))
    ids = room.stable(2)
    asked = room.join()
    assert (asked.error, asked.response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert room.state is GroupState.STABLE
    assert room.join(ids[1]).error is ErrorCode.NONE


def test_a_group_loaded_with_too_many_members_refuses_the_last_to_rejoin() -> None:
    room = GroupRoom()
    ids = room.stable(3)
    room.settings = GroupSettings(initial_rebalance_delay_ms=0, max_size=2)
    room.restart()
    assert room.state is GroupState.PREPARING_REBALANCE
    asked = room.rejoined(ids)
    assert asked[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {each.error for each in asked[:2]} == {ErrorCode.NONE}
    assert room.group.size == 2


def test_a_new_member_whose_join_waits_for_five_minutes_is_removed() -> None:
    room = GroupRoom()
    ids = room.stable(2, rebalance_ms=900_000)
    new = room.join(rebalance_ms=900_000)
    for _ in range(60):
        assert not new.is_answered
        room.advance(5_000)
        for each in ids:
            room.heartbeat(each, 2)
    assert (new.error, new.response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert room.group.size == 2


def test_a_client_id_of_maximum_length_still_yields_an_encodable_member_id() -> None:
    room = GroupRoom()
    for client_id in ("x" * 32_767, "ü" * 16_383, "🚀" * 8_191):
        member_id = room.join(group_id=client_id, client_id=client_id).response.member_id
        assert len(member_id.encode()) <= 32_767
        assert member_id[:100] == client_id[:100]


def test_groups_are_independent() -> None:
    room = GroupRoom()
    room.stable(2)
    assert room.join(group_id="other").response.generation_id == 1
    assert room.state is GroupState.STABLE
    assert room.shard.groups["other"].size == 1
    assert GROUP in room.shard.groups


def test_a_group_without_members_at_the_end_of_the_initial_delay_is_empty() -> None:
    room = GroupRoom(GroupSettings(initial_rebalance_delay_ms=DELAY_MS))
    pending = room.join(known_ids=True).response.member_id
    asked = room.join(pending)
    room.leave(pending)
    assert asked.error is ErrorCode.UNKNOWN_MEMBER_ID
    room.advance(DELAY_MS)
    assert room.state is GroupState.EMPTY


def test_a_join_whose_connection_closes_before_its_response_leaves_no_member() -> None:
    room = GroupRoom()
    (leader,) = room.stable()
    new = room.join()
    room.shard.membership.join_abandoned(GROUP, room.group.member(_newest(room)).awaiting_join)  # type: ignore[union-attr,arg-type]
    room.settled()
    assert new.error is ErrorCode.UNKNOWN_MEMBER_ID  # the closed connection does not get this response
    assert room.join(leader).response.generation_id == 2
    assert room.group.size == 1


def _newest(room: GroupRoom) -> str:
    return list(room.group.members)[-1].member_id
