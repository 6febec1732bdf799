"""JoinGroup: how clients become members, when a generation begins, and which requests are refused."""

import pytest

from odradek.broker.coordinator.group.classic.settings import GroupSettings
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.protocol.errors import ErrorCode
from tests.broker.coordinator.group.harness import GROUP, REBALANCE_MS, SESSION_MS, GroupHarness, subscription
from tests.table_settings import of_table

DELAY_MS = 3_000


def test_the_first_member_leads_the_first_generation_and_gets_the_member_list() -> None:
    harness = GroupHarness()
    request = harness.join(protocols={"range": b"metadata"})
    answer = request.response
    assert request.error is ErrorCode.NONE
    assert answer.member_id.startswith("client-")
    assert (answer.generation_id, answer.leader, answer.protocol_type) == (1, answer.member_id, "consumer")
    assert answer.protocol_name == "range"
    assert [(member.member_id, member.metadata) for member in answer.members] == [(answer.member_id, b"metadata")]
    assert harness.state is GroupState.COMPLETING_REBALANCE


def test_a_new_member_is_given_an_id_and_must_join_again_with_it() -> None:
    harness = GroupHarness()
    request = harness.join(known_ids=True)
    assert request.error is ErrorCode.MEMBER_ID_REQUIRED
    assert harness.state is GroupState.EMPTY
    again = harness.join(request.response.member_id, known_ids=True)
    assert again.error is ErrorCode.NONE
    assert again.response.member_id == request.response.member_id
    assert not harness.group.pending


def test_a_pending_member_that_does_not_join_is_forgotten_after_its_session() -> None:
    harness = GroupHarness()
    member_id = harness.join(known_ids=True).response.member_id
    harness.advance(SESSION_MS - 1)
    assert list(harness.group.pending) == [member_id]
    harness.advance(1)
    assert not harness.group.pending
    assert harness.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.waiting == (0, 0)


def test_a_rebalance_waits_for_a_pending_member() -> None:
    harness = GroupHarness()
    (leader,) = harness.stable()
    pending = harness.join(known_ids=True).response.member_id
    request = harness.join(leader)
    assert not request.is_answered
    joined = harness.join(pending)
    assert request.response.generation_id == joined.response.generation_id == 2


def test_a_rebalance_completes_when_a_pending_member_expires() -> None:
    harness = GroupHarness()
    (leader,) = harness.stable()
    harness.join(known_ids=True)
    request = harness.join(leader)
    harness.advance(SESSION_MS)
    assert request.response.generation_id == 2


def test_the_first_rebalance_waits_for_more_members() -> None:
    harness = GroupHarness(of_table(GroupSettings, initial_rebalance_delay_ms=DELAY_MS))
    first = harness.join()
    second = harness.join()
    harness.advance(DELAY_MS - 1)
    assert not first.is_answered
    harness.advance(1 + DELAY_MS)
    assert first.response.generation_id == second.response.generation_id == 1
    assert len(first.response.members) == 2
    assert second.response.members == []


def test_each_join_extends_the_delay_of_the_first_rebalance() -> None:
    harness = GroupHarness(of_table(GroupSettings, initial_rebalance_delay_ms=DELAY_MS))
    requests = [harness.join()]
    harness.advance(2_000)
    requests.append(harness.join())
    harness.advance(2_000)  # at 4000, in the second wait
    requests.append(harness.join())
    harness.advance(4_999)  # at 8999: no member joined in the third wait
    assert not any(each.is_answered for each in requests)
    harness.advance(1)
    assert [each.response.generation_id for each in requests] == [1, 1, 1]


def test_the_first_rebalance_waits_at_most_for_the_rebalance_timeout() -> None:
    harness = GroupHarness(of_table(GroupSettings, initial_rebalance_delay_ms=DELAY_MS))
    requests = [harness.join(rebalance_ms=7_000)]
    for _ in range(6):
        harness.advance(1_000)
        requests.append(harness.join(rebalance_ms=7_000))
    harness.advance(999)
    assert not requests[0].is_answered
    harness.advance(1)
    assert all(each.response.generation_id == 1 for each in requests)


def test_only_the_first_rebalance_waits() -> None:
    harness = GroupHarness(of_table(GroupSettings, initial_rebalance_delay_ms=DELAY_MS))
    (leader,) = harness.stable()
    new = harness.join()
    assert harness.join(leader).is_answered
    assert new.response.generation_id == 2


def test_a_new_member_makes_the_others_rejoin() -> None:
    harness = GroupHarness()
    ids = harness.stable(3)
    generation = harness.group.generation_id
    new = harness.join()
    assert harness.state is GroupState.PREPARING_REBALANCE
    assert [harness.heartbeat(each, generation) for each in ids] == [ErrorCode.REBALANCE_IN_PROGRESS] * 3
    again = harness.rejoined(ids)
    assert {each.response.generation_id for each in [new, *again]} == {generation + 1}
    assert len(again[0].response.members) == 4
    assert [len(each.response.members) for each in [new, *again[1:]]] == [0, 0, 0]


def test_members_that_do_not_rejoin_in_time_are_removed() -> None:
    harness = GroupHarness()
    leader, *others = harness.stable(3)
    new = harness.join()
    request = harness.join(others[0])
    for _ in range(REBALANCE_MS // 5_000 - 1):  # the members send heartbeats but do not rejoin
        harness.advance(5_000)
        assert harness.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
        harness.heartbeat(others[1], 2)
        assert not new.is_answered
    harness.advance(5_000)
    assert {new.response.generation_id, request.response.generation_id} == {3}
    assert {each.member_id for each in harness.group.members} == {others[0], new.response.member_id}
    assert harness.heartbeat(leader, 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_rejoin_is_replaced_by_a_member_that_has() -> None:
    harness = GroupHarness()
    leader, other = harness.stable(2)
    request = harness.join(other, protocols={"range": b"something new"})
    harness.advance(SESSION_MS)
    assert request.response.leader == other != leader
    assert len(request.response.members) == 1


def test_the_longest_rebalance_timeout_of_all_members_applies() -> None:
    harness = GroupHarness()
    (first,) = harness.stable(1, rebalance_ms=20_000, session_ms=1_800_000)
    harness.join(rebalance_ms=50_000, session_ms=1_800_000)
    harness.advance(49_999)
    assert harness.group.member(first) is not None
    harness.advance(1)
    assert harness.group.member(first) is None


def test_a_member_that_missed_the_join_response_gets_the_generation_again() -> None:
    harness = GroupHarness()
    member_id = harness.join().response.member_id
    again = harness.join(member_id)
    assert (again.response.generation_id, harness.state) == (1, GroupState.COMPLETING_REBALANCE)
    assert len(again.response.members) == 1


def test_a_follower_that_rejoins_a_stable_group_unchanged_gets_the_current_generation() -> None:
    harness = GroupHarness()
    _, follower = harness.stable(2)
    again = harness.join(follower)
    assert (again.response.generation_id, harness.state) == (2, GroupState.STABLE)


def test_a_member_that_changes_its_subscription_rebalances_the_group() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(2)
    request = harness.join(follower, protocols={"range": subscription("other")})
    assert (request.is_answered, harness.state) == (False, GroupState.PREPARING_REBALANCE)
    assert harness.join(leader).response.generation_id == 3
    assert harness.group.is_subscribed_to("other")


def test_a_leader_that_rejoins_a_stable_group_rebalances_it() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(2)
    request = harness.join(leader)
    assert harness.state is GroupState.PREPARING_REBALANCE
    harness.join(follower)
    assert request.response.generation_id == 3


def test_a_member_that_changes_its_protocols_during_completing_rebalance_rebalances_the_group() -> None:
    harness = GroupHarness()
    member_id = harness.join().response.member_id
    again = harness.join(member_id, protocols={"range": b"new"})
    assert again.response.generation_id == 2


def test_a_repeated_join_replaces_the_first_and_both_are_answered() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(2)
    first = harness.join(leader)
    second = harness.join(leader)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    harness.join(follower)
    assert second.response.generation_id == 3


@pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 1_800_001, 2**31 - 1])
def test_a_session_timeout_out_of_bounds_is_refused(session_ms: int) -> None:
    harness = GroupHarness()
    assert harness.join(session_ms=session_ms).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert harness.shard.groups == {}


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_session_timeouts_at_the_bounds_are_accepted(session_ms: int) -> None:
    assert GroupHarness().join(session_ms=session_ms).error is ErrorCode.NONE


def test_an_unknown_member_id_is_refused_and_creates_no_group() -> None:
    harness = GroupHarness()
    request = harness.join("nobody")
    assert (request.error, request.response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "nobody")
    assert harness.shard.groups == {}
    harness.stable()
    assert harness.join("nobody").error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", ["range"]), ("consumer", []), ("", [])])
def test_a_first_member_without_protocol_or_type_is_refused(protocol_type: str, protocols: list[str]) -> None:
    harness = GroupHarness()
    request = harness.join(protocol_type=protocol_type, protocols=protocols)
    assert request.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.shard.groups == {}


@pytest.mark.parametrize(("protocol_type", "protocols"), [("connect", ["range"]), ("consumer", ["sticky"])])
def test_a_member_without_a_common_protocol_is_refused(protocol_type: str, protocols: list[str]) -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable()
    for sender in ("", member_id):
        request = harness.join(sender, protocol_type=protocol_type, protocols=protocols if not sender else ["sticky"])
        assert request.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL or sender
    assert harness.join("", protocol_type=protocol_type, protocols=protocols).error is not ErrorCode.NONE


def test_an_empty_group_accepts_another_protocol_type() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable()
    harness.leave(member_id)
    assert harness.join(protocol_type="connect", protocols={"eager": b""}).response.protocol_type == "connect"


def test_a_full_group_refuses_new_members() -> None:
    harness = GroupHarness(of_table(GroupSettings, initial_rebalance_delay_ms=0, max_size=2))
    ids = harness.stable(2)
    request = harness.join()
    assert (request.error, request.response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert harness.state is GroupState.STABLE
    assert harness.join(ids[1]).error is ErrorCode.NONE


def test_a_group_loaded_with_too_many_members_refuses_the_last_to_rejoin() -> None:
    harness = GroupHarness()
    ids = harness.stable(3)
    harness.settings = of_table(GroupSettings, initial_rebalance_delay_ms=0, max_size=2)
    harness.restart()
    assert harness.state is GroupState.PREPARING_REBALANCE
    requests = harness.rejoined(ids)
    assert requests[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {each.error for each in requests[:2]} == {ErrorCode.NONE}
    assert harness.group.size == 2


def test_a_new_member_whose_join_waits_for_five_minutes_is_removed() -> None:
    harness = GroupHarness()
    ids = harness.stable(2, rebalance_ms=900_000)
    new = harness.join(rebalance_ms=900_000)
    for _ in range(60):
        assert not new.is_answered
        harness.advance(5_000)
        for each in ids:
            harness.heartbeat(each, 2)
    assert (new.error, new.response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert harness.group.size == 2


def test_a_client_id_of_maximum_length_still_yields_an_encodable_member_id() -> None:
    harness = GroupHarness()
    for client_id in ("x" * 32_767, "ü" * 16_383, "🚀" * 8_191):
        member_id = harness.join(group_id=client_id, client_id=client_id).response.member_id
        assert len(member_id.encode()) <= 32_767
        assert member_id[:100] == client_id[:100]


def test_groups_are_independent() -> None:
    harness = GroupHarness()
    harness.stable(2)
    assert harness.join(group_id="other").response.generation_id == 1
    assert harness.state is GroupState.STABLE
    assert harness.shard.groups["other"].size == 1
    assert GROUP in harness.shard.groups


def test_a_group_without_members_at_the_end_of_the_initial_delay_is_empty() -> None:
    harness = GroupHarness(of_table(GroupSettings, initial_rebalance_delay_ms=DELAY_MS))
    pending = harness.join(known_ids=True).response.member_id
    request = harness.join(pending)
    harness.leave(pending)
    assert request.error is ErrorCode.UNKNOWN_MEMBER_ID
    harness.advance(DELAY_MS)
    assert harness.state is GroupState.EMPTY


def test_a_join_whose_connection_closes_before_its_response_leaves_no_member() -> None:
    harness = GroupHarness()
    (leader,) = harness.stable()
    new = harness.join()
    harness.shard.joins.abandoned(GROUP, harness.group.member(_newest(harness)).awaiting_join)  # type: ignore[union-attr,arg-type]
    harness.settled()
    assert new.error is ErrorCode.UNKNOWN_MEMBER_ID  # the closed connection does not get this response
    assert harness.join(leader).response.generation_id == 2
    assert harness.group.size == 1


def _newest(harness: GroupHarness) -> str:
    return list(harness.group.members)[-1].member_id
