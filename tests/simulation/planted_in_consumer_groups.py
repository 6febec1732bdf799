"""Planted bugs in consumer groups and their conversions: see planted.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek.broker.background.stepwise import Steps
from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.cluster_topics import ClusterTopics
from odradek.broker.coordinator.group.consumer import heartbeat, reconciliation, target
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import ConsumerMember
from odradek.broker.coordinator.group.consumer.partition_owners import PartitionOwners
from odradek.broker.coordinator.group.consumer.records import (
    MEMBER,
    REGEX,
    TARGET,
    message_of,
    names_of,
    target_in,
)
from odradek.broker.coordinator.group.consumer.requests import ConsumerRequests
from odradek.broker.coordinator.group.consumer.timers import ConsumerTimers
from odradek.broker.coordinator.group.conversion import Conversions
from odradek.broker.coordinator.group.group import Committer
from odradek.broker.coordinator.group.shard import GroupShard
from tests.simulation.planted_in_sessions import Replace


def _who_is_away_owns_nothing(replace: Replace) -> None:
    claim = PartitionOwners.claim

    def claim_if_there(self: PartitionOwners, member: ConsumerMember) -> None:
        if not member.is_away:
            claim(self, member)

    replace(PartitionOwners, "claim", claim_if_there)


def _do_not_wait(replace: Replace) -> None:
    replace(reconciliation, "_owns_any", lambda owned, partitions: False)


def _wait_for_ever(replace: Replace) -> None:
    set_step = ConsumerTimers._set_step

    def set_others(self: ConsumerTimers, group: ConsumerGroup, timer: Any) -> None:
        if timer.kind != "rebalance":
            set_step(self, group, timer)

    replace(ConsumerTimers, "_set_step", set_others)


def _keep_the_silent(replace: Replace) -> None:
    replace(ConsumerTimers, "_session_missed", lambda self, group, member_id: None)


def _commit_in_any_epoch(replace: Replace) -> None:
    accept = ConsumerGroup.accept_commit

    def accept_any(self: ConsumerGroup, who: Committer, **options: bool) -> Any:
        member = self.member(who.member_id)
        return accept(self, who if member is None else who._replace(generation_id=member.epoch), **options)

    replace(ConsumerGroup, "accept_commit", accept_any)


def _beat_in_any_epoch(replace: Replace) -> None:
    replace(heartbeat, "check_epoch", lambda member, epoch, owned: None)


def _load_all_but(replace: Replace, kind: int, *, tombstones: bool) -> None:
    replay = GroupShard.replay

    def skip(self: GroupShard, record: Any, **place: int) -> None:
        if self._is_live or record.kind != kind or (record.value is None) is not tombstones:
            replay(self, record, **place)

    replace(GroupShard, "replay", skip)


def _load_who_has_left(replace: Replace) -> None:
    _load_all_but(replace, MEMBER, tombstones=True)


def _load_without_expressions(replace: Replace) -> None:
    _load_all_but(replace, REGEX, tombstones=False)


def _targets_in_memory(replace: Replace) -> None:
    carry_out = ConsumerRequests._carry_out

    def carry_out_the_rest(self: ConsumerRequests, group: ConsumerGroup, outcome: Any, *arguments: Any) -> bool:
        is_target = [record.kind == TARGET and record.value is not None for record in outcome.records]
        targets = [record for record, is_one in zip(outcome.records, is_target, strict=True) if is_one]
        others = [record for record, is_one in zip(outcome.records, is_target, strict=True) if not is_one]
        is_done = carry_out(self, group, outcome._replace(records=others), *arguments)
        known = self._groups.get(group.group_id)
        for record in targets if is_done else ():
            assert isinstance(known, ConsumerGroup)
            _, member_id = names_of(record)
            if known.member(member_id) is not None:
                known.set_target(member_id, target_in(message_of(record)))
        return is_done

    replace(ConsumerRequests, "_carry_out", carry_out_the_rest)


def _forget_a_partition(replace: Replace) -> None:
    assignor = target.assignor

    def forgetful(name: str) -> Any:
        assign = assignor(name)

        def assign_all_but_one(spec: Any) -> Steps[Any]:
            parts = yield from assign(spec)
            for member_id, part in parts.items():
                for topic_id, partitions in part.items():
                    return {**parts, member_id: {**part, topic_id: partitions - {max(partitions)}}}
            return parts

        return assign_all_but_one

    replace(target, "assignor", forgetful)


def _topics_stay_the_same(replace: Replace) -> None:
    replace(ClusterTopics, "has_changed", lambda self, name, *, is_new: None)


def _begin_anew(replace: Replace) -> None:
    classic = Conversions._classic

    def first_generation(self: Conversions, *arguments: Any) -> ClassicGroup:
        group = classic(self, *arguments)
        group.generation_id = 0
        return group

    replace(Conversions, "_classic", first_generation)


CONSUMER_GROUP_BUGS: Mapping[str, Callable[[Replace], None]] = {
    "a static member that is away owns nothing": _who_is_away_owns_nothing,
    "a member need not give up what it loses": _do_not_wait,
    "a member may keep for ever what it loses": _wait_for_ever,
    "members without heartbeats stay": _keep_the_silent,
    "commits of earlier epochs are accepted": _commit_in_any_epoch,
    "heartbeats are accepted in any epoch": _beat_in_any_epoch,
    "members that have left are loaded": _load_who_has_left,
    "resolved expressions are not loaded": _load_without_expressions,
    "targets are kept in memory alone": _targets_in_memory,
    "an assignor forgets a partition": _forget_a_partition,
    "groups do not see that topics change": _topics_stay_the_same,
    "a group begins anew when it becomes classic": _begin_anew,
}
"""How to plant each bug."""
