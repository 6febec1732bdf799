"""The next step of one member towards its target: what it keeps, gives up, gets, and waits for. (KIP-848)

A member first gives up what the target does not give it, then moves to the target's epoch, and gets partitions only
when nobody owns them any more. So no partition has two owners.

Words: *keep* is what the member has and the target gives it, *revoke* what it has and must give up, *free* what it gets
now, *unreleased* what it waits for. The next step from epoch e towards the target of epoch A:

| case | if                                     | new state          | epoch | assigned    | revoking |
|------|----------------------------------------|--------------------|-------|-------------|----------|
| (a)  | the member still owns some of *revoke* | UNREVOKED          | e     | keep        | revoke   |
| (b)  | something is *free*                    | UNRELEASED, STABLE | A     | keep + free | nothing  |
| (c)  | something is *unreleased*              | UNRELEASED         | A     | keep        | nothing  |
| (d)  | else                                   | STABLE             | A     | keep        | nothing  |

| state                 | step                                                                                      |
|-----------------------|-------------------------------------------------------------------------------------------|
| STABLE                | the next step if e is not A; otherwise, if the member subscribed anew, *shrink*           |
| UNREVOKED_PARTITIONS  | while it owns what it must give up: none, *shrink* if it subscribed anew; then the next   |
| UNRELEASED_PARTITIONS | the next step                                                                             |
| UNKNOWN               | the next step, from A; it must have rejoined without partitions                           |

*Shrink*: what it is no longer subscribed to moves from assigned to revoking, without a new target. A member without any
topic makes this step even if it has nothing: its previous epoch is its epoch then.

Source: Kafka's CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol
from uuid import UUID

from odradek.broker.coordinator.group.consumer.member import ConsumerMember, Owned, Partitions
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.consumer.partition_owners import FREE
from odradek.protocol.errors import ErrorCode, ProtocolError


class Topics(Protocol):
    """Topics by their ids."""

    def __contains__(self, topic_id: object, /) -> bool: ...

    def __len__(self) -> int: ...


OwnerEpoch = Callable[[UUID, int], int]
"""See `PartitionOwners.epoch`."""
_NO_PARTITIONS: frozenset[int] = frozenset()
_NO_EPOCHS: Mapping[int, int] = {}


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    *,
    subscribed: Topics,
    owned: Partitions | None,
    owner_epoch: OwnerEpoch,
    has_new_subscription: bool,
) -> ConsumerMember:
    """Returns the member after one step, or the member itself if there is none.

    `subscribed`: the topics that it is subscribed to; a topic that is not among them is not given, whatever the target.
    `owned`: what the client says that it owns; None if it did not say so: then it may own everything.

    Raises FENCED_MEMBER_EPOCH if the state is UNKNOWN and the client owns partitions or does not say.
    """
    state = member.state
    if state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise ProtocolError(ErrorCode.FENCED_MEMBER_EPOCH)
        return _next_step(member, target_epoch, target_epoch, target, subscribed, owned, owner_epoch)
    if state is MemberState.STABLE:
        waits = member.epoch == target_epoch
    else:
        waits = state is MemberState.UNREVOKED_PARTITIONS and _owns_any(owned, member.revoking)
    if not waits:
        return _next_step(member, member.epoch, target_epoch, target, subscribed, owned, owner_epoch)
    return _shrunk(member, subscribed, owned) if has_new_subscription else member


def _next_step(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    subscribed: Topics,
    owned: Partitions | None,
    owner_epoch: OwnerEpoch,
) -> ConsumerMember:
    assigned: dict[UUID, Mapping[int, int]] = {}
    revoke: dict[UUID, Mapping[int, int]] = {}
    free: dict[UUID, list[int]] = {}
    has_unreleased = False
    for topic_id in {**member.assigned, **target}:
        wanted = target.get(topic_id, _NO_PARTITIONS) if topic_id in subscribed else _NO_PARTITIONS
        have = member.assigned.get(topic_id, _NO_EPOCHS)
        if wanted == have.keys():
            if have:
                assigned[topic_id] = have
            continue
        keep = {partition: since for partition, since in have.items() if partition in wanted}
        if keep:
            assigned[topic_id] = keep
        if len(keep) < len(have):
            revoke[topic_id] = {partition: since for partition, since in have.items() if partition not in wanted}
        own = member.revoking.get(topic_id, _NO_EPOCHS)
        missing = [partition for partition in wanted if partition not in keep]
        given = [each for each in missing if each in own or owner_epoch(topic_id, each) == FREE]
        has_unreleased = has_unreleased or len(given) < len(missing)
        if given:
            free[topic_id] = given
    if revoke and _owns_any(owned, revoke):  # (a)
        return member.moved(epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoke)
    for topic_id, partitions in free.items():  # (b)
        assigned[topic_id] = {**assigned.get(topic_id, _NO_EPOCHS), **dict.fromkeys(partitions, target_epoch)}
    state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE  # (c), (d)
    return member.moved(target_epoch, state, assigned)


def _shrunk(member: ConsumerMember, subscribed: Topics, owned: Partitions | None) -> ConsumerMember:
    dropped = {topic_id: given for topic_id, given in member.assigned.items() if topic_id not in subscribed}
    if not dropped and (subscribed or member.revoking):
        return member
    assigned = {topic_id: given for topic_id, given in member.assigned.items() if topic_id not in dropped}
    revoking = dict(member.revoking)
    for topic_id, given in dropped.items():
        revoking[topic_id] = {**revoking.get(topic_id, _NO_EPOCHS), **given}
    if revoking and _owns_any(owned, revoking):
        return member.moved(member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    return member.moved(member.epoch, member.state, assigned, member.revoking)


def _owns_any(owned: Partitions | None, partitions: Owned) -> bool:
    """Whether the client still owns any of the partitions, as far as it says. (None: it did not say.)"""
    if owned is None:
        return True
    return any(not numbers.isdisjoint(partitions.get(topic_id, ())) for topic_id, numbers in owned.items())
