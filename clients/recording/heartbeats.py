"""Heartbeats of consumer groups that tell a member less than the recorded ones did (KIP-848).

A coordinator computes an assignment at most once in group.consumer.assignment.interval.ms, and resolves regular
expressions beside the requests. A replay that does not pause may ask before that. Then the heartbeat is sent again: it
changes nothing for a member that has what it was told.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from odradek.clients.recording.decoding import Document

JOINING = 0


class Beat(NamedTuple):
    """A heartbeat as it was recorded and as it was sent. Only a dynamic member may join again."""

    recorded_epoch: int
    sent_epoch: int
    is_dynamic: bool

    def is_behind(self, recorded: Document, response: Document) -> bool:
        """Whether the recorded response tells the member its next epoch or partitions, and the target's does not."""
        if any(each.get("ErrorCode", -1) for each in (recorded, response)):
            return False
        more = bool(_topics(recorded)) and not _topics(response)
        if self.sent_epoch == JOINING:
            return self.is_dynamic and more
        if response["MemberEpoch"] != self.sent_epoch:
            return False
        is_told_nothing = response["Assignment"] is None and recorded["Assignment"] is not None
        return more or is_told_nothing or recorded["MemberEpoch"] != self.recorded_epoch


def beat_of(recorded: Document, sent: Document) -> Beat:
    """Returns what is remembered of a ConsumerGroupHeartbeat request."""
    return Beat(recorded["MemberEpoch"], sent["MemberEpoch"], recorded["InstanceId"] is None)


def _topics(response: Document) -> list[Any]:
    assignment = response["Assignment"]
    return [] if assignment is None else list(assignment["TopicPartitions"])
