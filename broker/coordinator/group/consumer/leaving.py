"""How members of a consumer group go: they leave, leave for a while, or are fenced when a timeout expires.

Source: Kafka's GroupMetadataManager (consumerGroupLeave, consumerGroupFenceMembers,
consumerGroupStaticMemberGroupLeave).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from odradek.broker.coordinator.group.consumer.group import UNKNOWN_TIME, ConsumerGroup
from odradek.broker.coordinator.group.consumer.heartbeat import Heartbeat
from odradek.broker.coordinator.group.consumer.member import AWAY, ConsumerMember
from odradek.broker.coordinator.group.consumer.metadata_hash import hash_after
from odradek.broker.coordinator.group.consumer.outcome import Downgrade, Outcome, Timer, all_cancelled
from odradek.broker.coordinator.group.consumer.records import (
    assignment_record,
    group_epoch_record,
    member_tombstones,
    regex_tombstone,
    target_epoch_record,
)
from odradek.broker.coordinator.group.consumer.settings import ConsumerGroupSettings
from odradek.broker.coordinator.group.consumer.topics import Topics
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatResponse


def is_left_to_classic(
    group: ConsumerGroup, going: Collection[ConsumerMember], settings: ConsumerGroupSettings, *, coming: int = 0
) -> bool:
    """Whether the group becomes a classic one without some members: `coming` classic ones take their places."""
    left = group.size - len(going) + coming
    classic = group.classic_members - sum(member.classic is not None for member in going) + coming
    if not settings.migration_policy.downgrades or not 0 < left == classic <= settings.classic_max_size:
        return False
    ids = {member.member_id for member in going}
    protocols = [each.classic.names for each in group.members if each.classic is not None and each.member_id not in ids]
    return not protocols or bool(frozenset.intersection(*protocols))


def away(group: ConsumerGroup, request: Heartbeat) -> Outcome:
    """Returns what a heartbeat with the epoch AWAY leads to: a static member leaves for a while.

    It keeps its partitions until it comes back or its session expires.

    Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    member = group.checked_member(request.member_id, request.instance_id)
    response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=AWAY)
    record = assignment_record(group.group_id, member.gone_for_a_while())
    return Outcome([record], response, [Timer("rebalance", member.member_id)])


def fence(
    group: ConsumerGroup,
    members: Collection[ConsumerMember],
    topics: Topics,
    settings: ConsumerGroupSettings,
    *,
    together: bool = True,
) -> Outcome:
    """Returns what the removal of the members leads to. The group's epoch grows once if they go `together`,
    else as if they went one after the other.

    An empty group has its target for nobody at once, so that nothing delays the one of its next member. If only classic
    members are left, the group becomes a classic one.
    """
    if not members:
        return Outcome()
    if is_left_to_classic(group, members, settings):
        return Outcome(downgrade=Downgrade(frozenset(member.member_id for member in members)))
    group_id = group.group_id
    records: list[CoordinatorRecord] = []
    timers: list[Timer] = []
    for member in members:
        records += member_tombstones(group_id, member.member_id)
        timers += all_cancelled(member.member_id, is_classic=member.classic is not None)
    users = Counter(member.subscribed_regex for member in members if member.subscribed_regex)
    unused = [regex for regex, count in users.items() if count == group.subscriptions.members_with(regex)]
    records += [regex_tombstone(group_id, regex) for regex in unused]
    changes = [(member, None) for member in members]
    epoch = group.next_epoch + (0 if together else len(members) - 1)
    records.append(group_epoch_record(group_id, epoch, hash_after(group, topics, changes, dict.fromkeys(unused))))
    is_empty = group.size == len(members)
    if is_empty:
        records.append(target_epoch_record(group_id, epoch, UNKNOWN_TIME))
    return Outcome(records, None, timers, assign=not is_empty)
