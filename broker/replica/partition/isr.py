"""The in-sync replicas (ISR) of a partition that this broker leads: what the controller has confirmed, and what the
leader has proposed. (KIP-497)

| state      | `committed`       | `maximal`                              | `proposal`                |
|------------|-------------------|----------------------------------------|---------------------------|
| committed  | the confirmed ISR | the confirmed ISR                      | None                      |
| expanding  | the confirmed ISR | with the replica that is to join       | waits for its answer      |
| shrinking  | the confirmed ISR | the confirmed ISR: those to leave count | waits for its answer      |

(A) `min.insync.replicas` counts the committed ISR. The high watermark waits for the maximal one: whichever of the two
    the controller knows when it elects the next leader, every member has all that was acknowledged.
(B) There is one proposal at a time. A new assignment from the controller ends it; its answer is then outdated.
(C) An answer has one of these effects:

| answer                                                | the controller has            | next state                 |
|-------------------------------------------------------|-------------------------------|----------------------------|
| the new ISR                                           | applied it                    | committed, with that ISR   |
| OPERATION_NOT_ATTEMPTED, INELIGIBLE_REPLICA           | the same state, and refused   | committed, as before       |
| FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION,          | a newer state, maybe with the | unchanged until that state |
| NEW_LEADER_ELECTED                                    | proposal, and will send it    | arrives                    |
| UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,         | no such state                 | unchanged until any        |
| INVALID_REQUEST                                       |                               | assignment arrives         |
| any other error                                       | not answered                  | unchanged; it is sent again |

Source: Kafka's PartitionState (CommittedPartitionState, PendingExpandIsr, PendingShrinkIsr), Partition's
handleAlterPartitionError.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

REFUSALS = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
OVERTAKEN = frozenset(
    {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NEW_LEADER_ELECTED},
)
OUTDATED = OVERTAKEN | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_REQUEST}


class IsrProposal(NamedTuple):
    """The ISR that the leader of `leader_epoch` wants instead of the one with `partition_epoch`."""

    topic_partition: TopicPartition
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class CommittedIsr(NamedTuple):
    """The controller's answer: the ISR that it has stored, with its epochs."""

    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


IsrAnswer = CommittedIsr | ErrorCode


class IsrStats:
    """Counts the changes of ISRs since the start, as Kafka's IsrShrinksPerSec, IsrExpandsPerSec, FailedIsrUpdatesPerSec
    do.
    """

    __slots__ = ("expands", "failed_updates", "shrinks")

    def __init__(self) -> None:
        self.shrinks = 0
        self.expands = 0
        self.failed_updates = 0


class Isr:
    """The states above. `is_outdated`: the proposal is not sent again, and only an assignment ends it; `is_overtaken`:
    only a newer one.
    """

    __slots__ = ("committed", "is_outdated", "is_overtaken", "maximal", "proposal")

    def __init__(self) -> None:
        self.committed: tuple[int, ...] = ()
        self.maximal: tuple[int, ...] = ()
        self.proposal: IsrProposal | None = None
        self.is_outdated = False
        self.is_overtaken = False

    def commit(self, isr: tuple[int, ...]) -> None:
        """The controller has this ISR: an assignment, or the answer to the proposal."""
        self.committed = self.maximal = isr
        self.proposal = None
        self.is_outdated = self.is_overtaken = False

    def propose(self, proposal: IsrProposal) -> None:
        """Begins to expand or to shrink (B)."""
        assert self.proposal is None
        self.proposal = proposal
        if len(proposal.isr) > len(self.committed):
            self.maximal = proposal.isr

    def refuse(self, error: ErrorCode) -> None:
        """The proposal was answered with an error (C)."""
        if error in REFUSALS:
            self.commit(self.committed)
        elif error in OUTDATED:
            self.is_outdated = True
            self.is_overtaken = error in OVERTAKEN

    def assigned_again(self) -> None:
        """The controller has sent the assignment that is known. It has not applied a proposal that it did not know. But
        if it has a newer state, this request was on its way before, and says nothing about the proposal.
        """
        if self.is_outdated and not self.is_overtaken:
            self.commit(self.committed)

    def check(self) -> None:
        """Asserts that the fields are those of one state of the table."""
        proposal, committed, maximal = self.proposal, set(self.committed), set(self.maximal)
        assert len(committed) == len(self.committed), f"a replica is in {self.committed} twice"
        assert self.is_outdated or not self.is_overtaken, "a proposal is overtaken, but not outdated"
        if proposal is None:
            assert maximal == committed, (
                f"{self.maximal} counts as in sync, and nothing but {self.committed} is proposed"
            )
            assert not self.is_outdated, "there is no proposal that could be outdated"
        elif len(proposal.isr) > len(committed):
            assert committed < set(proposal.isr) == maximal, (
                f"{self.committed} expands to {proposal.isr}, not {maximal}"
            )
        else:
            assert set(proposal.isr) < committed == maximal, (
                f"{self.committed} shrinks to {proposal.isr}, not {maximal}"
            )
