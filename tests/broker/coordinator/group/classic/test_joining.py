"""JoinGroup: how clients become members, when a generation begins, and which requests are refused."""

import pytest

from odradek.broker.coordinator.group.classic.settings import GroupSettings
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.protocol.errors import ErrorCode
from tests.broker.coordinator.group.harness import GROUP, GroupHarness
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


def test_who_joined_at_the_end_of_one_first_rebalance_does_not_make_the_next_one_longer() -> None:
    harness = GroupHarness(of_table(GroupSettings, initial_rebalance_delay_ms=DELAY_MS))
    requests = [harness.join(rebalance_ms=DELAY_MS + 1)]
    harness.advance(DELAY_MS - 1)
    requests.append(harness.join(rebalance_ms=DELAY_MS + 1))
    harness.advance(1)
    requests.append(harness.join(rebalance_ms=DELAY_MS + 1))
    harness.advance(1)
    for each in requests:
        harness.leave(each.response.member_id)
    harness.advance(DELAY_MS + 1)
    assert harness.state is GroupState.EMPTY
    first = harness.join()
    harness.advance(DELAY_MS)
    assert first.is_answered


@pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 1_800_001, 2**31 - 1])
def test_a_session_timeout_out_of_bounds_is_refused(session_ms: int) -> None:
    harness = GroupHarness()
    assert harness.join(session_ms=session_ms).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert harness.shard.groups == {}


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_session_timeouts_at_the_bounds_are_accepted(session_ms: int) -> None:
    assert GroupHarness().join(session_ms=session_ms).error is ErrorCode.NONE


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


def test_a_group_loaded_with_too_many_members_refuses_the_last_to_rejoin() -> None:
    harness = GroupHarness()
    ids = harness.stable(3)
    harness.settings = of_table(GroupSettings, initial_rebalance_delay_ms=0, max_size=2)
    harness.restart()
    assert harness.state is GroupState.PREPARING_REBALANCE
    requests = harness.rejoined(ids)
    assert requests[2].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {each.error for each in requests[:2]} == {ErrorCode.NONE}
    assert (harness.group.size, harness.waits.heartbeat.delayed) == (2, 2)


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


def test_a_join_whose_connection_closes_before_its_response_leaves_no_member() -> None:
    harness = GroupHarness()
    (leader,) = harness.stable()
    new = harness.join()
    newest = harness.group.member(_newest(harness))
    assert newest is not None
    assert newest.awaiting_join is not None
    harness.coordinator.join_abandoned(GROUP, newest.awaiting_join)
    harness.settled()
    assert new.error is ErrorCode.UNKNOWN_MEMBER_ID  # the closed connection does not get this response
    assert harness.join(leader).response.generation_id == 2
    assert harness.group.size == 1


def _newest(harness: GroupHarness) -> str:
    return list(harness.group.members)[-1].member_id
