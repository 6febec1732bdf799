"""The states of a member of a consumer group, and all legal transitions. (KIP-848)

| state                 | what it means                                                                      |
|-----------------------|------------------------------------------------------------------------------------|
| STABLE                | it has all that its epoch's target gives it                                        |
| UNREVOKED_PARTITIONS  | it keeps its epoch and must give up partitions; its rebalance timeout runs         |
| UNRELEASED_PARTITIONS | it is in the target's epoch and waits for partitions that other members still own  |
| UNKNOWN               | a later release wrote its state; it must rejoin without partitions                 |

Source: Kafka's MemberState, CurrentAssignmentBuilder.
"""

from __future__ import annotations

from enum import IntEnum


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


_HAS_ALL = MemberState.STABLE
_GIVES_UP = MemberState.UNREVOKED_PARTITIONS
_WAITS = MemberState.UNRELEASED_PARTITIONS
_UNKNOWN = MemberState.UNKNOWN

TRANSITIONS: dict[tuple[MemberState, MemberState], str] = {
    (_HAS_ALL, _GIVES_UP): "a new target, or its own new subscription, lacks partitions that it owns",
    (_HAS_ALL, _WAITS): "a new target gives it partitions that other members own",
    (_GIVES_UP, _HAS_ALL): "it has given them up, and all that the target gives it is free",
    (_GIVES_UP, _WAITS): "it has given them up, and other members own some of what the target gives it",
    (_WAITS, _HAS_ALL): "the last of those partitions became free",
    (_WAITS, _GIVES_UP): "as from STABLE",
    (_UNKNOWN, _HAS_ALL): "it rejoins without partitions, and all that the target gives it is free",
    (_UNKNOWN, _WAITS): "it rejoins without partitions, and other members own some of what the target gives it",
}
"""The cause of each transition, by (from, to)."""
