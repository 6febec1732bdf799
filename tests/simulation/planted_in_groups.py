"""Planted bugs in groups and their offsets: see planted.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek.broker.coordinator.group import shard
from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.membership import Membership
from odradek.broker.coordinator.group.classic.rebalance import Rebalances
from odradek.broker.coordinator.group.classic.records import restore_group
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.group import Committer
from odradek.broker.coordinator.group.member_requests import Syncing
from odradek.broker.coordinator.group.offsets import removal
from odradek.broker.coordinator.group.offsets.offsets import GroupOffsets
from odradek.broker.coordinator.group.shard import GroupShard
from odradek.broker.coordinator.runtime.runtime import CoordinatorRuntime
from tests.simulation.planted_in_sessions import Replace

EARLY_MS = 6000


def _any_generation(replace: Replace) -> None:
    sync, heartbeat = Membership.sync, Membership.heartbeat

    def sync_any(self: Membership, group_id: str, syncing: Syncing) -> None:
        sync(self, group_id, syncing._replace(generation_id=current(self, group_id)))

    def heartbeat_any(self: Membership, group_id: str, member_id: str, instance_id: str | None, _: int) -> Any:
        return heartbeat(self, group_id, member_id, instance_id, current(self, group_id))

    def current(self: Membership, group_id: str) -> int:
        group = self._groups.get(group_id)
        return -1 if group is None else group.generation_id

    replace(Membership, "sync", sync_any)
    replace(Membership, "heartbeat", heartbeat_any)


def _expire_early(replace: Replace) -> None:
    expire = removal._expire

    def early(of_groups: Any, group: Any, now_ms: int, retention_ms: int) -> int:
        return expire(of_groups, group, now_ms + EARLY_MS, retention_ms)

    replace(removal, "_expire", early)


def _never_expire(replace: Replace) -> None:
    replace(removal, "_expire", lambda of_groups, group, now_ms, retention_ms: 0)


def _skip_tombstones(replace: Replace) -> None:
    replay = GroupShard.replay

    def skip(self: GroupShard, record: Any, **place: int) -> None:
        if self._is_live or record.value is not None:
            replay(self, record, **place)

    replace(GroupShard, "replay", skip)


def _aborted_offsets_count(replace: Replace) -> None:
    end = GroupOffsets.replay_end_transaction

    def commit(self: GroupOffsets, producer_id: int, producer_epoch: int, committed: bool) -> None:
        end(self, producer_id, producer_epoch, True)

    replace(GroupOffsets, "replay_end_transaction", commit)


def _markers_are_not_heard(replace: Replace) -> None:
    replace(CoordinatorRuntime, "transaction_ended", lambda self, *marker: None)


def _assignments_in_memory(replace: Replace) -> None:
    save = Rebalances.save

    def save_without(self: Rebalances, group: ClassicGroup, assignments: Any, done: Any) -> None:
        save(self, group, {}, done)

    replace(Rebalances, "save", save_without)


def _last_member_leads(replace: Replace) -> None:
    def restore(group: ClassicGroup, value: bytes) -> ClassicGroup:
        restore_group(group, value)
        for member in group.members:
            group.leader_id = member.member_id
        return group

    replace(shard, "restore_group", restore)


def _replace_in_memory(replace: Replace) -> None:
    """What is written of a stable group is the replacement of a static member."""
    save = Rebalances.save

    def save_generations(self: Rebalances, group: ClassicGroup, assignments: Any, done: Any) -> None:
        if group.state is GroupState.STABLE:
            done(None)
        else:
            save(self, group, assignments, done)

    replace(Rebalances, "save", save_generations)


def _replaced_members_commit(replace: Replace) -> None:
    """A commit of a static member counts as that of whoever is the instance now."""
    accept = ClassicGroup.accept_commit

    def accept_any(self: ClassicGroup, who: Committer, **options: bool) -> None:
        current = self.static_member_id(who.group_instance_id or "")
        accept(self, who if current is None else who._replace(member_id=current), **options)

    replace(ClassicGroup, "accept_commit", accept_any)


GROUP_BUGS: Mapping[str, Callable[[Replace], None]] = {
    "SyncGroup is accepted in any generation": _any_generation,
    "offsets expire too early": _expire_early,
    "offsets do not expire": _never_expire,
    "deletions are not loaded": _skip_tombstones,
    "offsets of aborted transactions count": _aborted_offsets_count,
    "a coordinator of groups does not hear of markers": _markers_are_not_heard,
    "assignments are kept in memory alone": _assignments_in_memory,
    "the last member leads a loaded group": _last_member_leads,
    "a static member is replaced in memory alone": _replace_in_memory,
    "a replaced static member may commit": _replaced_members_commit,
}
"""How to plant each bug."""
