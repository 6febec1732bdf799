"""The states of a classic group, and every legal move between them. A move that is not in the table is a bug.

| state               | what it means                                                              |
|---------------------|----------------------------------------------------------------------------|
| Empty               | no members; it may hold committed offsets                                  |
| PreparingRebalance  | members are asked to join again; their JoinGroups wait for each other      |
| CompletingRebalance | a generation began; its members' SyncGroups wait for the leader's          |
| Stable              | every member can have its assignment                                       |
| Dead                | deleted, expired or given up with its partition; nobody can find it        |

Source: Kafka's GroupMetadata (GroupState).
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """The values are what DescribeGroups and ListGroups call them."""

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
    (_STABLE, _PREPARING): "a member joins, leaves, misses its session or changes its subscription; the leader joins",
    (_COMPLETING, _PREPARING): "as from Stable, or the assignment could not be written, or a SyncGroup is overdue",
    (_PREPARING, _COMPLETING): "all members have joined, or the rebalance time-out has passed",
    (_PREPARING, _EMPTY): "nobody is left",
    (_COMPLETING, _STABLE): "the leader's assignment is written",
    (_EMPTY, _DEAD): "deleted, or its last offset has expired; the partition moves away",
    (_PREPARING, _DEAD): "the partition moves away",
    (_COMPLETING, _DEAD): "the partition moves away",
    (_STABLE, _DEAD): "the partition moves away",
}
"""(from, to): what does it."""

CAN_REBALANCE = frozenset(old for old, new in TRANSITIONS if new is _PREPARING)
"""Where a rebalance can begin."""


class IllegalTransition(RuntimeError):
    """A move that the table does not have."""

    def __init__(self, group_id: str, old: GroupState, new: GroupState) -> None:
        super().__init__(f"group {group_id!r} cannot go from {old.value} to {new.value}")
