"""The states of a replica (one partition on one broker) in the controller, and the legal moves between them.

    NON_EXISTENT          not assigned
    NEW                   assigned to a partition that exists, not in sync yet (a reassignment)
    ONLINE                on a live broker
    OFFLINE               its broker is dead or is shutting down, its log directory is offline, or it is to be deleted
    DELETION_STARTED      its broker has been asked to delete it
    DELETION_SUCCESSFUL   its broker has deleted it
    DELETION_INELIGIBLE   could not be deleted: its broker is dead or has reported an error; the deletion is tried again
                          when the broker starts

Source: Kafka's `ReplicaStateMachine`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class ReplicaPhase(Enum):
    """What the controller knows of a replica; see the head of this file."""

    NON_EXISTENT = "non-existent"
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"
    DELETION_STARTED = "deletion started"
    DELETION_SUCCESSFUL = "deletion successful"
    DELETION_INELIGIBLE = "deletion ineligible"


REPLICA_MOVES: Mapping[tuple[ReplicaPhase, ReplicaPhase], str] = {
    (ReplicaPhase.NON_EXISTENT, ReplicaPhase.NEW): "was assigned",
    (ReplicaPhase.NEW, ReplicaPhase.ONLINE): "the partition has a leader, or the replica is in sync",
    (ReplicaPhase.NEW, ReplicaPhase.OFFLINE): "was lost, or is to be deleted",
    (ReplicaPhase.ONLINE, ReplicaPhase.OFFLINE): "was lost, is shutting down, or is to be deleted",
    (ReplicaPhase.OFFLINE, ReplicaPhase.ONLINE): "the broker has started",
    (ReplicaPhase.OFFLINE, ReplicaPhase.DELETION_STARTED): "the broker was asked to delete it",
    (ReplicaPhase.OFFLINE, ReplicaPhase.DELETION_INELIGIBLE): "the topic is to be deleted, but the broker is dead",
    (ReplicaPhase.DELETION_STARTED, ReplicaPhase.DELETION_SUCCESSFUL): "the broker has deleted it",
    (ReplicaPhase.DELETION_STARTED, ReplicaPhase.DELETION_INELIGIBLE): "the broker failed, or the topic goes, too",
    (ReplicaPhase.DELETION_INELIGIBLE, ReplicaPhase.OFFLINE): "the deletion is tried again",
    (ReplicaPhase.DELETION_SUCCESSFUL, ReplicaPhase.NON_EXISTENT): "is not assigned any more",
}
"""Every legal move and its reason. A move that is not in the table is an error in the controller."""
