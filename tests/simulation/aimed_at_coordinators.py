"""Faults that are aimed at coordinators, in the midst of what they do.

the disk of a coordinator of groups cannot be written when the last members leave a rebalance, so that it loses its
office while it tries what waits for them
a coordinator of transactions is alone, so that it cannot complete one, and tries again. Then it loses its office
the only replica in sync becomes the coordinator of transactions, and what it has cannot be flushed
a coordinator of groups stands still when a session ends, and then hears of the member at the same moment
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.member import Member
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.group import Group
from odradek.protocol.messages.groups import HeartbeatRequest, LeaveGroupRequest
from odradek.protocol.schema import Message
from tests.simulation.aimed_at_transactions import LOOK_S, PATIENCE_S, Endings, slow_down
from tests.simulation.aimed_faults import cut_both, heal_both, links_of, until
from tests.simulation.client.cluster import Cluster
from tests.simulation.disk import DISK_ERROR
from tests.simulation.machine import Machine
from tests.simulation.one_offs import ONE_OFF_IDS
from tests.simulation.passing_members import PASSING_GROUPS
from tests.simulation.stragglers import STRAGGLERS

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

REBALANCE_PATIENCE_S = 10.0
SLOW = 30.0
"""How many times as long the coordinator's messages take."""
SLOW_DISK = 200.0
FAILS_S = 1.0
SILENT_MS, ENDS_IN_MS = 700, 20
"""What is left of the session of a member that has not been heard of for long, and of one that is about to end."""
SESSION_PATIENCE_S = 15.0
BRIEF_IDS = (STRAGGLERS, *ONE_OFF_IDS)
"""Those of transactions with a short timeout, after which a completion is tried again."""


def _rebalances_of(world: World) -> Machine | None:
    """A broker that coordinates a passing group with two members, of which one has yet to join again."""
    for machine in world.machines.values():
        broker = machine.running
        for shard in () if broker is None or machine.is_paused else broker.coordinators.groups.shards():
            for name in PASSING_GROUPS:
                group = shard.groups.get(name)
                if isinstance(group, ClassicGroup) and group.size > 1 and group.state is GroupState.PREPARING_REBALANCE:
                    return machine
    return None


async def fail_at_rebalance(world: World, fault: Fault) -> None:
    """The disk works again a moment later, and the broker starts again."""
    give_up_at = world.loop.time() + REBALANCE_PATIENCE_S
    machine = None
    while machine is None and world.loop.time() < give_up_at:
        await asyncio.sleep(LOOK_S)
        machine = _rebalances_of(world)
    world.trace.note("moment", "came" if machine is not None else "did not come")
    if machine is not None:
        machine.disk.fail_write = DISK_ERROR
        await asyncio.sleep(fault.seconds)
        machine.disk.fail_write = None
        machine.kill()
        machine.start()


async def fail_alone(world: World, fault: Fault) -> None:
    """The disk of a broker is slow. When the others are lost, it coordinates all transactions, and cannot flush what it
    loads. It starts again when the others are back."""
    machine = world.machines[fault.broker_id]
    world.thread_times.slowness[machine.name] = SLOW_DISK
    await asyncio.sleep(fault.amount)
    others = [other for other in world.machines.values() if other is not machine]
    for other in others:
        other.kill()
        links_of(world).expire(other.name)
    give_up_at = world.loop.time() + PATIENCE_S
    is_loading = False
    while not is_loading and world.loop.time() < give_up_at:
        await asyncio.sleep(LOOK_S)
        is_loading = machine.running is not None and machine.running.coordinators.transactions.runtime.loading
    machine.disk.fail_sync = DISK_ERROR
    await asyncio.sleep(FAILS_S)
    for other in others:
        other.start()
    world.thread_times.slowness.pop(machine.name, None)
    machine.disk.fail_sync = None
    machine.kill()
    machine.start()


async def lose_alone(world: World, fault: Fault) -> None:
    """The coordinator is parted from the others when it has heard of all markers of a transaction with a short timeout,
    so that what it appends is replicated too late. When it is to try again, its session ends."""
    links = links_of(world)
    slow_down(world, SLOW)
    ending = await Endings(world).first(lambda each: each.is_heard and each.transactional_id in BRIEF_IDS)
    slow_down(world, 1.0)
    if ending is None:
        return
    coordinator = ending.coordinator
    for machine in world.machines.values():
        cut_both(world, coordinator.name, machine.name)
    give_up_at = world.loop.time() + PATIENCE_S
    tries_again = False
    while not tries_again and world.loop.time() < give_up_at:
        await asyncio.sleep(LOOK_S)
        broker = coordinator.running
        tries_again = broker is not None and broker.coordinators.transactions.completions_to_retry > 0
    links.expire(coordinator.name)
    await asyncio.sleep(fault.seconds)
    for machine in world.machines.values():
        heal_both(world, coordinator.name, machine.name)


class _Session(NamedTuple):
    """The session of a member at its coordinator."""

    machine: Machine
    group: ClassicGroup
    member: Member

    @property
    def left_ms(self) -> int:
        """Without a heartbeat it has ended, or waits for the group."""
        heartbeat = self.member.heartbeat
        return 0 if heartbeat is None else heartbeat.left_ms

    def request(self, *, leaves: bool) -> Message:
        """What the coordinator hears of the member."""
        group_id, member_id = self.group.group_id, self.member.member_id
        if leaves:
            identity = LeaveGroupRequest.MemberIdentity(member_id=member_id)
            return LeaveGroupRequest(group_id=group_id, members=[identity])
        return HeartbeatRequest(group_id=group_id, generation_id=self.group.generation_id, member_id=member_id)


def _is_classic(group: Group) -> TypeGuard[ClassicGroup]:
    return isinstance(group, ClassicGroup)


def _silent(world: World) -> Iterator[_Session]:
    """The sessions of members that have not been heard of for long."""
    for machine in world.machines.values():
        broker = machine.running
        for shard in () if broker is None or machine.is_paused else broker.coordinators.groups.shards():
            for group in filter(_is_classic, shard.groups.values()):
                for member in group.members:
                    session = _Session(machine, group, member)
                    if not member.is_static and not member.waits_for and ENDS_IN_MS < session.left_ms < SILENT_MS:
                        yield session


async def hear_late(world: World, fault: Fault) -> None:
    """The member is still there, or leaves."""
    found: list[_Session] = []

    def is_one_silent() -> bool:
        found.extend(_silent(world))
        return bool(found)

    if not await until(world, is_one_silent, SESSION_PATIENCE_S, every_s=0.01):
        return
    session, stands_still = found[0], asyncio.Event()
    machine = session.machine

    async def speak(cluster: Cluster) -> None:
        await cluster.ask_broker(machine.broker_id, HeartbeatRequest(group_id=session.group.group_id))  # connects
        await stands_still.wait()
        await cluster.ask_broker(machine.broker_id, session.request(leaves=fault.amount < 0.5))

    speaking = world.as_operator(speak)
    if await until(world, lambda: session.left_ms < ENDS_IN_MS, every_s=0.005):
        machine.pause()
        await asyncio.sleep(3 * ENDS_IN_MS / 1000)
        stands_still.set()
        await asyncio.sleep(0.05 + fault.seconds / 10)
        machine.resume()
    else:
        speaking.cancel()
