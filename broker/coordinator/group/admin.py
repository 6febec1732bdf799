"""Listing, counting and deleting groups of every kind, for administrators and metrics.

Source: Kafka's GroupCoordinatorService (listGroups, deleteGroups), GroupMetadataManager (metrics).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from odradek.broker.coordinator.group.classic.group import CLASSIC
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.consumer.group import CONSUMER
from odradek.broker.coordinator.group.consumer.state import ConsumerGroupState
from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.shard import GroupShard
from odradek.broker.coordinator.runtime.shard import Decision
from odradek.protocol.errors import ErrorCode, ProtocolError

TYPES = {CLASSIC: CLASSIC, CONSUMER: CONSUMER}
STATES = {state.label.lower(): state.label for state in (*GroupState, *ConsumerGroupState)}
"""The types and the states of all kinds of groups by their names in lower case; filters ignore case."""


class GroupOverview(NamedTuple):
    """A group in a ListGroups response."""

    group_id: str
    group_type: str
    protocol_type: str
    state_name: str


def overviews(
    groups: Iterable[Group], states: Collection[str | None], types: Collection[str | None]
) -> list[GroupOverview]:
    """Returns the groups in any of `states` and of any of `types`. An empty filter allows all; None fits no group."""
    return [
        GroupOverview(group.group_id, group.group_type, group.protocol_type or "", group.state_name)
        for group in groups
        if (not types or group.group_type in types) and (not states or group.state_name in states)
    ]


def count_by_state(groups: Iterable[Group]) -> Counter[tuple[str, str]]:
    """Returns the number of groups by type and state."""
    return Counter((group.group_type, group.state_name) for group in groups)


def delete_group(shard: GroupShard, group_id: str, done: Callable[[ErrorCode], object]) -> None:
    """Deletes the group and its offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    group = shard.groups.get(group_id)
    if group is None:
        raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)
    if not group.is_empty:
        raise ProtocolError(ErrorCode.NON_EMPTY_GROUP)
    records = [*shard.offsets.tombstones(group_id), *group.tombstones()]

    def settled(error: ProtocolError | None) -> None:
        if error is None:
            shard.forget_if_unused(group)
        done(ErrorCode.NONE if error is None else error.code)

    shard.act(Decision(records, settled))
