"""ConsumerGroupHeartbeat of a member that joins or stays. (KIP-848; leaving: `leaving.py`)

A heartbeat goes through these stages; each adds its records, in this order:

(A) the member that it is from: known, new, or one that takes the place of a static member that is away
(B) what the member is and is subscribed to
(C) the group's epoch, if its subscriptions or their topics have changed
(D) the target assignment, if it is behind the group's epoch and may be computed now
(E) the next step of the member towards its target

The JoinGroup of a classic member takes the same way: see `classic_members.py`.

Null in a request means "as before". An empty list of topics or an empty expression means none.

Source: Kafka's KafkaApis, GroupCoordinatorService (throwIfConsumerGroupHeartbeatRequestIsInvalid), GroupMetadataManager
(consumerGroupHeartbeat).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple
from uuid import UUID

from odradek.broker.background.stepwise import finished
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import (
    AWAY,
    JOINING,
    LEAVING,
    NO_TIMEOUT,
    ClassicMemberMetadata,
    ConsumerMember,
    Owned,
    Partitions,
)
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.consumer.metadata_hash import REFRESH_INTERVAL_MS, hash_after
from odradek.broker.coordinator.group.consumer.outcome import Outcome, Timer, all_cancelled
from odradek.broker.coordinator.group.consumer.reconciliation import reconcile
from odradek.broker.coordinator.group.consumer.records import (
    assignment_record,
    group_epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    regex_tombstone,
    target_record,
)
from odradek.broker.coordinator.group.consumer.regex import check_regex, must_resolve
from odradek.broker.coordinator.group.consumer.settings import ConsumerGroupSettings
from odradek.broker.coordinator.group.consumer.subscriptions import MOST_NAMED, ResolvedRegex, topics_of
from odradek.broker.coordinator.group.consumer.target import Assignment, due_in_ms, is_large
from odradek.broker.coordinator.group.consumer.topics import Topics
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatResponse
from odradek.protocol.schema import Message

CLIENTS_MAKE_IDS = 1
"""The first version in which a client makes its member id. (KIP-1082)"""


class Heartbeat(NamedTuple):
    """A request. What is null in it is None: `instance_id`, `rack_id`, `topics`, `regex`, `assignor`, `owned`."""

    group_id: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    topics: Collection[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    version: int = CLIENTS_MAKE_IDS

    @property
    def is_bare(self) -> bool:
        """Whether it says nothing new, as most do."""
        return self.topics is None and self.regex is None and self.owned is None

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as after an error: then the client needs its assignment again."""
        has_subscription = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != NO_TIMEOUT and has_subscription and self.owned is not None


def check_request(request: Heartbeat, assignors: Collection[str]) -> None:
    """Raises INVALID_REQUEST, UNSUPPORTED_ASSIGNOR if no group could accept the request."""
    epoch = request.epoch
    if not request.group_id or request.instance_id == "" or request.rack_id == "":
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "An id of the group, the instance or the rack is empty.")
    if not request.member_id and (request.version >= CLIENTS_MAKE_IDS or epoch > JOINING or epoch == LEAVING):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "The member id is empty.")
    if epoch < AWAY or (epoch == AWAY and request.instance_id is None):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "The member epoch is not valid without an instance id.")
    if epoch == JOINING:
        if request.rebalance_timeout_ms == NO_TIMEOUT:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "A member that joins must have a rebalance timeout.")
        if request.owned is None or request.owned:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "A member that joins must own no partitions, and say so.")
        if request.topics is None and request.regex is None:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "A member that joins must have a subscription.")
    if request.assignor is not None and request.assignor not in assignors:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"The assignor is unknown. Known are {', '.join(assignors)}."
        )


def heartbeat(
    group: ConsumerGroup,
    request: Heartbeat,
    now_ms: int,
    topics: Topics,
    settings: ConsumerGroupSettings,
    new_id: Callable[[], str],
) -> Outcome:
    """Returns what the heartbeat leads to. The request has passed `check_request`, and its epoch is no leaving one.

    `group` may be new, and then is not in any table yet. `now_ms`: since 1970. `new_id()` makes a member id, which old
    clients do not do themselves.

    Raises GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, FENCED_MEMBER_EPOCH,
    INVALID_REGULAR_EXPRESSION, POLICY_VIOLATION.
    """
    return Beat(group, request, now_ms, topics, settings, request.member_id or new_id()).outcome()


class Beat:
    """One heartbeat on its way through the stages. Epochs and target are those that it leads to."""

    def __init__(
        self,
        group: ConsumerGroup,
        request: Heartbeat,
        now_ms: int,
        topics: Topics,
        settings: ConsumerGroupSettings,
        member_id: str,
    ) -> None:
        self._group = group
        self._request = request
        self._now_ms = now_ms
        self._topics = topics
        self._settings = settings
        self._member_id = member_id
        self._classic: ClassicMemberMetadata | None = None
        """What the member has of the classic protocol after the request."""
        self._records: list[CoordinatorRecord] = []
        self._timers: list[Timer] = []
        self._old: ConsumerMember | None = None
        """The member as the group knows it: its predecessor, or None if it is new."""
        self._epoch = group.epoch
        self._target_epoch = group.target_epoch
        self._resolutions: dict[str, ResolvedRegex | None] = {}
        self._resolve: frozenset[str] = frozenset()
        self._refresh_at_ms: int | None = None
        self._assign = False

    def outcome(self) -> Outcome:
        before = self._member()
        member = self._updated(before)
        has_new_topics = member.subscribed_topics != before.subscribed_topics
        has_new_regex = member.subscribed_regex != before.subscribed_regex
        if member is not before:
            self._records.append(member_record(self._group.group_id, member))
        must_assign = self._regex_changed(before.subscribed_regex, member.subscribed_regex) or has_new_topics
        self._grow(member, must_assign)
        after = self._step(member, has_new_subscription=has_new_topics or has_new_regex)
        self._timers += self._awaited(after)
        response = self._response(before, after)
        return Outcome(self._records, response, self._timers, self._resolve, self._assign, self._refresh_at_ms)

    # --- (A) ----------------------------------------------------------------------------------------------------

    def _member(self) -> ConsumerMember:
        """Returns the member before the request. A new one has no subscription yet."""
        request, group = self._request, self._group
        known = group.member(self._member_id)
        instance_id = request.instance_id
        static = None if instance_id is None else group.static_member(instance_id)
        if group.size >= self._settings.max_size and known is None and static is None:
            raise ProtocolError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if request.epoch != JOINING:
            self._old = group.checked_member(self._member_id, instance_id)
            check_epoch(self._old, request.epoch, request.owned)
            return self._old
        if static is not None:
            if static.classic is None and not static.is_away:
                raise ProtocolError(ErrorCode.UNRELEASED_INSTANCE_ID)
            return self._successor(static)
        self._old = known
        return ConsumerMember(self._member_id) if known is None else known

    def _successor(self, static: ConsumerMember) -> ConsumerMember:
        """Returns the member that takes the place of the static one, and writes that."""
        self._old = static
        member = static.successor(self._member_id)
        group_id = self._group.group_id
        self._records += [
            *member_tombstones(group_id, static.member_id),
            member_record(group_id, member),
            target_record(group_id, member.member_id, self._group.target_of(static.member_id)),
            assignment_record(group_id, member),
        ]
        self._timers += all_cancelled(static.member_id, is_classic=static.classic is not None)
        return member

    # --- (B) ----------------------------------------------------------------------------------------------------

    def _updated(self, before: ConsumerMember) -> ConsumerMember:
        """Returns the member with what the request says, or the same one if that is nothing new.

        Raises POLICY_VIOLATION.
        """
        request = self._request
        topics = before.subscribed_topics
        if request.topics is not None:
            named = self._group.subscriptions.shared(request.topics)
            topics = topics if named == topics else named
            if topics is named and not self._group.subscriptions.has_room_for(named):
                raise ProtocolError(
                    ErrorCode.POLICY_VIOLATION, f"The group's members name more than {MOST_NAMED} topics."
                )
        timeout_ms = request.rebalance_timeout_ms
        after = before._replace(
            instance_id=before.instance_id if request.instance_id is None else request.instance_id,
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == NO_TIMEOUT else timeout_ms,
            server_assignor=before.server_assignor if request.assignor is None else request.assignor,
            subscribed_topics=topics,
            subscribed_regex=before.subscribed_regex if request.regex is None else request.regex,
            classic=self._classic,
        )
        return before if after == before and self._old is not None else after

    def _regex_changed(self, old: str, new: str) -> bool:
        """Returns whether the topics of the member's expression are others now, so that a new target is needed.

        If they are not known yet, the result of their resolution asks for one.
        """
        subscriptions = self._group.subscriptions
        regexes = set(subscriptions.regexes())
        if not new and not regexes:
            return False
        has_changed = False
        if old != new:
            if old and subscriptions.members_with(old) == 1:
                self._records.append(regex_tombstone(self._group.group_id, old))
                self._resolutions[old] = None
                regexes.discard(old)
            if new and not subscriptions.members_with(new):
                check_regex(new)
                regexes.add(new)
            has_changed = not new or new in subscriptions.resolved
        refresh_interval_ms = self._settings.regex_refresh_interval_ms
        if must_resolve(self._group, regexes, self._topics, self._now_ms, refresh_interval_ms):
            self._resolve = frozenset(regexes)
        return has_changed

    # --- (C) ----------------------------------------------------------------------------------------------------

    def _grow(self, member: ConsumerMember, has_changed: bool) -> None:
        """Raises the group's epoch if its subscriptions, its assignor or its topics have changed."""
        group, known = self._group, self._settings.assignors
        if member is not self._old and not has_changed:
            wanted = group.preferred_assignor(known, self._old, member)
            has_changed = wanted != group.preferred_assignor(known)
        is_due = self._now_ms >= group.refresh_at_ms
        if not has_changed and not is_due:
            return
        hashed = hash_after(group, self._topics, ((self._old, member),), self._resolutions, is_due=is_due)
        if has_changed or hashed != group.metadata_hash:
            self._epoch = group.next_epoch
            self._records.append(group_epoch_record(group.group_id, self._epoch, hashed))
        if group.has_partition_metadata:
            self._records.append(partition_metadata_tombstone(group.group_id))
        self._refresh_at_ms = self._now_ms + REFRESH_INTERVAL_MS

    # --- (D) ----------------------------------------------------------------------------------------------------

    def _assigned(self, member: ConsumerMember) -> Partitions:
        """Returns the member's target: of the new assignment, if it is computed now, or of the last one."""
        group = self._group
        wait_ms = due_in_ms(group, self._epoch, self._now_ms, self._settings.assignment_interval_ms)
        if wait_ms == 0 and not is_large(group, member, self._topics):
            change = self._old, member
            assignment = Assignment(group, self._epoch, self._topics, self._settings.assignors, change)
            target = finished(assignment.steps())
            self._records += assignment.records(target, self._now_ms)
            self._target_epoch = self._epoch
            return target[member.member_id]
        self._assign = wait_ms is not None
        return group.target_of(member.member_id if self._old is None else self._old.member_id)

    # --- (E) ----------------------------------------------------------------------------------------------------

    def _step(self, member: ConsumerMember, *, has_new_subscription: bool) -> ConsumerMember:
        """(D) and (E)"""
        return self._reconciled(member, self._assigned(member), has_new_subscription=has_new_subscription)

    def _reconciled(self, member: ConsumerMember, target: Partitions, *, has_new_subscription: bool) -> ConsumerMember:
        if not has_new_subscription and member.has_reached(self._target_epoch):
            return member
        after = reconcile(
            member,
            self._target_epoch,
            target,
            subscribed=_Subscribed(topics_of(member, self._group.subscriptions.resolved), self._topics),
            owned=self._request.owned,
            owner_epoch=self._group.owners.epoch,
            has_new_subscription=has_new_subscription,
        )
        if after != member:
            self._records.append(assignment_record(self._group.group_id, after))
            if after.state is MemberState.UNREVOKED_PARTITIONS:
                self._timers.append(Timer("rebalance", after.member_id, after.rebalance_timeout_ms, after.epoch))
            else:
                self._timers.append(Timer("rebalance", after.member_id))
        return after

    def _awaited(self, after: ConsumerMember) -> list[Timer]:
        """Returns the timers of what the member must do next, whatever step it has taken."""
        timers = [Timer("session", after.member_id, self._settings.session_timeout_ms)]
        if self._old is not None and self._old.classic is not None:
            timers += [Timer("join", after.member_id), Timer("sync", after.member_id)]
        return timers

    def _response(self, before: ConsumerMember, after: ConsumerMember) -> Message:
        request = self._request
        is_told = request.epoch == JOINING or request.is_full or after.assigned != before.assigned
        return ConsumerGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=self._settings.heartbeat_interval_ms,
            assignment=_assignment(after.assigned) if is_told else None,
        )


def check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """Raises FENCED_MEMBER_EPOCH if a member of this epoch must rejoin.

    The previous epoch is accepted of a member that has not got the last response: all that it owns is assigned to it.
    """
    if epoch == member.epoch:
        return
    may_have_missed = epoch == member.previous_epoch and epoch < member.epoch
    if not may_have_missed or owned is None or not member.owns_all(owned):
        raise ProtocolError(ErrorCode.FENCED_MEMBER_EPOCH)


class _Subscribed:
    """The ids of topics that are named, without a look-up of each name."""

    __slots__ = ("_names", "_topics")

    def __init__(self, names: frozenset[str], topics: Topics) -> None:
        self._names = names
        self._topics = topics

    def __contains__(self, topic_id: object) -> bool:
        return isinstance(topic_id, UUID) and self._topics.name(topic_id) in self._names

    def __len__(self) -> int:
        return len(self._names)


def _assignment(assigned: Owned) -> ConsumerGroupHeartbeatResponse.Assignment:
    return ConsumerGroupHeartbeatResponse.Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assigned.items()
        ]
    )
