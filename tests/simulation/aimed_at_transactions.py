"""Faults that are aimed at the end of a transaction: between the decision and the markers, and between the markers and
the completion.

    a coordinator is lost, or loses its office, when its decision is in the log: before the first marker is in a log,
    when some are, or when all are and the completion is not yet in the log. The next coordinator loads the decision
    markers of a coordinator arrive when the next one is in office, has written its own, and the producer's next
    transaction has begun

What brokers send to each other takes longer until the moment comes, so that there is time between the steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.coordinator.transaction.transaction_state import ONGOING, PREPARE_COMMIT
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.aimed_faults import links_of
from tests.simulation.machine import Machine

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

PATIENCE_S = 4.0
LOOK_S = 0.0005
SLOW = 15.0
"""How many times as long the coordinator's messages take."""
HELD_S = 3.5
"""Shorter than a connection lives whose bytes are held."""


class Ending(NamedTuple):
    """A transaction whose end is decided. `unmarked`: its partitions whose logs have no marker yet, and their leaders;
    `marked`: the number of the others. `is_heard`: the coordinator has heard of all markers."""

    coordinator: Machine
    transactional_id: str
    producer_id: int
    commits: bool
    unmarked: Mapping[TopicPartition, int]
    marked: int
    is_heard: bool


class Endings:
    """Looks at the transactions of coordinators. It remembers how many partitions each had while it was open."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sizes: dict[str, int] = {}

    def now(self) -> Iterator[Ending]:
        """The transactions whose end is decided, and not completed."""
        ids = self._world.workload.transactional_ids
        for machine in self._world.machines.values():
            broker = machine.running
            for shard in () if broker is None or machine.is_paused else broker.coordinators.transactions.shards():
                for name in ids:
                    transaction = shard.transactions.get(name)
                    if transaction is None:
                        continue
                    if transaction.state == ONGOING:
                        self._sizes[name] = len(transaction.partitions)
                    elif transaction.state.is_prepared and name in self._sizes:
                        unmarked = dict(self._unmarked(transaction.producer_id, transaction.partitions))
                        yield Ending(
                            machine,
                            name,
                            transaction.producer_id,
                            transaction.state == PREPARE_COMMIT,
                            unmarked,
                            self._sizes[name] - len(unmarked),
                            not transaction.partitions,
                        )

    def _unmarked(
        self, producer_id: int, partitions: frozenset[TopicPartition] | set[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, int]]:
        for partition in sorted(partitions):
            leader = open_at(self._world, partition, producer_id)
            if leader is not None:
                yield partition, leader

    async def first(self, is_it: Callable[[Ending], bool]) -> Ending | None:
        """Waits for a transaction of which this holds. Returns None if there is none in time."""
        give_up_at = self._world.loop.time() + PATIENCE_S
        found = None
        while found is None and self._world.loop.time() < give_up_at:
            await asyncio.sleep(LOOK_S)
            found = next((each for each in self.now() if is_it(each)), None)
        self._world.trace.note("moment", "came" if found is not None else "did not come")
        return found


def open_at(world: World, partition: TopicPartition, producer_id: int) -> int | None:
    """The leader of a partition in whose log the producer's transaction has no marker; None if it has one."""
    for broker_id, machine in world.machines.items():
        broker = machine.running
        replica = None if broker is None else broker.replica_manager.partitions.get(partition)
        if replica is not None and replica.is_leader:
            return broker_id if replica.log.producers.state.has_ongoing_transaction(producer_id) else None
    return None


STEPS: Mapping[str, Callable[[Ending], bool]] = {
    "before the first marker": lambda ending: ending.marked == 0,
    "when some are marked": lambda ending: ending.marked > 0 and len(ending.unmarked) > 0,
    "when all are marked": lambda ending: not ending.unmarked,
}


async def lose_after_decision(world: World, fault: Fault) -> None:
    """A coordinator is lost between its decision and its completion, at one of the steps; the amount says which one,
    and for commits or aborts; if that does not come, at any. In one case of two its process goes on, and another one
    has its office."""
    chosen = int(fault.amount * 6)
    is_step, commits = list(STEPS.values())[chosen // 2], chosen % 2 == 0
    slow_down(world, SLOW)
    endings = Endings(world)
    ending = await endings.first(lambda each: each.commits is commits and is_step(each))
    if ending is None:
        ending = await endings.first(lambda each: True)
    if ending is not None:
        if fault.seconds * 1000 % 2 < 1:
            ending.coordinator.kill()
        links_of(world).expire(ending.coordinator.name)
    slow_down(world, 1.0)
    await asyncio.sleep(fault.seconds)
    if ending is not None:
        ending.coordinator.start()


def slow_down(world: World, slowness: float) -> None:
    """Lets what brokers send to each other take longer."""
    for one, other in permutations([machine.name for machine in world.machines.values()], 2):
        world.network.slow_down(one, other, slowness)


async def hold_markers(world: World, fault: Fault) -> None:
    """What a coordinator has sent to a leader is held. Another coordinator completes the transaction, and the producer
    begins the next one there. Then the markers arrive."""
    slow_down(world, SLOW)
    ending = await Endings(world).first(
        lambda each: any(leader != each.coordinator.broker_id for leader in each.unmarked.values())
    )
    slow_down(world, 1.0)
    if ending is None:
        return
    one = ending.coordinator
    partition, leader_id = next(each for each in ending.unmarked.items() if each[1] != one.broker_id)
    leader = world.machines[leader_id].name
    world.network.cut(one.name, leader)
    links_of(world).expire(one.name)
    give_up_at = world.loop.time() + HELD_S
    was_marked, begins = False, False
    while not begins and world.loop.time() < give_up_at:
        await asyncio.sleep(LOOK_S)
        is_open = open_at(world, partition, ending.producer_id) is not None
        begins = was_marked and is_open
        was_marked = was_marked or not is_open
    world.trace.note("held markers", "meet the next transaction" if begins else "meet none")
    world.network.heal(one.name, leader)
