"""LeaveGroup and the deletion of groups."""

from odradek.broker.coordinator.group.state import GroupState
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.coordinator.group.group_room import GROUP, GroupRoom


def test_a_member_that_leaves_makes_the_others_rebalance_at_once() -> None:
    room = GroupRoom()
    leader, follower = room.stable(2)
    assert room.leave(leader) is ErrorCode.NONE
    assert room.heartbeat(follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert room.join(follower).response.leader == follower


def test_a_member_that_leaves_during_a_rebalance_lets_it_complete() -> None:
    room = GroupRoom()
    leader, follower = room.stable(2)
    asked = room.join(leader)
    assert not asked.is_answered
    room.leave(follower)
    assert asked.response.generation_id == 3


def test_a_waiting_join_or_sync_is_answered_when_its_member_leaves() -> None:
    room = GroupRoom()
    leader, follower = room.stable(2)
    joining = room.join(follower, protocols={"range": b"new"})
    room.leave(follower)
    assert joining.error is ErrorCode.UNKNOWN_MEMBER_ID
    room.join(leader)
    new = room.join()
    room.join(leader)
    syncing = room.sync(new.response.member_id, room.group.generation_id)
    room.leave(new.response.member_id)
    assert syncing.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_whose_last_member_leaves_is_written_as_empty() -> None:
    room = GroupRoom()
    (member_id,) = room.stable()
    written = len(room.log.records)
    room.leave(member_id)
    assert (room.state, room.group.protocol_name, room.group.leader_id) == (GroupState.EMPTY, None, None)
    assert len(room.log.records) == written + 1
    assert room.waiting == (0, 0)


def test_a_pending_member_can_leave_before_it_joins() -> None:
    room = GroupRoom()
    member_id = room.join(known_ids=True).response.member_id
    assert room.leave(member_id) is ErrorCode.NONE
    assert room.leave(member_id) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.waiting == (0, 0)


def test_unknown_members_cannot_leave() -> None:
    room = GroupRoom()
    assert room.leave("nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    (member_id,) = room.stable()
    assert room.leave("nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.leave("") is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.leave("", "no such instance") is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.leave(member_id, "no such instance") is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.state is GroupState.STABLE


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    room = GroupRoom()
    room.stable(instance="one")
    assert room.leave("", "one") is ErrorCode.NONE
    assert room.state is GroupState.EMPTY


def test_a_static_member_that_was_replaced_cannot_leave_for_its_successor() -> None:
    room = GroupRoom()
    (member_id,) = room.stable(instance="one")
    room.join(instance="one")
    assert room.leave(member_id, "one") is ErrorCode.FENCED_INSTANCE_ID
    assert room.group.size == 1


def deleted(room: GroupRoom) -> ErrorCode | None:
    """Deletes the group and returns the error, None while the tombstone is not replicated."""
    found: list[ErrorCode] = []
    try:
        room.shard.delete(GROUP, found.append)
    except ProtocolError as error:
        return error.code
    return found[0] if found else None


def test_only_an_empty_group_can_be_deleted_and_its_deletion_survives_a_restart() -> None:
    room = GroupRoom()
    assert deleted(room) is ErrorCode.GROUP_ID_NOT_FOUND
    (member_id,) = room.stable()
    assert deleted(room) is ErrorCode.NON_EMPTY_GROUP
    room.leave(member_id)
    assert deleted(room) is ErrorCode.NONE
    assert deleted(room) is ErrorCode.GROUP_ID_NOT_FOUND
    assert room.log.records[-1].value is None
    room.restart()
    assert room.shard.groups == {}


def test_a_group_whose_tombstone_cannot_be_written_is_kept() -> None:
    room = GroupRoom()
    (member_id,) = room.stable()
    room.leave(member_id)
    room.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert deleted(room) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert room.state is GroupState.EMPTY


def test_a_group_that_was_never_written_is_deleted_without_a_record() -> None:
    room = GroupRoom()
    member_id = room.join(known_ids=True).response.member_id
    room.leave(member_id)
    assert deleted(room) is ErrorCode.NONE
    assert room.log.records == []
    assert room.shard.groups == {}


def test_a_group_created_while_its_deletion_is_being_written_is_a_new_group() -> None:
    room = GroupRoom()
    (member_id,) = room.stable()
    room.leave(member_id)
    room.log.is_held = True
    assert deleted(room) is None
    asked = room.join()
    assert asked.response.generation_id == 1
    room.log.settle()
    assert room.state is GroupState.COMPLETING_REBALANCE
