"""What there is at a broker, as text, for the error of a condition that was not reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from odradek.broker.coordinator.transaction.shard import TransactionShard
from odradek.broker.server import Broker
from odradek.testing.virtual_time.members import groups_of

SHOWN_OF_A_KIND = 20


def state_of(broker: Broker) -> str:
    """Returns the partitions, groups and open transactions of a broker, a line for each."""
    kinds = (sorted(_partitions(broker)), sorted(_groups(broker)), sorted(_transactions(broker)))
    lines = []
    for kind in kinds:
        lines += kind[:SHOWN_OF_A_KIND]
        if len(kind) > SHOWN_OF_A_KIND:
            lines.append(f"  and {len(kind) - SHOWN_OF_A_KIND} more")
    return "\n".join(lines) or "  no partition, no group, no transaction"


def _partitions(broker: Broker) -> Iterator[str]:
    for name, log in broker.log_manager.logs.items():
        state = log.state
        yield f"  partition {name}: offsets {state.log_start_offset} to {state.log_end_offset}"


def _groups(broker: Broker) -> Iterator[str]:
    for group in groups_of(broker):
        members = ", ".join(member.member_id for member in group.members) or "none"
        yield f"  group {group.group_id}: {group.state_name}, members: {members}"


def _transactions(broker: Broker) -> Iterator[str]:
    for shard in broker.coordinators.transactions.runtime.shards():
        for transaction in cast(TransactionShard, shard).open.values():
            yield f"  transaction of {transaction.transactional_id}: {transaction.state.name}"
