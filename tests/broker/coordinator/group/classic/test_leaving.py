"""LeaveGroup and the deletion of groups."""

from odradek.broker.coordinator.group.admin import delete_group
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.coordinator.group.harness import GROUP, GroupHarness


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
