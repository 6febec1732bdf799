"""What goes wrong in a simulation, and when: a schedule drawn from the seed before anything runs.

Each fault hits one broker at its time, for some seconds. It waits (at most a second) until an operation of a client is
under way, and begins a moment later, so that most faults hit work in flight: `World.hits` counts them.

A schedule is plain data. It does not depend on what happens, so that any part of it can be run again: `--shrink`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation import (
    aimed_at_consumer_groups,
    aimed_at_controllers,
    aimed_at_coordinators,
    aimed_at_followers,
    aimed_at_moves,
    aimed_at_reads,
    aimed_at_replicas,
    aimed_at_returns,
    aimed_at_terms,
    aimed_at_the_store,
    aimed_at_transactions,
    aimed_at_verification,
    aimed_faults,
    disk_faults,
    disk_traps,
    hanging_moves,
    trapped_moves,
    unopened_logs,
)
from tests.simulation.disk import DISK_ERROR
from tests.simulation.machine import Machine
from tests.simulation.store_links import STORE_HOST
from tests.simulation.upkeep_history import DiskFilled

if TYPE_CHECKING:
    from tests.simulation.world import World


MOST_OF_TIME = 0.5
"""The part of the time in which something may be wrong with a broker."""
LAST_TAKES_S = 5.0
MOST_CHANGES = 12
"""Of names of files, before a process ends in the midst of them. A roll takes four."""


class Fault(NamedTuple):
    """`other`: the host at the other end of a link; `amount`: how much, of 0 to 1."""

    at_s: float
    kind: str
    broker_id: int
    seconds: float
    other: str = ""
    amount: float = 0.0

    def __str__(self) -> str:
        link = f" and {self.other}" if self.other else ""
        return f"{self.at_s:7.3f} {self.kind} broker-{self.broker_id}{link} for {self.seconds:.3f} s"


class Kind(NamedTuple):
    """`begin` and `end` of a fault; `longest_s`; `weight`: how often it is drawn. `is_power`: unsynced writes are lost,
    so everything acknowledged must have been synced. `is_link`: it has another end. `is_store`: only with a shared
    store. `is_aimed`: aimed_faults.py; `begin` waits for its moment, and `other` is a broker. `is_seen_at_once`: its
    harm is judged when it happens, or stays, so that it need not be the last fault."""

    begin: Callable[[World, Fault], Awaitable[None] | None]
    end: Callable[[World, Fault], None]
    longest_s: float
    weight: int
    is_power: bool = False
    is_link: bool = False
    is_store: bool = False
    is_aimed: bool = False
    is_seen_at_once: bool = False


def _machine(world: World, fault: Fault) -> Machine:
    return world.machines[fault.broker_id]


def _kill(world: World, fault: Fault) -> None:
    _machine(world, fault).kill()


def _cut_power(world: World, fault: Fault) -> None:
    _machine(world, fault).cut_power()


def _kill_in_a_change(world: World, fault: Fault) -> None:
    """The process ends while it creates, renames or removes files: now, or as soon as it has begun to recover."""
    machine = _machine(world, fault)
    if fault.amount < 0.5:
        machine.kill()
        machine.start()
    machine.disk.changes_left = int(fault.amount * 1000) % MOST_CHANGES


def _restart_after_change(world: World, fault: Fault) -> None:
    machine = _machine(world, fault)
    machine.disk.changes_left = None
    machine.start()


def _pause(world: World, fault: Fault) -> None:
    _machine(world, fault).pause()


def _resume(world: World, fault: Fault) -> None:
    _machine(world, fault).resume()


def _reset(world: World, fault: Fault) -> None:
    world.network.reset(_machine(world, fault).name, fault.other)


def _restart(world: World, fault: Fault) -> None:
    _machine(world, fault).start()


def _cut_from(world: World, fault: Fault) -> None:
    world.network.cut(_machine(world, fault).name, fault.other)


def _cut_to(world: World, fault: Fault) -> None:
    world.network.cut(fault.other, _machine(world, fault).name)


def _cut_both(world: World, fault: Fault) -> None:
    _cut_from(world, fault)
    _cut_to(world, fault)


def _cut_off(world: World, fault: Fault) -> None:
    name = _machine(world, fault).name
    for host in world.network.hosts:
        if host not in (name, STORE_HOST):
            world.network.cut(name, host)
            world.network.cut(host, name)


def _heal(world: World, fault: Fault) -> None:
    name = _machine(world, fault).name
    for host in [fault.other] if fault.other else world.network.hosts:
        if host not in (name, STORE_HOST):
            world.network.heal(name, host)
            world.network.heal(host, name)


def _slow_link(world: World, fault: Fault) -> None:
    _set_slowness(world, fault, 10 + 300 * fault.amount)


def _fast_link(world: World, fault: Fault) -> None:
    _set_slowness(world, fault, 1.0)


def _set_slowness(world: World, fault: Fault, slowness: float) -> None:
    name = _machine(world, fault).name
    world.network.slow_down(name, fault.other, slowness)
    world.network.slow_down(fault.other, name, slowness)


def _slow_disk(world: World, fault: Fault) -> None:
    world.thread_times.slowness[_machine(world, fault).name] = 20 + 200 * fault.amount


def _fast_disk(world: World, fault: Fault) -> None:
    world.thread_times.slowness.pop(_machine(world, fault).name, None)


def _break_syncs(world: World, fault: Fault) -> None:
    _machine(world, fault).disk.fail_sync = DISK_ERROR


def _break_writes(world: World, fault: Fault) -> None:
    _machine(world, fault).disk.fail_write = DISK_ERROR


def _mend_and_restart(world: World, fault: Fault) -> None:
    """A log whose disk has failed refuses writes until the broker is restarted."""
    machine = _machine(world, fault)
    machine.disk.fail_sync = machine.disk.fail_write = None
    machine.kill()
    machine.start()


def _fill_disk(world: World, fault: Fault) -> None:
    _machine(world, fault).disk.room = int(disk_faults.LARGEST_ROOM * fault.amount)


def _empty_disk(world: World, fault: Fault) -> None:
    """In a cluster the broker is restarted, too, although its replicas would come back by themselves."""
    _machine(world, fault).disk.room = None
    world.history.note(DiskFilled(process=_machine(world, fault).name, broker_id=fault.broker_id))
    if len(world.machines) > 1:
        _mend_and_restart(world, fault)


def _restart_gently(world: World, fault: Fault) -> None:
    world.restart_gently(_machine(world, fault))


def _cut_from_store(world: World, fault: Fault) -> None:
    assert world.store_links is not None
    world.store_links.cut(_machine(world, fault).name, loses_answers=fault.amount < 0.5)


def _connect_to_store(world: World, fault: Fault) -> None:
    assert world.store_links is not None
    world.store_links.heal(_machine(world, fault).name)


def _expire_session(world: World, fault: Fault) -> None:
    assert world.store_links is not None
    world.store_links.expire(_machine(world, fault).name)


def _nothing(world: World, fault: Fault) -> None:
    """The fault has ended by itself."""


KINDS: Mapping[str, Kind] = {
    "kill": Kind(_kill, _restart, 4.0, 4),
    "kill in a change of files": Kind(_kill_in_a_change, _restart_after_change, 3.0, 3),
    "restart": Kind(_restart_gently, _nothing, 0.5, 2),
    "cut the power of": Kind(_cut_power, _restart, 4.0, 4, is_power=True),
    "pause": Kind(_pause, _resume, 4.0, 3),
    "cut the link from": Kind(_cut_from, _heal, 5.0, 2, is_link=True),
    "cut the link to": Kind(_cut_to, _heal, 5.0, 2, is_link=True),
    "cut the links of": Kind(_cut_both, _heal, 5.0, 2, is_link=True),
    "cut off": Kind(_cut_off, _heal, 5.0, 1),
    "reset connections of": Kind(_reset, _nothing, 0.1, 4, is_link=True),
    "slow down the link of": Kind(_slow_link, _fast_link, 3.0, 2, is_link=True),
    "slow down the disk of": Kind(_slow_disk, _fast_disk, 3.0, 2),
    "break the syncs of": Kind(_break_syncs, _mend_and_restart, 1.0, 1),
    "break the writes of": Kind(_break_writes, _mend_and_restart, 1.0, 1),
    "fail a directory of": Kind(disk_faults.fail_directory, disk_faults.mend_directory, 5.0, 2),
    "lose pages of": Kind(disk_faults.lose_pages, disk_faults.drop_cache, 6.0, 2, is_power=True),
    "set traps on the disk of": Kind(disk_traps.set_traps, disk_traps.remove_traps, 5.0, 12),
    "move into a trap on": Kind(trapped_moves.move_into_trap, disk_traps.remove_traps, 1.0, 3),
    "hang at the end of a move on": Kind(
        hanging_moves.hang_at_the_end, disk_traps.forget_traps, 0.5, 2, is_seen_at_once=True
    ),
    "start without room for a log on": Kind(unopened_logs.start_without_room, disk_faults.restart_mended, 1.0, 2),
    "leave half a log on": Kind(
        unopened_logs.leave_half_a_log,
        disk_traps.forget_traps,
        0.5,
        3,
        is_store=True,
        is_aimed=True,
        is_seen_at_once=True,
    ),
    **{
        name: Kind(
            disk_traps.tell_story,
            disk_traps.remove_traps,
            6.0,
            2,
            is_power=name in ("lose a new log of", "rebuild no index of", "tear a sealed segment of"),
        )
        for name in disk_traps.STORIES
    },
    "fill the disk of": Kind(_fill_disk, _empty_disk, 2.0, 1),
    "evict the pages of": Kind(disk_faults.evict_pages, disk_faults.cache_pages, 8.0, 2),
    "fill up for a moment the disk of": Kind(disk_faults.fill_for_a_moment, disk_faults.see_all_back, 1.5, 2),
    "start on the full disk of": Kind(disk_faults.start_on_full_disk, disk_faults.restart_mended, 3.0, 2),
    "stop on the bad disk of": Kind(disk_faults.stop_on_bad_disk, _nothing, 1.0, 2),
    "move on the slow disk of": Kind(disk_faults.move_on_slow_disk, disk_faults.stop_moving, 2.0, 3, is_store=True),
    "load slowly, with": Kind(
        disk_faults.load_slowly, disk_faults.load_fast, 0.6, 3, is_store=True, is_aimed=True, is_seen_at_once=True
    ),
    "fail to truncate at": Kind(disk_faults.fail_to_truncate, disk_faults.restart_mended, 1.0, 2, is_store=True),
    "cut from the store": Kind(_cut_from_store, _connect_to_store, 8.0, 3, is_store=True),
    "expire the session of": Kind(_expire_session, _nothing, 0.5, 1, is_store=True),
    "join unheard": Kind(aimed_faults.join_unheard, aimed_faults.heal, 0.4, 5, is_store=True, is_aimed=True),
    "lose the parted leader": Kind(
        aimed_faults.lose_parted_leader, aimed_faults.heal, 0.4, 3, is_store=True, is_aimed=True
    ),
    "lose an answer of the store": Kind(aimed_faults.lose_answer, _nothing, 0.5, 2, is_store=True, is_aimed=True),
    "delay requests of the controller": Kind(
        aimed_faults.delay_requests, _nothing, 0.3, 2, is_store=True, is_aimed=True
    ),
    "depose the controller": Kind(aimed_faults.depose_controller, _nothing, 0.3, 2, is_store=True, is_aimed=True),
    "restart the controller": Kind(aimed_faults.restart_controller, _nothing, 1.0, 2, is_store=True, is_aimed=True),
    "restart all, with": Kind(aimed_faults.restart_all, _nothing, 1.0, 1, is_store=True, is_aimed=True),
    "elect uncleanly, with": Kind(aimed_faults.elect_uncleanly, _nothing, 1.0, 2, is_store=True, is_aimed=True),
    "miss that the store loses": Kind(
        aimed_faults.miss_a_change, _nothing, 0.3, 2, is_store=True, is_aimed=True, is_seen_at_once=True
    ),
    "lose all but who joins": Kind(
        aimed_at_replicas.lose_all_but_the_joiner,
        aimed_faults.heal,
        0.4,
        2,
        is_store=True,
        is_aimed=True,
        is_seen_at_once=True,
    ),
    "lose two coordinators, with": Kind(
        aimed_at_replicas.lose_two_coordinators, _nothing, 0.4, 2, is_store=True, is_aimed=True, is_seen_at_once=True
    ),
    "return alone, with": Kind(
        aimed_at_replicas.return_alone, _nothing, 0.4, 2, is_store=True, is_aimed=True, is_seen_at_once=True
    ),
    "lead behind, in place of": Kind(
        aimed_at_replicas.lead_behind, _nothing, 0.4, 3, is_store=True, is_aimed=True, is_seen_at_once=True
    ),
    "lose the disk of": Kind(
        aimed_at_replicas.lose_a_disk, _nothing, 0.4, 3, is_store=True, is_aimed=True, is_seen_at_once=True
    ),
    "lose who has decided, with": Kind(
        aimed_at_transactions.lose_after_decision, _nothing, 0.4, 6, is_store=True, is_aimed=True, is_seen_at_once=True
    ),
    "hold markers, with": Kind(
        aimed_at_transactions.hold_markers, _nothing, 0.4, 4, is_store=True, is_aimed=True, is_seen_at_once=True
    ),
    **{
        name: Kind(begin, aimed_faults.heal, 1.0, weight, is_store=True, is_aimed=True, is_seen_at_once=True)
        for name, begin, weight in (
            ("stop without its follower", aimed_at_controllers.stop_without_follower, 2),
            ("stop two, with", aimed_at_controllers.stop_two, 1),
            ("elect while moving, with", aimed_at_controllers.elect_while_moving, 1),
            ("lose the controller that moves, with", aimed_at_controllers.lose_mover, 3),
            ("delete without", aimed_at_controllers.delete_without, 2),
            ("lose who is proposed by", aimed_at_controllers.lose_the_proposed, 2),
            ("touch entries, and lose", aimed_at_the_store.touch_entries, 2),
            ("give another address to", aimed_at_the_store.move_registration, 1),
            ("delete the registration of", aimed_at_the_store.delete_registration, 2),
            ("stop the controller without the store", aimed_at_the_store.stop_without_store, 3),
            ("lose who stands, with", aimed_at_the_store.lose_who_stands, 1),
            ("repeat the first request to", aimed_at_the_store.repeat_first_request, 1),
            ("expire all, with", aimed_at_the_store.expire_all, 1),
            ("let topics go without", aimed_at_the_store.sleep_through, 2),
            ("move on, with", aimed_at_moves.move_on, 2),
            ("cancel a move, with", aimed_at_moves.cancel_move, 2),
            ("return to another topic, with", aimed_at_returns.return_to_another_topic, 2),
            ("return to another directory, with", aimed_at_returns.return_to_another_directory, 2),
            ("take what is cleaned from", aimed_at_returns.take_what_is_cleaned, 2),
            ("fail at a rebalance", aimed_at_coordinators.fail_at_rebalance, 1),
            ("lose who is alone, with", aimed_at_coordinators.lose_alone, 2),
            ("fail alone, at", aimed_at_coordinators.fail_alone, 2),
            ("lose while another one registers, with", aimed_at_controllers.lose_while_another_registers, 1),
            ("hear late of a member, with", aimed_at_coordinators.hear_late, 2),
            ("stop while it asks, with", aimed_at_verification.stop_while_it_asks, 2),
            ("write what is read, with", aimed_at_reads.write_what_is_read, 2),
            ("tell of others, and drop", aimed_at_reads.tell_of_others, 2),
            ("settle what goes, at", aimed_at_reads.settle_who_goes, 2),
            ("stop the controller at a read, with", aimed_at_reads.stop_at_a_read, 2),
            ("depose who loses, with", aimed_at_terms.depose_who_loses, 2),
            ("succeed twice, with", aimed_at_terms.succeed_twice, 2),
            ("create on who stops", aimed_at_terms.create_on_who_stops, 2),
            ("lose out of range, with", aimed_at_followers.lose_out_of_range, 3),
            ("lose the log, with", aimed_at_followers.lose_the_log, 2),
            ("create again, with", aimed_at_followers.create_again, 2),
            ("stop while it truncates", aimed_at_followers.stop_while_truncating, 2),
            ("lose between revocation and assignment, with", aimed_at_consumer_groups.lose_between, 4),
            ("lose a migration, with", aimed_at_consumer_groups.lose_migration, 3),
            ("lose a resolution, with", aimed_at_consumer_groups.lose_resolution, 2),
            ("change what is subscribed, with", aimed_at_consumer_groups.change_what_is_subscribed, 3),
        )
    },
    "move what is truncated on": Kind(
        hanging_moves.move_what_is_truncated,
        disk_traps.forget_traps,
        0.4,
        2,
        is_store=True,
        is_aimed=True,
        is_seen_at_once=True,
    ),
}
"""All kinds of faults."""


def schedule(
    source: Random,
    *,
    number: int,
    from_s: float,
    until_s: float,
    brokers: Sequence[int],
    hosts: Sequence[str],
    is_durable: bool,
    kinds: Collection[str] = KINDS.keys(),
) -> list[Fault]:
    """Draws `number` faults of some `kinds`. Those of one broker do not overlap; the time between them is what their
    lengths leave.

    `is_durable`: everything is synced before it is acknowledged, so that the power may go. In a cluster the last fault
    is an aimed one: the others would mend what it may leave behind."""
    faults: list[Fault] = []
    if len(brokers) > 1:
        until_s = max(until_s - LAST_TAKES_S, from_s)
        faults.append(_last(source, brokers, until_s, kinds))
        number -= 1
    for place, broker_id in enumerate(brokers):
        others = [host for host in hosts if host != f"broker-{broker_id}"]
        drawn = [
            _draw(source, broker_id, others, brokers, kinds, is_durable=is_durable)
            for _ in range(number // len(brokers) + (place < number % len(brokers)))
        ]
        while drawn and sum(fault.seconds for fault in drawn) > MOST_OF_TIME * (until_s - from_s):
            longest = max(range(len(drawn)), key=lambda index: drawn[index].seconds)
            drawn[longest] = drawn[longest]._replace(seconds=drawn[longest].seconds / 2)
        gaps = [source.uniform(0.3, 1.0) for _ in range(len(drawn) + 1)]
        stretch = (until_s - from_s - sum(fault.seconds for fault in drawn)) / sum(gaps)
        at_s = from_s
        for gap, fault in zip(gaps, drawn, strict=False):
            at_s += gap * stretch
            faults.append(fault._replace(at_s=at_s))
            at_s += fault.seconds
    return sorted(faults)


def _last(source: Random, brokers: Sequence[int], at_s: float, kinds: Collection[str]) -> Fault:
    names = [name for name in kinds if KINDS[name].is_aimed and not KINDS[name].is_seen_at_once] or list(kinds)
    fault = _of_kind(source, source.choice(names), source.choice(brokers), (), brokers)
    return fault._replace(at_s=at_s)


def _draw(
    source: Random,
    broker_id: int,
    others: Sequence[str],
    brokers: Sequence[int],
    kinds: Collection[str],
    *,
    is_durable: bool,
) -> Fault:
    names = [
        name
        for name in kinds
        if (is_durable or not KINDS[name].is_power) and (len(brokers) > 1 or not KINDS[name].is_store)
    ]
    name = source.choices(names, [KINDS[name].weight for name in names])[0]
    return _of_kind(source, name, broker_id, others, brokers)


def _of_kind(source: Random, name: str, broker_id: int, others: Sequence[str], brokers: Sequence[int]) -> Fault:
    kind = KINDS[name]
    if kind.is_aimed:
        others = [f"broker-{other}" for other in brokers if other != broker_id]
    seconds = source.uniform(0.1, 1.0) ** 2 * kind.longest_s
    other = source.choice(others) if kind.is_link or kind.is_aimed else ""
    return Fault(0.0, name, broker_id, seconds, other, source.random())
