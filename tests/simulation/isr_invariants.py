"""The invariants of leaders and in-sync replicas (ISR), judged at each change of a partition's state in the store.

    leaders    The leader is in sync. A new one was in sync before, is alive and not shutting down. Only where the topic
               allows it, and nobody who was in sync may lead, another replica does, alone.
    epochs     The leader epoch never falls, and rises with each change of the leader. A state has the epoch of the
               controller that is in office.
    members    The ISR is never empty, and has only replicas. Only its leader adds to it, in its own epoch, what it
               proposes at that moment: brokers that are alive and not shutting down.
    on disk    What is below a leader's high watermark is in the log of every in-sync replica; on its disk, if the seed
               syncs before it acknowledges.

Who is alive is what the controller in office knows: `heard` judges whether it knows what is true.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from odradek.broker.metadata.metadata_cache import NO_LEADER, PartitionState
from tests.simulation.missteps import Finding
from tests.simulation.proposal_history import Proposal


class Facts(NamedTuple):
    """What else was so at the moment of a change. `alive`, and `electable`: who may lead, as the controller knows;
    None: no controller is there any more. `proposed`: the ISR that the leader of this epoch proposes; None: it is not
    there, or not that leader any more. `late`: what somebody has proposed who may not, if it is this ISR;
    `registration`: the epoch in which that broker is registered."""

    replicas: Collection[int]
    controller_epoch: int
    allows_unclean: bool = False
    alive: Collection[int] | None = None
    electable: Collection[int] | None = None
    proposed: Collection[int] | None = None
    late: Proposal | None = None
    registration: int = -1


def wrong_in(before: PartitionState | None, after: PartitionState, facts: Facts) -> Iterator[Finding]:
    """Judges the change of a partition's state; `before` is None if it is new."""
    yield from _wrong_in_epochs(before, after, facts)
    yield from _wrong_in_itself(after, facts)
    if before is None:
        return
    if after.leader_epoch > before.leader_epoch:
        yield from _wrong_in_election(before, after, facts)
    else:
        yield from _wrong_in_proposal(before, after, facts)


def _wrong_in_epochs(before: PartitionState | None, after: PartitionState, facts: Facts) -> Iterator[Finding]:
    if after.controller_epoch != facts.controller_epoch:
        text = (
            f"a controller of epoch {after.controller_epoch} has written, that of {facts.controller_epoch} is in office"
        )
        yield Finding("epochs", text)
    if before is None:
        return
    if after.leader_epoch < before.leader_epoch:
        yield Finding("epochs", f"the leader epoch falls from {before.leader_epoch} to {after.leader_epoch}")
    if after.leader != before.leader and after.leader_epoch == before.leader_epoch:
        yield Finding("epochs", f"leader {after.leader} follows {before.leader} in the same epoch {after.leader_epoch}")


def _wrong_in_itself(after: PartitionState, facts: Facts) -> Iterator[Finding]:
    if not after.isr:
        yield Finding("members", "nobody is in sync")
    if not set(after.isr) <= {*facts.replicas}:
        yield Finding("members", f"in sync are {after.isr}, the replicas are {facts.replicas}")
    if after.leader not in (NO_LEADER, *after.isr):
        yield Finding("leaders", f"the leader {after.leader} is not in sync: {after.isr}")


def _wrong_in_election(before: PartitionState, after: PartitionState, facts: Facts) -> Iterator[Finding]:
    joined = {*after.isr} - {*before.isr}
    is_unclean = after.isr == (after.leader,) and facts.allows_unclean
    if joined and not is_unclean:
        yield Finding("leaders", f"a controller counts {sorted(joined)} as in sync, who were not: {before.isr}")
    if facts.electable is None:
        return
    if joined and is_unclean and {*before.isr} & {*facts.electable}:
        yield Finding("leaders", f"{after.leader} leads uncleanly, while of {before.isr} may lead {facts.electable}")
    if after.leader not in (NO_LEADER, before.leader, *facts.electable):
        yield Finding("leaders", f"{after.leader} leads, and only {facts.electable} may")


def _wrong_in_proposal(before: PartitionState, after: PartitionState, facts: Facts) -> Iterator[Finding]:
    joined = {*after.isr} - {*before.isr}
    if facts.alive is not None and not joined <= {*facts.alive, after.leader}:
        yield Finding("members", f"{sorted(joined)} have joined, and only {facts.alive} are alive")
    elif facts.electable is not None and not joined <= {*facts.electable, after.leader}:
        yield Finding("members", f"{sorted(joined)} have joined, who stop or have no disk: {facts.electable} may lead")
    if facts.proposed is not None and sorted(facts.proposed) != sorted(after.isr) != sorted(before.isr):
        yield Finding("members", f"{after.isr} are in sync, {_why_not(before, facts.late, facts.registration)}")


def _why_not(before: PartitionState, late: Proposal | None, registration: int) -> str:
    """Why nobody may have proposed this ISR."""
    if late is None:
        return "which the leader does not propose"
    if late.leader_epoch != before.leader_epoch:
        return f"proposed in leader epoch {late.leader_epoch}, which is {before.leader_epoch}"
    if late.broker_id != before.leader:
        return f"proposed by broker {late.broker_id}, and {before.leader} leads"
    if late.broker_epoch != registration:
        return f"proposed in registration {late.broker_epoch}, which is {registration}"
    return f"proposed in partition epoch {late.partition_epoch}, which is {before.partition_epoch}"
