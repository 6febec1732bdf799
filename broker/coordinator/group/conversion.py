"""Conversions: a group with members that changes its kind, with their partitions. (KIP-848)

| from, to          | when                                                   | what the members keep                   |
|-------------------|--------------------------------------------------------|-----------------------------------------|
| classic, consumer | a member of the newer protocol joins                   | generation and assignments become epoch |
|                   |                                                        | and target; they stay classic members   |
| consumer, classic | the last member of the newer protocol goes, or a       | epoch and targets become generation and |
|                   | classic one takes its place, and classic ones are left | assignments                             |

One batch of records does it, so the log has either kind. The first is replayed as any other: a request of its own
follows in the batch. The second makes the classic group itself, with what no record has: all protocols of its members,
and how far they are. Members that have not reached the group's epoch keep what they have until they rejoin, also if the
group is converted again before: they may commit it, and are told to rejoin. In Kafka they have lost their generation,
and others read again what they could not commit. If the coordinator is lost before they have rejoined, the next one
tells them to; Kafka's takes the targets for assignments, of which the members do not know.

Source: Kafka's GroupMetadataManager (validateOnlineUpgrade, convertToConsumerGroup, convertToClassicGroup),
ConsumerGroup (fromClassicGroup, createConsumerGroupRecords), ClassicGroup (fromConsumerGroup).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from uuid import UUID

import structlog

from odradek.broker.coordinator.group.classic.group import LONGEST_LOGGED, ClassicGroup
from odradek.broker.coordinator.group.classic.member import Member
from odradek.broker.coordinator.group.classic.rebalance import Rebalances
from odradek.broker.coordinator.group.classic.records import group_metadata_record
from odradek.broker.coordinator.group.consumer.embedded_protocol import (
    by_topic_id,
    read_assignment,
    read_subscription,
    written_assignment,
)
from odradek.broker.coordinator.group.consumer.group import CONSUMER, UNKNOWN_TIME, ConsumerGroup, GroupTimers
from odradek.broker.coordinator.group.consumer.member import ClassicMemberMetadata, ConsumerMember, Partitions
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.consumer.metadata_hash import hash_of
from odradek.broker.coordinator.group.consumer.outcome import Downgrade, Outcome
from odradek.broker.coordinator.group.consumer.partition_owners import FREE, PartitionOwners
from odradek.broker.coordinator.group.consumer.records import (
    assignment_record,
    group_epoch_record,
    member_record,
    target_epoch_record,
    target_record,
    tombstones_of_group,
)
from odradek.broker.coordinator.group.consumer.requests import BASE_SEQUENCE, NotUpgraded
from odradek.broker.coordinator.group.consumer.settings import ConsumerGroupSettings
from odradek.broker.coordinator.group.consumer.subscriptions import MOST_NAMED
from odradek.broker.coordinator.group.consumer.topics import Topics
from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.runtime.shard import Act, Decision, OnDone
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.timer import Clock

WITHOUT_USER_DATA = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Assignors whose members need no user data in their assignments. (librdkafka's leader writes into them what members
sent for it.)
"""
RECORDS_OF_MEMBER = 3
LEAST_BYTES_OF_MEMBER = 90
"""Of its records, without its ids and its metadata."""

log = structlog.get_logger("broker.coordinator.group")


class Conversions:
    """`groups` is the shard's table. `most_bytes`: that a batch of the log may have."""

    def __init__(
        self,
        groups: dict[str, Group],
        act: Act,
        rebalances: Rebalances,
        topics: Topics,
        clock: Clock,
        *,
        most_bytes: int,
    ) -> None:
        self._groups = groups
        self._act = act
        self._rebalances = rebalances
        self._topics = topics
        self._clock = clock
        self._most_bytes = most_bytes

    # --- from classic to consumer -------------------------------------------------------------------------------

    def upgraded(
        self, former: Group, settings: ConsumerGroupSettings, timers: GroupTimers
    ) -> tuple[ConsumerGroup, list[CoordinatorRecord]]:
        """Returns the consumer group that a classic group with members becomes, and the records that make it.

        Raises NotUpgraded.
        """
        if not isinstance(former, ClassicGroup):
            raise NotUpgraded("it is not a classic group")
        if not settings.migration_policy.upgrades:
            raise NotUpgraded("group.consumer.migration.policy does not allow it")
        if former.protocol_type != CONSUMER:
            raise NotUpgraded("its members are no consumers")
        if former.size > settings.max_size:
            raise NotUpgraded("it has more members than group.consumer.max.size")
        if _least_bytes(former) > self._most_bytes:
            raise NotUpgraded("its members do not fit in a batch of the log")
        group = ConsumerGroup(former.group_id, timers)
        group.target_epoch, group.target_timestamp_ms = former.generation_id, UNKNOWN_TIME
        try:
            for member, target in self._consumer_members(former):
                group.put_member(member)
                group.set_target(member.member_id, target)
        except MalformedMessage as error:
            raise NotUpgraded(f"the metadata of a member are malformed: {error}") from None
        if not group.subscriptions.has_room_for():
            raise NotUpgraded(f"its members name more than {MOST_NAMED} topics")
        group.set_epoch(former.generation_id, hash_of(group.subscriptions.names(), self._topics))
        return group, [*former.tombstones(), *_records_of(group)]

    def _consumer_members(self, former: ClassicGroup) -> Iterator[tuple[ConsumerMember, Partitions]]:
        """Yields the members with their targets. Raises MalformedMessage, NotUpgraded.

        They have reached their targets, with two exceptions: those that were members of a consumer group until now, and
        had not reached them there, have what they had; and those that said in their JoinGroup that they own more have
        to give that up.
        """
        protocol = former.protocol_name or ""
        if not former.supports(CONSUMER, ((protocol, b""),)) and former.size:  # a rebalance is under way
            protocol = former.select_protocol()
        owners = PartitionOwners()
        members = []
        for member in former.members:
            subscription = read_subscription(member.metadata(protocol))
            assignment = read_assignment(member.assignment)
            if assignment.user_data and protocol not in WITHOUT_USER_DATA:
                raise NotUpgraded("its assignor is not one of Kafka's: what it told the members would be lost")
            target = by_topic_id(assignment.assigned_partitions, self._topics)
            current = _consumer_member(former, member, subscription, target)
            if any(owners.epoch(*each) != FREE for each in _each(current.assigned)):
                raise NotUpgraded("members share partitions")
            owners.claim(current)
            members.append((current, target, by_topic_id(subscription.owned_partitions, self._topics)))
        for current, target, owned in members:
            more = [each for each in _each(owned) if owners.epoch(*each) == FREE]
            if more:
                current = _giving_up(current, more)
                owners.claim(current)
            yield current, target

    # --- from consumer to classic -------------------------------------------------------------------------------

    def downgrade(self, former: ConsumerGroup, outcome: Outcome, done: OnDone) -> bool:
        """Makes the group a classic one after the records of the outcome, which asks for it. Returns whether it did."""
        downgrade = outcome.downgrade
        assert downgrade is not None
        group = self._classic(former, downgrade)
        assignments = {member.member_id: member.assignment for member in group.members}
        record = group_metadata_record(group, assignments, must_rejoin=downgrade.rebalance)
        records = [*outcome.records, *_tombstones(former, downgrade), record]
        decision = Decision(records, done, replay=False, base_sequence=BASE_SEQUENCE)
        self._act(decision)
        if decision.base_offset < 0:
            return False
        former.die("only classic members are left")
        self._groups[group.group_id] = group
        log.info(
            "group converted",
            group=group.group_id[:LONGEST_LOGGED],
            old=former.group_type,
            new=group.group_type,
            generation=group.generation_id,
            members=group.size,
        )
        group.loaded()
        if downgrade.rebalance:
            self._rebalances.prepare_if_possible(group, "the last member of the newer protocol has gone")
        return True

    def _classic(self, former: ConsumerGroup, downgrade: Downgrade) -> ClassicGroup:
        """Returns the classic group, which is in no table yet."""
        group = ClassicGroup(former.group_id, self._clock, self._rebalances)
        joining = downgrade.joining
        predecessor = None if joining is None else former.static_member(joining.instance_id or "")
        going = downgrade.leaving if predecessor is None else {*downgrade.leaving, predecessor.member_id}
        targets = {
            member.member_id: (member, former.target_of(member.member_id))
            for member in former.members
            if member.member_id not in going
        }
        if joining is not None and predecessor is not None:
            targets[joining.member_id] = joining, former.target_of(predecessor.member_id)
        for member, _ in targets.values():
            group.add(_classic_member(member))
        protocol = group.select_protocol()
        for classic in group.members:
            try:
                _, target = targets[classic.member_id]
                classic.assignment = written_assignment(target, classic.metadata(protocol), self._topics)
            except MalformedMessage:  # Only in a damaged log. The member has to rejoin.
                classic.assignment = b""
        group.former.update((member.member_id, member) for member, _ in targets.values())
        group.former_generation = former.epoch
        group.restore(former.epoch, (CONSUMER, protocol), group.leader_id)
        return group


def _consumer_member(
    group: ClassicGroup, member: Member, subscription: ConsumerProtocolSubscription, target: Partitions
) -> ConsumerMember:
    epoch = group.generation_id
    current = ConsumerMember(
        member.member_id,
        member.group_instance_id,
        subscription.rack_id or None,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        subscribed_topics=frozenset(subscription.topics),
        classic=ClassicMemberMetadata(member.session_timeout_ms, member.protocols),
        epoch=epoch,
        previous_epoch=epoch,
        assigned={topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in target.items()},
    )
    earlier = group.former.get(member.member_id)
    if isinstance(earlier, ConsumerMember) and not (member.assignment and earlier.has_reached(group.former_generation)):
        return current.with_progress_of(earlier._replace(epoch=group.epoch_of(member)))
    return current


def _giving_up(member: ConsumerMember, partitions: Iterable[tuple[UUID, int]]) -> ConsumerMember:
    """Returns the member, which must give up these partitions, too."""
    revoking = {topic_id: dict(epochs) for topic_id, epochs in member.revoking.items()}
    for topic_id, partition in partitions:
        revoking.setdefault(topic_id, {})[partition] = member.epoch
    return member._replace(state=MemberState.UNREVOKED_PARTITIONS, revoking=revoking)


def _each(owned: Mapping[UUID, Iterable[int]]) -> Iterator[tuple[UUID, int]]:
    for topic_id, partitions in owned.items():
        for partition in partitions:
            yield topic_id, partition


def _least_bytes(group: ClassicGroup) -> int:
    """Returns a size which the records of the consumer group will exceed: a group that is too large is refused before
    any work.
    """
    return sum(
        LEAST_BYTES_OF_MEMBER
        + RECORDS_OF_MEMBER * (len(group.group_id) + len(member.member_id))
        + sum(len(metadata) for _, metadata in member.protocols)
        for member in group.members
    )


def _records_of(group: ConsumerGroup) -> list[CoordinatorRecord]:
    group_id = group.group_id
    return [
        *(member_record(group_id, each) for each in group.members),
        group_epoch_record(group_id, group.epoch, group.metadata_hash),
        *(target_record(group_id, each.member_id, group.target_of(each.member_id)) for each in group.members),
        target_epoch_record(group_id, group.target_epoch, group.target_timestamp_ms),
        *(assignment_record(group_id, each) for each in group.members),
    ]


def _tombstones(group: ConsumerGroup, downgrade: Downgrade) -> list[CoordinatorRecord]:
    """Returns the records that delete the group. A member that joins has taken its predecessor's place before."""
    joining = downgrade.joining
    if joining is None:
        return group.tombstones()
    member_ids = [
        joining.member_id if member.instance_id == joining.instance_id else member.member_id for member in group.members
    ]
    return tombstones_of_group(group.group_id, member_ids, list(group.subscriptions.resolved))


def _classic_member(member: ConsumerMember) -> Member:
    classic = member.classic
    assert classic is not None
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
        CONSUMER,
        classic.protocols,
    )
