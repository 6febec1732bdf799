"""Faults that are aimed at consumer groups, in the midst of a change.

a coordinator is lost, or loses its office, between the revocation of a partition and its assignment; when a group has
become one of the other kind; or when a regular expression is resolved. What it has written may be in its log alone
a topic grows, is deleted, or created again when it is new to a group that is subscribed to it

What brokers send to each other takes longer until the moment comes, so that there is time between the steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.group import Group
from tests.simulation.administration import OPERATOR
from tests.simulation.aimed_at_transactions import slow_down
from tests.simulation.aimed_faults import links_of
from tests.simulation.brief_topics import BriefTopic
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.topics import TopicAdmin
from tests.simulation.consumer_groups import CONSUMER_GROUPS, MATCHING, MIGRANTS
from tests.simulation.machine import Machine
from tests.simulation.memberships import shard_of

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

PATIENCE_S = 8.0
LOOK_S = 0.0005
SLOW = 15.0
"""How many times as long what brokers send to each other takes."""
NEW_TOPIC = "subscribed"


def _groups(world: World) -> Iterator[tuple[Machine, Group]]:
    """The groups that each broker coordinates."""
    for machine in world.machines.values():
        broker = machine.running
        for shard in () if broker is None or machine.is_paused else broker.coordinators.groups.shards():
            for name in CONSUMER_GROUPS:
                if name in shard.groups:
                    yield machine, shard.groups[name]


async def _strike(world: World, fault: Fault, is_moment: Callable[[Group], bool]) -> None:
    """Waits for the moment of a group. Then its coordinator is lost; in one case of two its process goes on, and
    another broker has its office."""
    slow_down(world, SLOW)
    give_up_at = world.loop.time() + PATIENCE_S
    coordinator = None
    while coordinator is None and world.loop.time() < give_up_at:
        await asyncio.sleep(LOOK_S)
        coordinator = next((machine for machine, group in _groups(world) if is_moment(group)), None)
    world.trace.note("moment", "came" if coordinator is not None else "did not come")
    if coordinator is not None:
        if fault.seconds * 1000 % 2 < 1:
            coordinator.kill()
        links_of(world).expire(coordinator.name)
    slow_down(world, 1.0)
    await asyncio.sleep(fault.seconds)
    if coordinator is not None:
        coordinator.start()


async def lose_between(world: World, fault: Fault) -> None:
    """A coordinator is lost when partitions have been given up that nobody has got yet; or when somebody must give up
    some, and is to be told so."""

    def is_between(group: Group) -> bool:
        if not isinstance(group, ConsumerGroup):
            return False
        if fault.amount < 0.4:
            return any(each.state is MemberState.UNREVOKED_PARTITIONS for each in group.members)
        return any(
            each.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(each)
            for each in group.members
        )

    await _strike(world, fault, is_between)


async def lose_migration(world: World, fault: Fault) -> None:
    """A coordinator is lost when the group of those who migrate has become one of the other kind."""
    kinds: dict[int, bool] = {}

    def is_converted(group: Group) -> bool:
        if group.group_id != MIGRANTS:
            return False
        is_consumer = isinstance(group, ConsumerGroup)
        return kinds.setdefault(0, is_consumer) != is_consumer and not group.is_empty

    await _strike(world, fault, is_converted)


async def lose_resolution(world: World, fault: Fault) -> None:
    """A coordinator is lost when it resolves the regular expressions of a group, or has just done so."""
    known: dict[str, int] = {}

    def is_resolved(group: Group) -> bool:
        if not isinstance(group, ConsumerGroup):
            return False
        latest = max((each.timestamp_ms for each in group.subscriptions.resolved.values()), default=0)
        return group.is_resolving or latest > known.setdefault(group.group_id, latest)

    await _strike(world, fault, is_resolved)


async def change_what_is_subscribed(world: World, fault: Fault) -> None:
    """A topic comes that an expression fits. When it is part of the group's target, it grows, goes, or goes and comes
    again; in one case of three its coordinator is lost at this moment."""
    topic = BriefTopic(world, f"{NEW_TOPIC}-{int(fault.at_s * 1000)}")

    async def extend(cluster: Cluster) -> None:
        await TopicAdmin(cluster, world.history, name=OPERATOR).extend(topic.name, 3)

    await topic.create(replicas=min(2, len(world.machines)))
    give_up_at = world.loop.time() + PATIENCE_S
    is_assigned = False
    while not is_assigned and world.loop.time() < give_up_at:
        await asyncio.sleep(LOOK_S)
        is_assigned = _is_assigned(world, topic.name)
    world.trace.note("moment", "came" if is_assigned else "did not come")
    chosen = int(fault.amount * 3)
    if chosen == 0:
        await world.as_operator(extend)
    else:
        topic.ask_to_delete()
        await asyncio.sleep(fault.seconds / 2)
        if chosen == 1:
            await topic.create(replicas=1)
    if fault.seconds * 1000 % 3 < 1:
        machine = next((machine for machine, group in _groups(world) if group.group_id == MATCHING), None)
        if machine is not None:
            links_of(world).expire(machine.name)
    await asyncio.sleep(fault.seconds)
    await topic.delete()


def _is_assigned(world: World, topic: str) -> bool:
    shard = shard_of(world.machines, MATCHING)
    group = None if shard is None else shard.groups.get(MATCHING)
    return isinstance(group, ConsumerGroup) and topic in group.subscriptions
