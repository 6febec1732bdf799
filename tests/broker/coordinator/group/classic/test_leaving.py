"""LeaveGroup and the deletion of groups."""

from odradek.broker.coordinator.group.admin import delete_group
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.coordinator.group.harness import GROUP, GroupHarness


def test_a_member_that_leaves_makes_the_others_rebalance_at_once() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(2)
    assert harness.leave(leader) is ErrorCode.NONE
    assert harness.heartbeat(follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.join(follower).response.leader == follower


def test_a_member_that_leaves_during_a_rebalance_lets_it_complete() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(2)
    request = harness.join(leader)
    assert not request.is_answered
    harness.leave(follower)
    assert request.response.generation_id == 3


def test_a_waiting_join_or_sync_is_answered_when_its_member_leaves() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(2)
    joining = harness.join(follower, protocols={"range": b"new"})
    harness.leave(follower)
    assert joining.error is ErrorCode.UNKNOWN_MEMBER_ID
    harness.join(leader)
    new = harness.join()
    harness.join(leader)
    syncing = harness.sync(new.response.member_id, harness.group.generation_id)
    harness.leave(new.response.member_id)
    assert syncing.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_whose_last_member_leaves_is_written_as_empty() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable()
    written = len(harness.log.records)
    harness.leave(member_id)
    assert (harness.state, harness.group.protocol_name, harness.group.leader_id) == (GroupState.EMPTY, None, None)
    assert len(harness.log.records) == written + 1
    assert harness.waiting == (0, 0)


def test_a_pending_member_can_leave_before_it_joins() -> None:
    harness = GroupHarness()
    member_id = harness.join(known_ids=True).response.member_id
    assert harness.leave(member_id) is ErrorCode.NONE
    assert harness.leave(member_id) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.waiting == (0, 0)


def test_unknown_members_cannot_leave() -> None:
    harness = GroupHarness()
    assert harness.leave("nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    (member_id,) = harness.stable()
    assert harness.leave("nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.leave("") is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.leave("", "no such instance") is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.leave(member_id, "no such instance") is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.state is GroupState.STABLE


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    harness = GroupHarness()
    harness.stable(instance="one")
    assert harness.leave("", "one") is ErrorCode.NONE
    assert harness.state is GroupState.EMPTY


def test_a_static_member_that_was_replaced_cannot_leave_for_its_successor() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable(instance="one")
    harness.join(instance="one")
    assert harness.leave(member_id, "one") is ErrorCode.FENCED_INSTANCE_ID
    assert harness.group.size == 1


def deleted(harness: GroupHarness) -> ErrorCode | None:
    """Deletes the group and returns the error, None while the tombstone is not replicated."""
    found: list[ErrorCode] = []
    try:
        delete_group(harness.shard, GROUP, found.append)
    except ProtocolError as error:
        return error.code
    return found[0] if found else None


def test_only_an_empty_group_can_be_deleted_and_its_deletion_survives_a_restart() -> None:
    harness = GroupHarness()
    assert deleted(harness) is ErrorCode.GROUP_ID_NOT_FOUND
    (member_id,) = harness.stable()
    assert deleted(harness) is ErrorCode.NON_EMPTY_GROUP
    harness.leave(member_id)
    assert deleted(harness) is ErrorCode.NONE
    assert deleted(harness) is ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.log.records[-1].value is None
    harness.restart()
    assert harness.shard.groups == {}


def test_a_group_whose_tombstone_cannot_be_written_is_kept() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable()
    harness.leave(member_id)
    harness.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert deleted(harness) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.state is GroupState.EMPTY


def test_a_group_that_was_never_written_is_deleted_without_a_record() -> None:
    harness = GroupHarness()
    member_id = harness.join(known_ids=True).response.member_id
    harness.leave(member_id)
    assert deleted(harness) is ErrorCode.NONE
    assert harness.log.records == []
    assert harness.shard.groups == {}


def test_a_group_created_while_its_deletion_is_being_written_is_a_new_group() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable()
    harness.leave(member_id)
    harness.log.is_held = True
    assert deleted(harness) is None
    request = harness.join()
    assert request.response.generation_id == 1
    harness.log.settle()
    assert harness.state is GroupState.COMPLETING_REBALANCE
