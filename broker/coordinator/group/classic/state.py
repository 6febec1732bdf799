"""The states of a classic group and all legal transitions. A transition that is not in the table is a bug.

| state               | what it means                                                                    |
|---------------------|----------------------------------------------------------------------------------|
| Empty               | the group has no members; it may have committed offsets                          |
| PreparingRebalance  | members must rejoin; their JoinGroups are parked until all have joined           |
| CompletingRebalance | a generation has begun; its SyncGroups are parked until the leader's arrives     |
| Stable              | the assignment is written; every member can fetch its part                       |
| Dead                | deleted, expired, or its partition moved away; requests no longer find the group |

Source: Kafka's GroupMetadata (GroupState).
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """A group state. The labels are the names in DescribeGroups and ListGroups responses."""

    def __init__(self, label: str) -> None:
        self.label = label

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTY = GroupState.EMPTY
_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE
_DEAD = GroupState.DEAD

TRANSITIONS: dict[tuple[GroupState, GroupState], str] = {
    (_EMPTY, _PREPARING): "the first member joins",
    (_STABLE, _PREPARING): "a member joins, leaves, times out or changes its subscription; the leader rejoins",
    (_COMPLETING, _PREPARING): "as from Stable; the assignment could not be written; a SyncGroup is overdue",
    (_PREPARING, _COMPLETING): "all members have joined, or the rebalance timeout has expired",
    (_PREPARING, _EMPTY): "no members are left",
    (_COMPLETING, _STABLE): "the leader's assignment is written",
    (_EMPTY, _DEAD): "deleted; its last offset was removed; the partition moves away",
    (_PREPARING, _DEAD): "it becomes a consumer group of KIP-848; the partition moves away",
    (_COMPLETING, _DEAD): "as from PreparingRebalance",
    (_STABLE, _DEAD): "as from PreparingRebalance",
}
"""The cause of each transition, by (from, to)."""

CAN_REBALANCE = frozenset(old for old, new in TRANSITIONS if new is _PREPARING)
"""The states in which a rebalance can begin."""


class IllegalTransition(RuntimeError):
    """A transition that is not in the table."""

    def __init__(self, group_id: str, old: GroupState, new: GroupState) -> None:
        super().__init__(f"group {group_id!r} cannot go from {old.label} to {new.label}")
