"""A group of another kind, of which offsets, shard and administration know only what every kind promises."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest

from odradek.broker.coordinator.group.admin import GroupOverview, count_by_state, delete_group, overviews
from odradek.broker.coordinator.group.group import Committer, Group, GroupMember, OffsetExpiry, Session
from odradek.broker.coordinator.group.offsets.commits import commit_offsets
from odradek.broker.coordinator.group.offsets.removal import check_may_delete, expire_offsets, remove_offsets
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.purgatory.delayed_heartbeat import DelayedHeartbeat
from tests.broker.coordinator.group.harness import GROUP, GroupHarness
from tests.broker.coordinator.group.offsets.offset_log import committed

RETENTION_MS = 1000


class OtherGroup:
    """Members "a" and "b" may commit in generation 7, until `leave`. It keeps the offsets of topic "kept"."""

    group_type = "other"
    protocol_type: str | None = "x"
    protocol_name: str | None = None
    generation_id = 7
    current_state_timestamp_ms = 0

    def __init__(self) -> None:
        self.group_id = GROUP
        self.names = {"a", "b"}
        self.calls: list[str] = []

    def leave(self) -> None:
        self.names.clear()

    @property
    def state_name(self) -> str:
        return "Assigned" if self.names else "Empty"

    @property
    def size(self) -> int:
        return len(self.names)

    @property
    def members(self) -> Collection[GroupMember]:
        return []

    def member(self, member_id: str) -> GroupMember | None:
        return None

    def is_leader(self, member_id: str) -> bool:
        return False

    def session_of(self, member_id: str) -> Session | None:
        return None

    def sessions(self) -> Iterable[DelayedHeartbeat]:
        return []

    def accept_fetch(self, member_id: str | None, member_epoch: int) -> None:
        pass

    def check(self) -> None:
        pass

    def accept_commit(self, who: Committer, *, in_transaction: bool = False) -> None:
        if who.member_id not in self.names or who.generation_id != self.generation_id:
            raise ProtocolError(ErrorCode.STALE_MEMBER_EPOCH)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic == "kept"

    def offset_expiry(self) -> OffsetExpiry | None:
        return OffsetExpiry(kept_topics=frozenset({"kept"}))

    def check_offsets_deletable(self) -> None:
        if self.names:
            raise ProtocolError(ErrorCode.NON_EMPTY_GROUP)

    @property
    def is_empty(self) -> bool:
        return not self.names

    is_unused = is_empty

    def tombstones(self) -> list[CoordinatorRecord]:
        return []

    def die(self, reason: str) -> None:
        self.calls.append("die")

    def loaded(self) -> None:
        self.calls.append("loaded")

    def unload(self) -> None:
        self.calls.append("unload")


@pytest.fixture
def harness() -> GroupHarness:
    harness = GroupHarness()
    harness.shard.groups[GROUP] = OtherGroup()
    return harness


def other(harness: GroupHarness) -> OtherGroup:
    group: Group = harness.shard.groups[GROUP]
    assert isinstance(group, OtherGroup)
    return group


def commit(harness: GroupHarness, *topics: str, member_id: str = "a") -> None:
    outcomes: list[ProtocolError | None] = []
    commits = {topic: {0: committed(5)} for topic in topics}
    commit_offsets(harness.shard, Committer(GROUP, 7, member_id), commits, outcomes.append)
    assert outcomes == [None]


def test_the_group_decides_who_may_commit(harness: GroupHarness) -> None:
    commit(harness, "t")
    with pytest.raises(ProtocolError) as refused:
        commit(harness, "t", member_id="stranger")
    assert refused.value.code is ErrorCode.STALE_MEMBER_EPOCH
    assert harness.shard.offsets.count == 1


def test_the_group_decides_which_offsets_stay(harness: GroupHarness) -> None:
    commit(harness, "kept", "t")
    assert sum(expire_offsets([harness.shard], 10**15, RETENTION_MS)) == 1
    assert list(harness.shard.offsets.committed(GROUP)) == ["kept"]


def test_the_group_decides_whether_its_offsets_may_be_deleted(harness: GroupHarness) -> None:
    commit(harness, "t")
    with pytest.raises(ProtocolError):
        check_may_delete(harness.shard, GROUP)
    group = other(harness)
    group.leave()
    assert check_may_delete(harness.shard, GROUP) is group
    assert remove_offsets(harness.shard, group, {"t": [0]}) == 1
    assert (harness.shard.groups, group.calls) == ({}, ["die"]), "it had no members, and the last offset is gone"


def test_only_an_empty_group_is_deleted_with_its_offsets(harness: GroupHarness) -> None:
    commit(harness, "t")
    found: list[ErrorCode] = []
    with pytest.raises(ProtocolError) as refused:
        delete_group(harness.shard, GROUP, found.append)
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    other(harness).leave()
    delete_group(harness.shard, GROUP, found.append)
    assert (found, harness.shard.groups, harness.shard.offsets.count) == ([ErrorCode.NONE], {}, 0)


def test_groups_are_listed_and_counted_by_type_and_state(harness: GroupHarness) -> None:
    harness.shard.new_classic("c")
    groups = list(harness.shard.groups.values())
    listed = GroupOverview(GROUP, "other", "x", "Assigned")
    assert overviews(groups, {"Assigned"}, set()) == overviews(groups, set(), {"other"}) == [listed]
    assert overviews(groups, {"Assigned"}, {"classic"}) == []
    assert count_by_state(groups) == {("other", "Assigned"): 1, ("classic", "Empty"): 1}


def test_requests_of_classic_members_are_refused(harness: GroupHarness) -> None:
    assert harness.join().error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.sync("a", 7).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.heartbeat("a", 7) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.leave("a") is ErrorCode.UNKNOWN_MEMBER_ID
    assert other(harness).size == 2


def test_loading_and_unloading_are_passed_on(harness: GroupHarness) -> None:
    group = other(harness)
    harness.shard.loaded()
    harness.shard.unload()
    assert (group.calls, harness.shard.groups) == (["loaded", "unload"], {})
