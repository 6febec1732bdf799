"""The invariants of consumer groups.

settled       In the end each group is stable, its members are those that are there, and each partition of the topics to
              which they are subscribed is consumed by one of them, and by nobody who is not subscribed.
refused       A heartbeat is refused of an unknown member, in an epoch that is not the member's, for an instance that is
              there, and with an expression that is none.
owners, member epochs, stale, obeyed
              what members are told: memberships.py
log owners, log epochs, targets
              what is in the coordinators' logs: consumer_group_ledger.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tests.simulation.client.consumer_member import Subscription
from tests.simulation.final_state import FinalState
from tests.simulation.history import History, Outcome
from tests.simulation.machine import Machine
from tests.simulation.membership_history import StrayBeat, named
from tests.simulation.memberships import Membership, Memberships, shard_of
from tests.simulation.violation import Violation


class Staying(Protocol):
    """A member that stays until the end."""

    membership: Membership
    subscription: Subscription


def groups_settle(history: History, final: FinalState) -> Iterator[Violation]:
    """settled"""
    for wrong in final.unsettled:
        yield Violation("settled", f"{wrong} in the end")


def stray_beats_are_refused(history: History, final: FinalState) -> Iterator[Violation]:
    """refused"""
    for beat in history.of(StrayBeat):
        if beat.outcome is Outcome.OK:
            yield Violation("refused", f"{beat.describe()} was accepted of {beat.process}", (beat,))


def unsettled(machines: Mapping[int, Machine], memberships: Memberships, staying: Sequence[Staying]) -> Iterator[str]:
    """What is not as it must be, of one group."""
    name = memberships.group
    shard = shard_of(machines, name)
    group = None if shard is None else shard.groups.get(name)
    if group is None:
        yield f"nobody has group {name}"
        return
    if group.state_name != "Stable":
        yield f"group {name} is {group.state_name}"
    there = {each.membership.member_id for each in staying}
    for member in group.members:
        if member.member_id not in there:
            yield f"{member.member_id} is a member of {name}, and nobody is there"
    for stranger in sorted(there - {member.member_id for member in group.members}):
        yield f"{stranger} is there, and no member of {name}"
    yield from _wrongly_consumed(machines, memberships, staying)


def _wrongly_consumed(
    machines: Mapping[int, Machine], memberships: Memberships, staying: Sequence[Staying]
) -> Iterator[str]:
    name = memberships.group
    broker = next((each.running for each in machines.values() if each.running is not None), None)
    topics = {} if broker is None else broker.metadata.topics
    names = {topic.topic_id: topic_name for topic_name, topic in topics.items()}
    for topic_name, topic in sorted(topics.items()):
        if any(topic_name in each.subscription for each in staying):
            missing = {(topic.topic_id, number) for number in topic.partitions} - memberships.owners.keys()
            if missing:
                yield f"nobody in {name} consumes {named(missing)} of {topic_name}"
    for each in staying:
        for topic_id in sorted({topic_id for topic_id, _ in each.membership.since}):
            if names.get(topic_id) not in each.subscription:
                text = f"{each.membership.member_id} of {name} consumes {names.get(topic_id)}"
                yield f"{text}, and is subscribed to {each.subscription}"
