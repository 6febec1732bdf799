"""What coordinators have told the members of consumer groups in their responses to heartbeats (KIP-848).

When a member is told a new assignment is a matter of timing: a coordinator computes one at most once in
group.consumer.assignment.interval.ms, resolves regular expressions beside the requests, and waits for other members. So
a replay compares only the last assignment that a member was told before it left. If a target has not told a member yet
what the recorded cluster told it, the heartbeat is sent again, once in vain at most: then the member is not waited for
any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from odradek.clients.recording.decoding import Document

JOINING = 0
Assignment = dict[str, list[int]]
"""Partitions, ascending, by topic."""


class Member(NamedTuple):
    group: str
    member_id: str


class Beat(NamedTuple):
    """A heartbeat. `epoch` is that of the recording, or of what was sent to a target."""

    member: Member
    epoch: int
    is_static: bool

    @property
    def leaves(self) -> bool:
        return self.epoch < JOINING

    def answered(self, recorded: Document) -> Beat:
        """Returns it with the member id of the response, if the broker has made that."""
        made = recorded.get("MemberId")
        return self._replace(member=Member(self.member.group, made)) if made and not self.member.member_id else self

    def may_be_repeated(self, response: Document) -> bool:
        """Whether the member is where it was: a static member that joins is known by its first heartbeat."""
        if has_failed(response):
            return False
        return not self.is_static if self.epoch == JOINING else bool(response["MemberEpoch"] == self.epoch)


def beat_of(request: Document) -> Beat:
    """Returns what is remembered of a ConsumerGroupHeartbeat request."""
    member = Member(request["GroupId"], request["MemberId"])
    return Beat(member, request["MemberEpoch"], request["InstanceId"] is not None)


class Told:
    """The last assignment of each member, of the recording or of a target. `name_of` returns the name of a topic."""

    def __init__(self, name_of: Callable[[str], str]) -> None:
        self._name_of = name_of
        self._last: dict[Member, Assignment] = {}
        self.in_vain: set[Member] = set()
        """Those that are not waited for any more."""

    def with_response(self, member: Member, response: Document) -> Assignment:
        """Returns what a member has been told when it has got a response."""
        assignment = response.get("Assignment")
        if assignment is None:
            return self.last(member)
        topics = assignment["TopicPartitions"]
        return {self._name_of(topic["TopicId"]): sorted(topic["Partitions"]) for topic in topics}

    def add(self, member: Member, response: Document) -> None:
        self._last[member] = self.with_response(member, response)

    def last(self, member: Member) -> Assignment:
        return self._last.get(member, {})

    def pop(self, member: Member) -> Assignment:
        """Returns the last assignment of a member that leaves, and forgets it."""
        return self._last.pop(member, {})

    def members(self) -> list[Member]:
        return list(self._last)


def is_enough(beat: Beat, recorded: Document, sent: Beat, response: Document, told: Told, wanted: Assignment) -> bool:
    """Whether a member was told at least what it was in the recording, which is `wanted`. `response` has the ids of the
    recording, but for its epoch, `told` what the target has told before.
    """
    if has_failed(recorded) or has_failed(response) or beat.member in told.in_vain:
        return True
    if recorded["MemberEpoch"] != beat.epoch and response["MemberEpoch"] == sent.epoch:
        return False
    if recorded["Assignment"] is None:
        return True
    found = told.with_response(beat.member, response)
    if beat.epoch == JOINING:
        return all(set(partitions) <= set(found.get(topic, ())) for topic, partitions in wanted.items())
    return found == wanted


def has_failed(response: Document) -> bool:
    """Whether a response has an error, or is none."""
    return bool(response.get("ErrorCode", -1))
