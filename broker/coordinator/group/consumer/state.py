"""The states of a consumer group, and all legal transitions from one request to the next. (KIP-848)

A group's state follows from its epochs and its members; no record stores it.

| state       | what it means                                                                                |
|-------------|----------------------------------------------------------------------------------------------|
| Empty       | the group has no members; it may have committed offsets                                      |
| Assigning   | the group epoch is above the epoch of the target assignment: a new target must be computed   |
| Reconciling | the target is up to date, and some member does not have its part of it yet                   |
| Stable      | every member has its part of the target                                                      |
| Dead        | deleted, expired, or its partition moved away; requests no longer find the group             |

Source: Kafka's ConsumerGroup (ConsumerGroupState).
"""

from __future__ import annotations

from enum import Enum


class ConsumerGroupState(Enum):
    """A group state. The labels are the names in ConsumerGroupDescribe and ListGroups responses."""

    def __init__(self, label: str) -> None:
        self.label = label

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTY = ConsumerGroupState.EMPTY
_ASSIGNING = ConsumerGroupState.ASSIGNING
_RECONCILING = ConsumerGroupState.RECONCILING
_STABLE = ConsumerGroupState.STABLE
_DEAD = ConsumerGroupState.DEAD

TRANSITIONS: dict[tuple[ConsumerGroupState, ConsumerGroupState], str] = {
    (_EMPTY, _ASSIGNING): "the first member joins within the assignment interval, or its group is assigned in steps",
    (_EMPTY, _STABLE): "the first member joins and has its assignment at once",
    (_ASSIGNING, _RECONCILING): "the target assignment is computed",
    (_ASSIGNING, _STABLE): "the target assignment is computed, and the member that asked was the last to reach it",
    (_RECONCILING, _STABLE): "the last member has its part of the target",
    (_RECONCILING, _ASSIGNING): "a member joins, leaves, is fenced or subscribes anew; a subscribed topic has changed",
    (_STABLE, _ASSIGNING): "as from Reconciling",
    (
        _STABLE,
        _RECONCILING,
    ): "as from Reconciling, if assigned at once; a static member leaves for a while",
    (_ASSIGNING, _EMPTY): "the last member leaves or is fenced",
    (_RECONCILING, _EMPTY): "the last member leaves or is fenced",
    (_STABLE, _EMPTY): "the last member leaves or is fenced",
    (_EMPTY, _DEAD): "deleted; its last offset was removed; a classic client joins; the partition moves away",
    (_ASSIGNING, _DEAD): "the last member of this protocol leaves classic members alone; the partition moves away",
    (_RECONCILING, _DEAD): "as from Assigning",
    (_STABLE, _DEAD): "as from Assigning",
}
"""The cause of each transition, by (from, to)."""
