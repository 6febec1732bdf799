"""Carries out what requests and timers of consumer groups lead to, for the groups of one shard.

The rooms around decide; here their records are appended, and the rest of an `Outcome` follows if that succeeded:

(A) Timers are set. A member whose session or next step is missed is removed.
(B) Regular expressions are resolved beside the requests, one run a group.
(C) The target assignment is computed. A heartbeat computes that of a small group itself, if it may; what is left is
    computed by a timer when the assignment interval has passed, in steps, one run a group.
(D) A group whose last members are classic ones becomes a classic group.

Source: Kafka's GroupMetadataManager; (C) KIP-1263.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

import structlog

from odradek.broker.background.stepwise import Steps
from odradek.broker.background.tasks import Soon
from odradek.broker.coordinator.group.consumer import classic_members
from odradek.broker.coordinator.group.consumer.classic_members import Leaving
from odradek.broker.coordinator.group.consumer.departures import Departures
from odradek.broker.coordinator.group.consumer.group import (
    LONGEST_LOGGED,
    ConsumerGroup,
    GroupTimers,
    UnchangingHeartbeat,
)
from odradek.broker.coordinator.group.consumer.heartbeat import Heartbeat, heartbeat
from odradek.broker.coordinator.group.consumer.leaving import away, fence
from odradek.broker.coordinator.group.consumer.member import AWAY, JOINING, LEAVING, ConsumerMember
from odradek.broker.coordinator.group.consumer.outcome import Outcome, Timer
from odradek.broker.coordinator.group.consumer.regex import MEMORY_OF_RESOLUTION, next_regexes, resolve_steps, resolved
from odradek.broker.coordinator.group.consumer.settings import ConsumerGroupSettings
from odradek.broker.coordinator.group.consumer.target import Assignment, due_in_ms
from odradek.broker.coordinator.group.consumer.timers import ConsumerTimers
from odradek.broker.coordinator.group.consumer.topics import Topics
from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.member_requests import Joining, Syncing, join_refused, sync_refused
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.runtime.shard import Act, Decision, OnDone, nobody_waits
from odradek.broker.metadata.kafka_uuid import random_uuid, uuid_text
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatResponse
from odradek.protocol.messages.groups import LeaveGroupResponse
from odradek.protocol.schema import Message
from odradek.purgatory import DelayedOperationPurgatory
from odradek.timer import Clock

BASE_SEQUENCE = 0
"""Of the batches, as in Kafka."""
MOST_LEAVING = 500
"""How many members leave by one step of a LeaveGroup: each has three records."""
RETRY_MS = 1000
"""How long what could not be written waits at least before it is tried again."""

T = TypeVar("T")
Answer = Callable[[Message | ProtocolError], object]
IsVisible = Callable[[str], bool]
"""Whether the client may describe the topic."""

log = structlog.get_logger("broker.coordinator.group")


class Work(Protocol):
    """Runs steps beside the requests, and calls `then` with their value within the last step, or `failed`.

    `size`: how much memory they use, if it is much; the steps wait for room.
    """

    def __call__(
        self,
        steps: Steps[T],
        then: Callable[[T], object],
        failed: Callable[[Exception], object],
        name: str,
        size: int = 0,
    ) -> object: ...


class NotUpgraded(ProtocolError):
    """GROUP_ID_NOT_FOUND: a group with members does not become a consumer group. The message says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.GROUP_ID_NOT_FOUND, f"The group does not become a consumer group: {reason}.")


class Conversions(Protocol):
    """How groups with members change their kind."""

    def upgraded(
        self, former: Group, settings: ConsumerGroupSettings, timers: GroupTimers
    ) -> tuple[ConsumerGroup, Sequence[CoordinatorRecord]]:
        """Returns the consumer group that another becomes, and the records that make it. Raises NotUpgraded."""

    def downgrade(self, former: ConsumerGroup, outcome: Outcome, done: OnDone) -> bool:
        """Appends the records of an outcome with a `downgrade`, and those that make the group a classic one, and takes
        it into the table. Returns False if that failed.
        """


class ConsumerGroupMetrics:
    """Counts since the broker started. `rebalances`: how often the epoch of a group grew (Kafka's
    consumer-group-rebalance-count); `assignments`: targets that were computed and written; `resolutions`: runs that
    resolved the regular expressions of a group.
    """

    __slots__ = ("assignments", "rebalances", "resolutions")

    def __init__(self) -> None:
        self.assignments = 0
        self.rebalances = 0
        self.resolutions = 0


class ConsumerEnvironment(NamedTuple):
    """What the consumer groups of all shards share. `most_bytes`: of the records in a batch, where
    there is a choice; the log takes twice as many.
    """

    topics: Topics
    settings_of: Callable[[str], ConsumerGroupSettings]
    work: Work
    soon: Soon
    most_bytes: int
    metrics: ConsumerGroupMetrics


class ConsumerRequests:
    """`groups` is the shard's table; replay and conversions change it. `sessions`, `steps`: where timers are parked."""

    def __init__(
        self,
        groups: Mapping[str, Group],
        act: Act,
        environment: ConsumerEnvironment,
        clock: Clock,
        random: Random,
        *,
        sessions: DelayedOperationPurgatory,
        steps: DelayedOperationPurgatory,
        conversions: Conversions,
    ) -> None:
        self._groups = groups
        self._act = act
        self._topics, self._settings_of, self._work, soon, self._most_bytes, self._metrics = environment
        self._clock = clock
        self._random = random
        self._conversions = conversions
        self.timers = ConsumerTimers(
            sessions, steps, lambda group_id: self._settings_of(group_id).session_timeout_ms, self._remove
        )
        self.departures = Departures(soon, partial(self._remove_together, together=False))
        self._assigned: set[ConsumerGroup] = set()
        """The groups whose target is being computed in steps."""

    # --- requests -----------------------------------------------------------------------------------------------

    def repeated(self, request: Heartbeat) -> Message | None:
        """Handles a heartbeat like the member's last one, if that changed nothing and nothing has changed since.

        Returns the response; None: the heartbeat must be handled in full.
        """
        group = self._groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            return None
        last = group.unchanging.get(request.member_id)
        if last is None or last.request != request or last.changes != group.changes:
            return None
        settings = self._settings_of(request.group_id)
        if last.settings is not settings or self._clock.wall_ms() >= group.refresh_at_ms:
            return None
        self.timers.set(group, (Timer("session", request.member_id, settings.session_timeout_ms),))
        return last.response

    def heartbeat(self, request: Heartbeat, is_visible: IsVisible, answer: Answer) -> None:
        """Handles a request that has passed `check_request`. Calls `answer`, now or when the records are replicated.

        The first member of a group takes the place of a classic group without members; the offsets stay. A classic
        group with members becomes a consumer group with them.

        Raises GROUP_ID_NOT_FOUND, and the errors of `heartbeat`, `away` and `checked_member`.
        """
        settings = self._settings_of(request.group_id)
        group, before = self._group_for(request, settings)
        if request.epoch == LEAVING:
            self._leave(group, request, answer)
            return
        if request.epoch == AWAY:
            outcome = away(group, request)
        else:
            now_ms = self._clock.wall_ms()
            outcome = heartbeat(group, request, now_ms, self._topics, settings, self._new_member_id)
            outcome = outcome if before is None else outcome.after(before)
        done = _done(outcome, answer)
        if outcome.changes_nothing and request.is_bare and not group.subscriptions.regexes():
            done = self._remembering(group, request, settings, outcome, done)
        if self._carry_out(group, outcome, f"{request.member_id} sends epoch {request.epoch}", done):
            known = self._groups[request.group_id]
            if outcome.resolve and isinstance(known, ConsumerGroup):
                self._resolve(known, outcome.resolve, is_visible)

    def _remembering(
        self, group: ConsumerGroup, request: Heartbeat, settings: ConsumerGroupSettings, outcome: Outcome, done: OnDone
    ) -> OnDone:
        """Returns the `done` of a heartbeat that changes nothing: see `repeated`."""
        assert outcome.response is not None
        unchanging = UnchangingHeartbeat(request, group.changes, settings, outcome.response)

        def replicated(error: ProtocolError | None) -> None:
            if error is None and request.member_id in group.members_by_id:
                group.unchanging[request.member_id] = unchanging
            done(error)

        return replicated

    def _group_for(self, request: Heartbeat, settings: ConsumerGroupSettings) -> tuple[ConsumerGroup, Outcome | None]:
        """Returns the group, or what a group of another kind becomes by the heartbeat: in no table yet, with what must
        be done first.
        """
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group, None
        if request.epoch != JOINING:
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND, "There is no consumer group of this id.")
        if group is not None and not group.is_empty:
            upgraded, records = self._conversions.upgraded(group, settings, self.timers)
            sessions = [
                Timer("session", each.member_id, each.classic.session_timeout_ms)
                for each in upgraded.members
                if each.classic is not None
            ]
            return upgraded, Outcome(records, timers=sessions)
        return ConsumerGroup(request.group_id, self.timers), Outcome(() if group is None else group.tombstones())

    def _leave(self, group: ConsumerGroup, request: Heartbeat, answer: Answer) -> None:
        if self.departures.includes(group, request.member_id):
            self.departures.carry_out()
        member = group.checked_member(request.member_id, request.instance_id)
        response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVING)
        self.departures.add(group, member.member_id, lambda error: answer(response if error is None else error))

    # --- requests of classic members ----------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, joining: Joining) -> None:
        """Answers a JoinGroup, when what it changes is replicated, or with an error of `classic_members.join`."""
        settings = self._settings_of(group.group_id)
        now_ms = self._clock.wall_ms()

        def answer(response: Any) -> None:
            joining.answer(join_refused(response.code) if isinstance(response, ProtocolError) else response)

        if sum(len(metadata) for _, metadata in joining.protocols) > 2 * self._most_bytes:
            answer(ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, "The metadata are too large to be written."))
            return
        try:
            outcome = classic_members.join(group, joining, now_ms, self._topics, settings, self._new_member_id)
        except ProtocolError as error:
            answer(error)
            return
        self._carry_out(group, outcome, f"{joining.member_id} joins: {joining.reason}", _done(outcome, answer))

    def sync(self, group: ConsumerGroup, syncing: Syncing) -> None:
        """Answers a SyncGroup, when what the group was before is replicated. Raises the errors of
        `classic_members.sync`.
        """

        def answer(response: Any) -> None:
            syncing.answer(sync_refused(response.code) if isinstance(response, ProtocolError) else response)

        outcome = classic_members.sync(group, syncing, self._topics)
        self._carry_out(group, outcome, "", _done(outcome, answer))

    def stay(self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        """Handles a Heartbeat. Raises the errors of `classic_members.heartbeat`."""
        outcome, code = classic_members.heartbeat(group, member_id, instance_id, generation_id)
        self._carry_out(group, outcome, "")
        return code

    def leave(self, group: ConsumerGroup, leaving: Iterable[Leaving], answer: Answer) -> Steps[None]:
        """Answers a LeaveGroup, of members of any protocol, when it is replicated. They leave together, or if they are
        very many, in several steps.

        Raises COORDINATOR_NOT_AVAILABLE if the group has changed its kind meanwhile, or if a step is not written: the
        client may ask again.
        """
        rows, found = yield from classic_members.named_steps(group, leaving)
        outcome = Outcome(response=LeaveGroupResponse(members=rows))
        ids = list(found)
        while len(ids) > MOST_LEAVING:
            some, ids = ids[:MOST_LEAVING], ids[MOST_LEAVING:]
            if not self._remove_together(group, some):
                raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            yield
        if not self._is_current(group):
            raise ProtocolError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._remove_together(group, ids, _done(outcome, answer))

    def _remove_together(
        self, group: ConsumerGroup, ids: Collection[str], done: OnDone = nobody_waits, *, together: bool = True
    ) -> bool:
        """See `Remove`, `fence`. Returns whether the records are written."""
        if not self._is_current(group):
            done(ProtocolError(ErrorCode.NOT_COORDINATOR))
            return False
        members = [member for member in map(group.member, ids) if member is not None]
        outcome = fence(group, members, self._topics, self._settings_of(group.group_id), together=together)
        return self._carry_out(group, outcome, "members leave", done)

    def _new_member_id(self) -> str:
        return uuid_text(random_uuid(self._random))

    def _remove(self, group: ConsumerGroup, member: ConsumerMember, reason: str) -> None:
        """A member has missed what it had to do in time. It gets more time if its departure cannot be written."""
        log.info("group members removed", group=_short(group.group_id), members=[member.member_id], reason=reason)

        def ended(_error: ProtocolError | None) -> None:
            if self._is_current(group) and group.member(member.member_id) is not None:
                timeout_ms = max(self.timers.session_of(group, member).timeout_ms, RETRY_MS)
                self.timers.set(group, (Timer("session", member.member_id, timeout_ms),))

        if not self.departures.includes(group, member.member_id):
            self.departures.add(group, member.member_id, ended)

    # --- outcomes -----------------------------------------------------------------------------------------------

    def _carry_out(self, group: ConsumerGroup, outcome: Outcome, reason: str, done: OnDone = nobody_waits) -> bool:
        """Appends the records and, if that succeeded or there are none, does the rest. Returns whether it did.

        `group` may be new: replay creates the one of the table.
        """
        if outcome.downgrade is not None:
            return self._conversions.downgrade(group, outcome, done)
        former, epoch, target_epoch = group.state, group.epoch, group.target_epoch
        decision = Decision(outcome.records, done, base_sequence=BASE_SEQUENCE)
        self._act(decision)
        known = self._groups.get(group.group_id)
        if (outcome.records and decision.base_offset < 0) or not isinstance(known, ConsumerGroup):
            return False
        known.log_change(former, reason)
        self._metrics.rebalances += known.epoch > epoch
        self._metrics.assignments += known.target_epoch > target_epoch
        self.timers.set(known, outcome.timers)
        if outcome.refresh_at_ms is not None:
            known.refresh_at_ms = outcome.refresh_at_ms
        if outcome.assign:
            self._assign_when_due(known)
        return True

    # --- the target assignment ----------------------------------------------------------------------------------

    def _assign_when_due(self, group: ConsumerGroup) -> None:
        interval_ms = self._settings_of(group.group_id).assignment_interval_ms
        wait_ms = due_in_ms(group, group.epoch, self._clock.wall_ms(), interval_ms)
        if wait_ms is not None and group not in self._assigned:
            self.timers.assign_later(group, wait_ms, partial(self._assign, group))

    def _assign(self, group: ConsumerGroup) -> None:
        """Computes the target, unless a heartbeat has done so in the meantime."""
        settings = self._settings_of(group.group_id)
        wait_ms = due_in_ms(group, group.epoch, self._clock.wall_ms(), settings.assignment_interval_ms)
        if wait_ms is None or not self._is_current(group) or group.is_empty:
            return
        if wait_ms > 0:
            self._assign_when_due(group)
            return
        self._assigned.add(group)
        assignment = Assignment(group, group.epoch, self._topics, settings.assignors)
        then, failed = partial(self._target_written, group), partial(self._assignment_failed, group)
        self._work(self._target_steps(group, assignment), then, failed, "target assignment")

    def _target_steps(self, group: ConsumerGroup, assignment: Assignment) -> Steps[bool]:
        """Computes the target and writes it, a batch in each step. Returns whether there is nothing left to write.

        It is dropped if the group has gone, or has a later target meanwhile: a group that became small is assigned
        within a heartbeat.
        """
        target = yield from assignment.steps()
        for batch in assignment.batches(group, target, self._clock.wall_ms(), self._most_bytes):
            if not self._is_current(group) or group.is_empty or group.target_epoch >= assignment.epoch:
                break
            if not self._carry_out(group, Outcome(batch), "the target assignment is computed"):
                return False
            yield
        return True

    def _target_written(self, group: ConsumerGroup, is_done: bool) -> None:
        self._assigned.discard(group)
        if not self._is_current(group):
            return
        if is_done:
            self._assign_when_due(group)
        else:
            self.timers.assign_later(group, RETRY_MS, partial(self._assign, group))

    def _assignment_failed(self, group: ConsumerGroup, error: Exception) -> None:
        """The next heartbeat of a member asks again."""
        self._assigned.discard(group)
        log.error("target assignment failed", group=_short(group.group_id), exc_info=error)

    # --- regular expressions ------------------------------------------------------------------------------------

    def _resolve(self, group: ConsumerGroup, regexes: frozenset[str], is_visible: IsVisible) -> None:
        group.is_resolving = True
        version = self._topics.version
        wanted = next_regexes(group, regexes)
        if len(wanted) == len(regexes):
            group.round_version = version
        steps = resolve_steps(wanted, list(self._topics.names()), is_visible, self._most_bytes)
        then, failed = partial(self._resolved, group, version, wanted), partial(self._resolution_failed, group)
        self._work(steps, then, failed, "regular expressions of a group", MEMORY_OF_RESOLUTION)

    def _resolved(
        self, group: ConsumerGroup, version: int, wanted: Collection[str], matched: Mapping[str, frozenset[str]]
    ) -> None:
        group.is_resolving = False
        self._metrics.resolutions += 1
        if self._is_current(group):
            outcome = resolved(group, matched, version, self._clock.wall_ms(), self._topics)
            if self._carry_out(group, outcome, "regular expressions are resolved"):
                group.has_resolved(frozenset(wanted) - matched.keys())

    def _resolution_failed(self, group: ConsumerGroup, error: Exception) -> None:
        """A heartbeat of a member asks again."""
        group.is_resolving = False
        log.error("regular expressions not resolved", group=_short(group.group_id), exc_info=error)

    def _is_current(self, group: ConsumerGroup) -> bool:
        return self._groups.get(group.group_id) is group


def _done(outcome: Outcome, answer: Answer) -> OnDone:
    """Answers with the response of the outcome, or with the error."""
    response = outcome.response
    assert response is not None
    return lambda error: answer(response if error is None else error)


def _short(text: str) -> str:
    return text[:LONGEST_LOGGED]
