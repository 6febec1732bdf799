"""Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

A classic member is a member as any other, with its session timeout and its protocols beside: its generation is its
epoch, and its subscription and owned partitions are those in the metadata of its first protocol. It takes a step
towards its target in JoinGroup, learns its partitions in SyncGroup, and is told in Heartbeat to join again:

| Heartbeat or SyncGroup                                                             | answer                      |
|------------------------------------------------------------------------------------|-----------------------------|
| member unknown; the instance has another member id; not a classic member           | 25, 82, 25                  |
| the generation is not the member's epoch                                           | ILLEGAL_GENERATION          |
| SyncGroup: another protocol than the one of the JoinGroup                          | INCONSISTENT_GROUP_PROTOCOL |
| SyncGroup: there is a newer target, and the member has nothing to give up before   | REBALANCE_IN_PROGRESS       |
| Heartbeat: there is a newer target; it must give up partitions; all is free now    | REBALANCE_IN_PROGRESS       |
| else                                                                               | its partitions; no error    |

After REBALANCE_IN_PROGRESS the member must join, and after JoinGroup it must sync, each within its rebalance timeout.

A JoinGroup in the name of the last static member of the newer protocol leaves classic members alone: the group becomes
a classic one (`Outcome.downgrade`).

Source: Kafka's GroupMetadataManager (classicGroupJoinToConsumerGroup, classicGroupSyncToConsumerGroup,
classicGroupHeartbeatToConsumerGroup, classicGroupLeaveToConsumerGroup).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.coordinator.group.consumer.embedded_protocol import (
    by_topic_id,
    read_subscription,
    written_assignment,
)
from odradek.broker.coordinator.group.consumer.group import CONSUMER, ConsumerGroup
from odradek.broker.coordinator.group.consumer.heartbeat import Beat, Heartbeat
from odradek.broker.coordinator.group.consumer.leaving import is_left_to_classic
from odradek.broker.coordinator.group.consumer.member import JOINING, ClassicMemberMetadata, ConsumerMember
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.consumer.outcome import Downgrade, Outcome, Timer
from odradek.broker.coordinator.group.consumer.settings import ConsumerGroupSettings, MigrationPolicy
from odradek.broker.coordinator.group.consumer.topics import Topics
from odradek.broker.coordinator.group.group import NO_MEMBER
from odradek.broker.coordinator.group.member_requests import Joining, Syncing, join_refused, sync_refused
from odradek.protocol.errors import ErrorCode, MalformedMessage, ProtocolError
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.messages.groups import JoinGroupResponse, LeaveGroupResponse, SyncGroupResponse

# --- JoinGroup ------------------------------------------------------------------------------------------------------


def join(
    group: ConsumerGroup,
    joining: Joining,
    now_ms: int,
    topics: Topics,
    settings: ConsumerGroupSettings,
    new_id: Callable[[], str],
) -> Outcome:
    """Returns what a JoinGroup leads to. The group has members, and the session timeout is within the limits.

    Raises INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, POLICY_VIOLATION.
    """
    if settings.migration_policy is MigrationPolicy.DISABLED:
        raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "Groups may not change their protocol.")
    instance_id = joining.group_instance_id
    member_id = joining.member_id or new_id()
    is_known = group.member(member_id) is not None
    if not is_known and instance_id is not None:
        is_known = group.static_member(instance_id) is not None
    if not is_known and group.size >= settings.max_size:
        raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED)
    if not group.supports(joining.protocol_type, joining.protocols):
        raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "No protocol is known to all classic members.")
    if joining.member_id == NO_MEMBER and instance_id is None and joining.needs_known_id:
        return Outcome(response=join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    try:
        subscription = read_subscription(joining.protocols[0][1])
    except MalformedMessage as error:
        raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The subscription: {error}") from None
    return _Join(group, member_id, joining, subscription, now_ms, topics, settings).outcome()


class _Join(Beat):
    """A JoinGroup is a heartbeat that says everything, without an epoch."""

    def __init__(
        self,
        group: ConsumerGroup,
        member_id: str,
        joining: Joining,
        subscription: ConsumerProtocolSubscription,
        now_ms: int,
        topics: Topics,
        settings: ConsumerGroupSettings,
    ) -> None:
        request = Heartbeat(
            group.group_id,
            member_id,
            JOINING,
            instance_id=joining.group_instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            topics=subscription.topics,
            regex="",
            owned=by_topic_id(subscription.owned_partitions, topics),
            client_id=joining.client_id,
            client_host=joining.client_host,
        )
        super().__init__(group, request, now_ms, topics, settings, member_id)
        self._joining = joining
        self._after = ConsumerMember(member_id)
        self._classic = ClassicMemberMetadata(joining.session_timeout_ms, joining.protocols)
        self._downgrades = False

    def outcome(self) -> Outcome:
        """Regular expressions are resolved in heartbeats alone: a classic member has none."""
        outcome = super().outcome()._replace(resolve=frozenset())
        if not self._downgrades:
            return outcome
        return Outcome(
            outcome.records, outcome.response, downgrade=Downgrade(joining=self._after, rebalance=self._is_behind)
        )

    @property
    def _is_behind(self) -> bool:
        """Whether any member does not have its part of the target for the group's epoch."""
        assert self._old is not None
        epoch = self._target_epoch
        others = self._group.unreconciled - (not self._old.has_reached(epoch))
        return epoch < self._epoch or others > 0 or not self._after.has_reached(epoch)

    def _member(self) -> ConsumerMember:
        group, joining = self._group, self._joining
        if joining.group_instance_id is None:
            self._old = group.member(self._member_id)
        elif joining.member_id != NO_MEMBER:
            self._old = group.checked_member(joining.member_id, joining.group_instance_id)
        else:
            self._old = group.static_member(joining.group_instance_id)
            if self._old is not None:
                is_last = self._old.classic is None and is_left_to_classic(
                    group, (self._old,), self._settings, coming=1
                )
                self._downgrades = is_last
                return self._successor(self._old)
        return ConsumerMember(self._member_id) if self._old is None else self._old

    def _step(self, member: ConsumerMember, *, has_new_subscription: bool) -> ConsumerMember:
        """A group that becomes classic gets no new target: if it needs one, its members rebalance."""
        if not self._downgrades:
            return super()._step(member, has_new_subscription=has_new_subscription)
        if self._target_epoch < self._epoch:
            return member
        assert self._old is not None
        target = self._group.target_of(self._old.member_id)
        return self._reconciled(member, target, has_new_subscription=has_new_subscription)

    def _awaited(self, after: ConsumerMember) -> list[Timer]:
        member_id, joining = after.member_id, self._joining
        return [
            Timer("join", member_id),
            Timer("rebalance", member_id),
            Timer("session", member_id, joining.session_timeout_ms),
            Timer("sync", member_id, joining.rebalance_timeout_ms),
        ]

    def _response(self, before: ConsumerMember, after: ConsumerMember) -> JoinGroupResponse:
        self._after = after
        return JoinGroupResponse(
            generation_id=after.epoch,
            protocol_type=CONSUMER,
            protocol_name=self._joining.protocols[0][0],
            member_id=after.member_id,
        )


# --- SyncGroup and Heartbeat ----------------------------------------------------------------------------------------


def sync(group: ConsumerGroup, syncing: Syncing, topics: Topics) -> Outcome:
    """Returns what a SyncGroup leads to. The assignments in it are ignored: the broker assigns.

    Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL.
    """
    member, classic = _checked(group, syncing.member_id, syncing.group_instance_id, syncing.generation_id)
    protocol, subscription = classic.protocols[0]
    for sent, agreed in (syncing.protocol_type, CONSUMER), (syncing.protocol_name, protocol):
        if sent is not None and sent != agreed:
            raise ProtocolError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return Outcome(response=sync_refused(ErrorCode.REBALANCE_IN_PROGRESS), timers=[_must_join(member)])
    response = SyncGroupResponse(
        protocol_type=syncing.protocol_type,
        protocol_name=syncing.protocol_name,
        assignment=written_assignment(member.assigned, subscription, topics),
    )
    timers = [Timer("sync", member.member_id), Timer("session", member.member_id, classic.session_timeout_ms)]
    return Outcome(response=response, timers=timers)


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[Outcome, ErrorCode]:
    """Returns what a Heartbeat leads to, and its answer: NONE or REBALANCE_IN_PROGRESS.

    Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    member, classic = _checked(group, member_id, instance_id, generation_id)
    timers = [Timer("session", member.member_id, classic.session_timeout_ms)]
    code = ErrorCode.NONE
    if (
        member.epoch < group.target_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
    ):
        code = ErrorCode.REBALANCE_IN_PROGRESS
        timers.append(_must_join(member))
    return Outcome(timers=timers), code


def _must_join(member: ConsumerMember) -> Timer:
    return Timer("join", member.member_id, member.rebalance_timeout_ms, if_absent=True)


def _checked(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[ConsumerMember, ClassicMemberMetadata]:
    member = group.checked_member(member_id, instance_id)
    if member.classic is None or not member.classic.protocols:  # Without any only in a damaged log.
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID, "The member does not speak the classic protocol.")
    if generation_id != member.epoch:
        raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


# --- LeaveGroup -----------------------------------------------------------------------------------------------------


class Leaving(NamedTuple):
    """A member in a LeaveGroup request, of any protocol. An administrator may name a static member without its id."""

    member_id: str
    group_instance_id: str | None


def named_steps(
    group: ConsumerGroup, leaving: Iterable[Leaving]
) -> Steps[tuple[list[LeaveGroupResponse.MemberResponse], dict[str, ConsumerMember]]]:
    """Returns the rows of the response to a LeaveGroup, and the members to remove by their ids."""
    pace = Pace()
    found: dict[str, ConsumerMember] = {}
    rows = []
    for each in leaving:
        code = ErrorCode.NONE
        try:
            member = _named(group, each)
            found[member.member_id] = member
        except ProtocolError as error:
            code = error.code
        rows.append(
            LeaveGroupResponse.MemberResponse(
                member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code
            )
        )
        if pace.step_ends():
            yield
    return rows, found


def _named(group: ConsumerGroup, leaving: Leaving) -> ConsumerMember:
    instance_id = leaving.group_instance_id
    if instance_id is not None and leaving.member_id == NO_MEMBER:
        member = group.static_member(instance_id)
        if member is None:
            raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member
    return group.checked_member(leaving.member_id, instance_id)
