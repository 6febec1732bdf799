"""Pauses the sessions of group members while a test advances time: those of members, and those of clients that have
been assigned a member id and have not joined yet. What each of them has left of its session remains.

Rebalances go on: a member that does not join again in time is removed. So are the time-outs of transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.shard import GroupShard
from odradek.broker.server import Broker


def groups_of(broker: Broker) -> Iterator[Group]:
    """Returns the groups that a broker coordinates."""
    for shard in broker.coordinators.groups.runtime.shards():
        yield from cast(GroupShard, shard).groups.values()


def extend_sessions(brokers: Iterable[Broker], milliseconds: int) -> None:
    """Moves the ends of all sessions by so much."""
    for broker in brokers:
        if not broker.is_serving:
            continue
        for group in groups_of(broker):
            for session in group.sessions():
                session.deadline_ms += milliseconds
