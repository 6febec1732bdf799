"""What a coordinator has in memory, and its log does not say. Each check names what is different.

after a load    What a coordinator has loaded is what its log adds up to, from the first record to the last, the
                uncommitted ones at its end included.
now and then    A transaction without a pending change is in a state that its log had lately: an append that is in
                the log, but failed (the in-sync replicas were too few for a moment), does not count for the
                coordinator. A stable group is as the last record in its leader's log has it, committed or not, as
                that record may be of a static member that was replaced; but its generation is committed. So is an
                offset in effect. What a coordinator of groups has loaded counts as committed.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.shard import GroupShard
from odradek.broker.coordinator.transaction.shard import TransactionShard
from tests.simulation.consumer_group_differences import consumer_groups_astray
from tests.simulation.coordinator_ledgers import GroupLedger, Key, LoggedGroup, LoggedTransaction, TransactionLedger

Difference = tuple[str, object, object]
"""What differs, how it is in memory and how in the log."""
State = TypeVar("State", bound=tuple[Any, ...])

# --- after a load -------------------------------------------------------------------------------------------------


def loaded_wrongly(shard: object, ledger: TransactionLedger | GroupLedger) -> Iterator[Difference]:
    """Compares a shard that was just loaded."""
    if isinstance(shard, TransactionShard) and isinstance(ledger, TransactionLedger):
        transactions = _transactions(shard)
        for name in sorted({*transactions, *ledger.now}):
            yield from different_transactions(name, transactions.get(name), ledger.now.get(name))
    elif isinstance(shard, GroupShard) and isinstance(ledger, GroupLedger):
        groups = {name: _logged(each) for name, each in shard.groups.items() if isinstance(each, ClassicGroup)}
        for name in sorted({*groups, *ledger.groups}):
            yield from different_groups(name, groups.get(name), ledger.groups.get(name))
        yield from consumer_groups_astray(shard, ledger.consumers)
        yield from different_offsets(_offsets(shard), {key: each.offset for key, each in ledger.offsets.items()})
        yield from different_open_commits(
            _open_offsets(shard),
            {
                (producer_id, key): written.offset
                for producer_id, of_producer in ledger.open.items()
                for key, written in of_producer.items()
            },
        )


# --- now and then -------------------------------------------------------------------------------------------------


def transactions_astray(shard: TransactionShard, ledger: TransactionLedger) -> Iterator[Difference]:
    """The transactions without a pending change that are in no state that their log had lately."""
    for name, found in _transactions(shard).items():
        transaction, recent = shard.transactions[name], ledger.recent.get(name, ())
        if transaction.pending is None and not transaction.failed_fence and found not in recent:
            yield from different_transactions(name, found, _nearest(found, recent))


def groups_astray(shard: GroupShard, ledger: GroupLedger, at_end: GroupLedger) -> Iterator[Difference]:
    """The stable groups of an uncommitted generation, or not as their leader's log has them, and the offsets beyond
    the committed ones: they only grow. `ledger`: what is committed, or was in the log when the shard was loaded.
    A group that has just become a classic one has its generation as it is."""
    yield from consumer_groups_astray(shard, at_end.consumers)
    for name, group in shard.groups.items():
        if not isinstance(group, ClassicGroup) or group.state is not GroupState.STABLE or group.awaiting:
            continue
        found = _logged(group)
        yield from different_groups(name, found, at_end.groups.get(name))
        committed = ledger.groups.get(name)
        if name in ledger.consumers.groups:
            continue
        if committed is None or found.generation != committed.generation:
            yield f"an uncommitted generation of group {name}", found.generation, committed and committed.generation
    for key, offset in _offsets(shard).items():
        written = ledger.offsets.get(key)
        if written is None or written.offset < offset:
            yield f"too large an offset of {key}", offset, written


def _nearest(found: State, recent: Iterable[State | None]) -> State | None:
    """The one of these states that has most in common with what was found."""
    known = [each for each in recent if each is not None]
    return max(known, key=lambda each: sum(map(operator.eq, each, found)), default=None)


# --- what is different --------------------------------------------------------------------------------------------


def different_transactions(
    name: str, found: LoggedTransaction | None, logged: LoggedTransaction | None
) -> Iterator[Difference]:
    """Compares a transactional id; None: there is none."""
    if found == logged:
        return
    if found is None or logged is None:
        yield f"transactional id {name}", found, logged
    elif found.state is not logged.state:
        yield f"the state of transactional id {name}", found.state.label, logged.state.label
    elif found.partitions != logged.partitions:
        yield f"the partitions of transactional id {name}", sorted(found.partitions), sorted(logged.partitions)
    elif found.client_version != logged.client_version:
        yield f"the version of transactional id {name}", found.client_version, logged.client_version
    else:
        yield f"the producer of transactional id {name}", found[1:4], logged[1:4]


def different_groups(name: str, found: LoggedGroup | None, logged: LoggedGroup | None) -> Iterator[Difference]:
    """Compares a group; None: there is none."""
    if found == logged:
        return
    if found is None or logged is None:
        yield f"group {name}", found, logged
    elif found.generation != logged.generation:
        yield f"the generation of group {name}", found.generation, logged.generation
    elif found.members.keys() != logged.members.keys():
        yield f"the members of group {name}", sorted(found.members), sorted(logged.members)
    elif found.leader != logged.leader:
        yield f"the leader of group {name}", found.leader, logged.leader
    elif found.members != logged.members:
        yield f"the assignments in group {name}", found.members, logged.members
    else:
        yield f"the protocol of group {name}", found.protocol, logged.protocol


def different_offsets(found: Mapping[Key, int], logged: Mapping[Key, int]) -> Iterator[Difference]:
    """Compares the offsets in effect."""
    for key in sorted({*found, *logged}):
        if key not in logged:
            yield f"a deleted offset of {key}", found[key], None
        elif found.get(key) != logged[key]:
            yield f"the offset of {key}", found.get(key), logged[key]


def different_open_commits(
    found: Mapping[tuple[int, Key], int], logged: Mapping[tuple[int, Key], int]
) -> Iterator[Difference]:
    """Compares the offsets of open transactions, by producer."""
    for producer in sorted({*found, *logged}):
        if found.get(producer) != logged.get(producer):
            yield f"the open commit of {producer}", found.get(producer), logged.get(producer)


# --- what is in memory --------------------------------------------------------------------------------------------


def _transactions(shard: TransactionShard) -> dict[str, LoggedTransaction]:
    return {
        name: LoggedTransaction(
            each.state,
            each.producer_id,
            each.producer_epoch,
            each.timeout_ms,
            frozenset(each.partitions),
            each.client_version,
        )
        for name, each in shard.transactions.items()
    }


def _logged(group: ClassicGroup) -> LoggedGroup:
    members = {each.member_id: (each.group_instance_id, each.assignment) for each in group.members}
    return LoggedGroup(group.generation_id, group.protocol_name, group.leader_id, members)


def _offsets(shard: GroupShard) -> dict[Key, int]:
    return {
        Key(group, topic, partition): committed.offset
        for group in shard.offsets.group_ids()
        for topic, partitions in shard.offsets.committed(group).items()
        for partition, committed in partitions.items()
    }


def _open_offsets(shard: GroupShard) -> dict[tuple[int, Key], int]:
    return {
        (producer_id, Key(group, topic, partition)): committed.offset
        for group in shard.offsets.group_ids()
        if (of_group := shard.offsets.of_group(group)) is not None
        for producer_id, commits in of_group.transactions.items()
        for topic, partitions in commits.items()
        for partition, committed in partitions.items()
    }
