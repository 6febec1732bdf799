"""Judges what members of groups are told, at the moment when they are told it.

owners        No partition is consumed by two members at once: a member consumes what it was told, until it says that it
              does not, or hears that it is no member. Who may have been removed, because the coordinator has not heard
              of it for long, or it has not given up in time what it must, does not count.
member epochs  The epoch that a member is told never falls, unless it joins anew.
stale         A commit in an epoch before the member's is refused, but of partitions that it has had since then. Those
              are accepted.
obeyed        Who does not give up in time what it must is a member no longer.

All times are those of the clients: a coordinator has heard of a member after the request was sent whose answer came.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from odradek.broker.coordinator.group.shard import GroupShard
from odradek.broker.coordinator.runtime.runtime import partition_for
from odradek.broker.metadata.metadata_cache import GROUP_TOPIC
from odradek.broker.replica.partition.partition import Partition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.history import History
from tests.simulation.machine import SETTINGS, Machine
from tests.simulation.membership_history import GaveUp, Told, TopicIdPartition, named
from tests.simulation.missteps import Finding, Misstep

OWNERS, MEMBER_EPOCHS, STALE, OBEYED = "owners", "member epochs", "stale", "obeyed"
STALE_CODES = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION})
MARGIN_US = 1_500_000
"""How late a timer of a coordinator may be, and a request whose answer comes soon."""
SOON_US = 1_000_000


def shard_of(machines: Mapping[int, Machine], group: str) -> GroupShard | None:
    """The newest shard that coordinates a group; None if there is none now. Whoever loads it anew has another one."""
    found = _coordinator_of(machines, group)
    return None if found is None else found[1]


def writing_shard_of(machines: Mapping[int, Machine], group: str) -> GroupShard | None:
    """The same, if it can write: its log has enough replicas, and they have all of it."""
    found = _coordinator_of(machines, group)
    if found is None:
        return None
    partition, shard = found
    is_replicated = partition.log.state.high_watermark == partition.log.state.log_end_offset
    return shard if is_replicated and not partition.is_under_min_isr else None


def _coordinator_of(machines: Mapping[int, Machine], group: str) -> tuple[Partition, GroupShard] | None:
    key = TopicPartition(GROUP_TOPIC, partition_for(group, int(SETTINGS["offsets.topic.num.partitions"])))
    found: tuple[Partition, GroupShard] | None = None
    for machine in machines.values():
        broker = machine.running
        partition = None if broker is None else broker.replica_manager.partitions.get(key)
        if broker is None or partition is None or not partition.is_leader:
            continue
        for shard in broker.coordinators.groups.shards():
            if shard.partition == key.partition and (found is None or found[0].leader_epoch < partition.leader_epoch):
                found = partition, shard
    return found


@dataclass(eq=False)
class Membership:
    """A member as its client knows it. `since`: of what it consumes, in which epoch it got it; `kept_us`: when it sent
    the last request whose answer let it keep that; `given_us`: the same of what it has given up, while the coordinator
    may not know. `told_us`: since when it must give up what it has beyond `assigned`, and in which `term` of the
    coordinator it learned that."""

    process: str
    member_id: str
    patience_us: int
    """A coordinator that hears nothing of it, or waits for it, removes it after this time, or later."""
    rebalance_us: int
    """After this time it removes who does not give up what it must."""
    epoch: int = 0
    assigned: frozenset[TopicIdPartition] = frozenset()
    since: dict[TopicIdPartition, int] = field(default_factory=dict)
    kept_us: dict[TopicIdPartition, int] = field(default_factory=dict)
    given_us: list[int] = field(default_factory=list)
    heard_us: int = 0
    """When it sent the last request that was answered well."""
    told_us: int | None = None
    term: object = None

    @property
    def surplus(self) -> frozenset[TopicIdPartition]:
        """What it must give up."""
        return frozenset(self.since) - self.assigned

    @property
    def there_until_us(self) -> int:
        """Before this time its coordinator cannot have removed it."""
        return min([self.heard_us, *self.kept_us.values(), *self.given_us]) + self.patience_us


class Memberships:
    """Those of one group. `term()` is another one whenever somebody has become its coordinator."""

    def __init__(self, history: History, group: str, now_us: Callable[[], int], term: Callable[[], object]) -> None:
        self.group = group
        self._history = history
        self._now_us = now_us
        self._term = term
        self._owners: dict[TopicIdPartition, Membership] = {}

    @property
    def owners(self) -> Mapping[TopicIdPartition, Membership]:
        """Who consumes what."""
        return self._owners

    def joins(self, member: Membership) -> None:
        """It sends a request to join: it has nothing, and no epoch."""
        member.epoch = 0

    def told(self, member: Membership, epoch: int, assigned: Collection[TopicIdPartition] | None, sent_us: int) -> None:
        """A request that was sent at this time was answered. `assigned` None: as before."""
        if epoch < member.epoch:
            self._wrong(MEMBER_EPOCHS, f"{member.member_id} was told epoch {epoch} after {member.epoch}")
        has_changed = epoch != member.epoch or (assigned is not None and frozenset(assigned) != member.assigned)
        member.epoch = epoch
        member.heard_us = sent_us
        member.given_us.clear()
        if assigned is not None:
            member.assigned = frozenset(assigned)
        if has_changed:
            told = Told(
                process=member.process,
                group=self.group,
                member_id=member.member_id,
                epoch=epoch,
                partitions=member.assigned,
            )
            self._history.note(told)
        for partition in sorted(member.assigned):
            self._consumes(member, partition, epoch)
            member.kept_us[partition] = sent_us
        self._must_obey(member, sent_us, has_changed=has_changed)

    def _consumes(self, member: Membership, partition: TopicIdPartition, epoch: int) -> None:
        if partition in member.since:
            return
        other = self._owners.get(partition)
        if other is not None and self._now_us() < other.there_until_us:
            text = f"{named([partition])} of {self.group} was given to {member.member_id}"
            self._wrong(OWNERS, f"{text}, and {other.member_id} in epoch {other.epoch} still consumes it")
        self._owners[partition] = member
        member.since[partition] = epoch

    def _must_obey(self, member: Membership, sent_us: int, *, has_changed: bool) -> None:
        """The coordinator has answered. It must not, if the member has had to give up partitions for too long."""
        now_us, term = self._now_us(), self._term()
        if not member.surplus:
            member.told_us = None
        elif has_changed or member.told_us is None or term is None or term != member.term:
            member.told_us, member.term = now_us, term
        elif sent_us > member.told_us + member.rebalance_us + MARGIN_US and now_us < sent_us + SOON_US:
            text = f"{member.member_id} of {self.group} has not given up {named(member.surplus)}"
            self._wrong(OBEYED, f"{text} for {(sent_us - member.told_us) / 1e6:.1f} s, and is a member")

    def gives_up(self, member: Membership, partitions: Collection[TopicIdPartition], reason: str) -> None:
        """The member consumes these no longer, before it tells anybody."""
        given = [partition for partition in partitions if partition in member.since]
        for partition in given:
            del member.since[partition]
            member.given_us.append(member.kept_us.pop(partition))
            if self._owners.get(partition) is member:
                del self._owners[partition]
        if not member.surplus:
            member.told_us = None
        if given:
            gave_up = GaveUp(
                process=member.process, group=self.group, member_id=member.member_id, partitions=given, reason=reason
            )
            self._history.note(gave_up)

    def gives_up_all(self, member: Membership, reason: str) -> None:
        """The member leaves, or has heard that it is none."""
        self.gives_up(member, sorted(member.since), reason)
        member.assigned = frozenset()
        member.given_us.clear()
        member.told_us = None

    def must_be_refused(self, member: Membership, epoch: int, partitions: Collection[TopicIdPartition]) -> bool:
        """Whether a commit of these partitions that is sent now in this epoch must be refused."""
        return epoch < member.epoch and any(member.since.get(each, epoch + 1) > epoch for each in partitions)

    def may_be_refused(self, member: Membership, epoch: int, partitions: Collection[TopicIdPartition]) -> bool:
        """Whether such a commit may be called stale, as the member knows it."""
        return epoch > member.epoch or any(member.since.get(each, epoch + 1) > epoch for each in partitions)

    def stale_was_accepted(self, member: Membership, epoch: int, partitions: Collection[TopicIdPartition]) -> None:
        """A commit was accepted that had to be refused."""
        text = f"{member.member_id} committed {named(partitions)} in epoch {epoch} of {self.group}"
        self._wrong(STALE, f"{text} too late: it was in epoch {member.epoch}")

    def good_was_refused(
        self, member: Membership, epoch: int, partitions: Collection[TopicIdPartition], code: ErrorCode
    ) -> None:
        """A commit was called stale that is not."""
        text = f"{member.member_id} may commit {named(partitions)} in epoch {epoch} of {self.group}"
        self._wrong(STALE, f"{text}, and was refused: {code.name}")

    def _wrong(self, invariant: str, text: str) -> None:
        self._history.note(Misstep(process="memberships", finding=Finding(invariant, text)))
