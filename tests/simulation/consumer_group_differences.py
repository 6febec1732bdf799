"""What a coordinator has of consumer groups in memory, and its log does not say.

Their records are applied when they are appended. So memory is always what the whole log adds up to, the uncommitted
records at its end included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID

from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import ConsumerMember, Owned
from odradek.broker.coordinator.group.shard import GroupShard
from tests.simulation.consumer_group_ledger import Assigned, ConsumerGroupLedger, LoggedConsumerGroup, LoggedMember
from tests.simulation.membership_history import TopicIdPartition

Difference = tuple[str, object, object]
"""What differs, how it is in memory and how in the log."""


def consumer_groups_astray(shard: GroupShard, ledger: ConsumerGroupLedger) -> Iterator[Difference]:
    """Compares all consumer groups."""
    groups = {name: _logged(each) for name, each in shard.groups.items() if isinstance(each, ConsumerGroup)}
    for name in sorted({*groups, *ledger.groups}):
        found, logged = groups.get(name), ledger.groups.get(name)
        if found is None or logged is None:
            yield f"consumer group {name}", found, logged
        else:
            yield from different_consumer_groups(name, found, logged)


def different_consumer_groups(
    name: str, found: LoggedConsumerGroup, logged: LoggedConsumerGroup
) -> Iterator[Difference]:
    """Compares a group, part by part."""
    if (found.epoch, found.target_epoch) != (logged.epoch, logged.target_epoch):
        epochs = (found.epoch, found.target_epoch), (logged.epoch, logged.target_epoch)
        yield f"the epochs of consumer group {name}", *epochs
    if found.members.keys() != logged.members.keys():
        yield f"the members of consumer group {name}", sorted(found.members), sorted(logged.members)
        return
    if found.members != logged.members:
        yield f"the subscriptions in consumer group {name}", *_unequal(found.members, logged.members)
    if found.targets != logged.targets:
        yield f"the targets in consumer group {name}", *_unequal(found.targets, logged.targets)
    if found.assigned != logged.assigned:
        yield f"the assignments in consumer group {name}", *_unequal(found.assigned, logged.assigned)
    if found.regexes != logged.regexes:
        yield f"the expressions of consumer group {name}", *_unequal(found.regexes, logged.regexes)


def _unequal(found: Mapping[str, object], logged: Mapping[str, object]) -> tuple[object, object]:
    names = [name for name in sorted({*found, *logged}) if found.get(name) != logged.get(name)]
    return {name: found.get(name) for name in names}, {name: logged.get(name) for name in names}


def _logged(group: ConsumerGroup) -> LoggedConsumerGroup:
    return LoggedConsumerGroup(
        group.epoch,
        group.target_epoch,
        {each.member_id: _member(each) for each in group.members},
        {member_id: _partitions(target) for member_id, target in group.targets.items()},
        {
            each.member_id: Assigned(
                each.epoch, each.previous_epoch, each.state, _epochs(each.assigned), _epochs(each.revoking)
            )
            for each in group.members
        },
        {regex: resolved.topics for regex, resolved in group.subscriptions.resolved.items()},
    )


def _member(member: ConsumerMember) -> LoggedMember:
    return LoggedMember(
        member.instance_id,
        member.subscribed_topics,
        member.subscribed_regex,
        None if member.classic is None else tuple(member.classic.protocols),
    )


def _partitions(target: Mapping[UUID, frozenset[int]]) -> frozenset[TopicIdPartition]:
    return frozenset((topic_id, number) for topic_id, numbers in target.items() for number in numbers)


def _epochs(owned: Owned) -> dict[TopicIdPartition, int]:
    return {(topic_id, number): epoch for topic_id, epochs in owned.items() for number, epoch in epochs.items()}
