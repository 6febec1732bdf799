"""The states of a consumer group and of its members, and all legal transitions. (KIP-848)

A group's state follows from its epochs and its members; no record stores it.

| group       | what it means                                                                                |
|-------------|----------------------------------------------------------------------------------------------|
| Empty       | the group has no members; it may have committed offsets                                      |
| Assigning   | the group epoch is above the epoch of the target assignment: a new target must be computed   |
| Reconciling | the target is up to date, and some member does not have its part of it yet                   |
| Stable      | every member has its part of the target                                                      |
| Dead        | deleted, expired, or its partition moved away; requests no longer find the group             |

| member                | what it means                                                                      |
|-----------------------|------------------------------------------------------------------------------------|
| STABLE                | it has all that its epoch's target gives it                                        |
| UNREVOKED_PARTITIONS  | it keeps its epoch and must give up partitions; its rebalance timeout runs         |
| UNRELEASED_PARTITIONS | it is in the target's epoch and waits for partitions that other members still own  |
| UNKNOWN               | a later release wrote its state; it must rejoin without partitions                 |

Source: Kafka's ConsumerGroup (ConsumerGroupState), MemberState, CurrentAssignmentBuilder.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class ConsumerGroupState(Enum):
    """A group state. The labels are the names in ConsumerGroupDescribe and ListGroups responses."""

    def __init__(self, label: str) -> None:
        self.label = label

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """A member state. The values are those in ConsumerGroupCurrentMemberAssignmentValue."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, value: int) -> MemberState:
        """Returns the state of a record's value; UNKNOWN if the value is of a later release."""
        try:
            return cls(value)
        except ValueError:
            return cls.UNKNOWN


_EMPTY = ConsumerGroupState.EMPTY
_ASSIGNING = ConsumerGroupState.ASSIGNING
_RECONCILING = ConsumerGroupState.RECONCILING
_STABLE = ConsumerGroupState.STABLE
_DEAD = ConsumerGroupState.DEAD

TRANSITIONS: dict[tuple[ConsumerGroupState, ConsumerGroupState], str] = {
    (_EMPTY, _ASSIGNING): "the first member joins within the assignment interval, or its group is assigned in steps",
    (_EMPTY, _RECONCILING): "the first member joins in the place of a classic group",
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
    (_EMPTY, _DEAD): "deleted; its last offset was removed; replaced by a classic group; the partition moves away",
    (_ASSIGNING, _DEAD): "the last member of this protocol leaves classic members alone; the partition moves away",
    (_RECONCILING, _DEAD): "as from Assigning",
    (_STABLE, _DEAD): "as from Assigning",
}
"""The cause of each transition of a group from one request to the next, by (from, to)."""

_HAS_ALL = MemberState.STABLE
_GIVES_UP = MemberState.UNREVOKED_PARTITIONS
_WAITS = MemberState.UNRELEASED_PARTITIONS
_UNKNOWN = MemberState.UNKNOWN

MEMBER_TRANSITIONS: dict[tuple[MemberState, MemberState], str] = {
    (_HAS_ALL, _GIVES_UP): "a new target, or its own new subscription, lacks partitions that it owns",
    (_HAS_ALL, _WAITS): "a new target gives it partitions that other members own",
    (_GIVES_UP, _HAS_ALL): "it has given them up, and all that the target gives it is free",
    (_GIVES_UP, _WAITS): "it has given them up, and other members own some of what the target gives it",
    (_WAITS, _HAS_ALL): "the last of those partitions became free",
    (_WAITS, _GIVES_UP): "as from STABLE",
    (_UNKNOWN, _HAS_ALL): "it rejoins without partitions, and all that the target gives it is free",
    (_UNKNOWN, _WAITS): "it rejoins without partitions, and other members own some of what the target gives it",
}
"""The cause of each transition of a member, by (from, to)."""
