"""The invariant of reassignments, judged at each change of a topic's assignment in the store.

    moves    No old replica leaves, and no reassignment ends, before all of the target were in sync at one time since it
             began. A reassignment that is under way keeps its origin and its target, whoever is the controller, until
             somebody asks for another one; and if its target is in sync and a controller is at work, it ends in time.

A partition that never had a leader has nothing to lose: a reassignment that begins then ends at once, with the first
leader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.history import History, Outcome, Reassignment
from tests.simulation.missteps import Finding, begun_since
from tests.simulation.stored_changes import Assignment, StoredChanges, assignment_of
from tests.simulation.topic_invariants import LATE_US

LONGEST_REQUEST_US = 10_000_000
"""Longer than a client asks for the same thing."""
LONGEST_END_US = 20_000_000
"""A reassignment whose target is in sync ends in this time, while the same controller is at work: the broker that loses
its replica may be cut off for some seconds, and so may the leader."""


class Moves:
    """The reassignments that are under way. `states`: all partitions in the store, as they are after each change."""

    def __init__(self, history: History, states: Mapping[TopicPartition, PartitionState]) -> None:
        self._history = history
        self._states = states
        self._reached: dict[TopicPartition, bool] = {}
        """Whether the target of a reassignment was in sync since it began, or the partition had no leader before."""
        self._targets: dict[TopicPartition, tuple[int, ...]] = {}
        self._ready_since: dict[TopicPartition, int] = {}

    def judge(self, changes: StoredChanges, now_us: int) -> Iterator[Finding]:
        """Judges a transaction, which `states` has already."""
        for key in changes.states:
            self._note_in_sync(key)
        for name, (before, after) in changes.topics.items():
            for number in () if before is None else before.replicas:
                key = TopicPartition(name, number)
                assert before is not None
                earlier = assignment_of(before, number)
                later = None if after is None else assignment_of(after, number)
                if earlier is None or earlier == later:
                    continue
                if later is not None:
                    yield from self._wrong_in(key, earlier, later, now_us)
                    self._follow(key, earlier, later)
                elif after is not None:
                    yield Finding("moves", f"{key} is gone from its topic")
                else:
                    self._forget(key)

    def overdue(self, now_us: int, *, is_controlled: bool) -> Iterator[Finding]:
        """The reassignments that should have ended. `is_controlled`: the same controller as before is at work."""
        for key, target in self._targets.items():
            state = self._states.get(key)
            if not is_controlled or state is None or not {*target} <= {*state.isr}:
                self._ready_since.pop(key, None)
            elif now_us - self._ready_since.setdefault(key, now_us) > LONGEST_END_US:
                self._ready_since[key] = now_us
                yield Finding("moves", f"{key} has {state.isr} in sync for long, and its move to {target} does not end")

    def _note_in_sync(self, key: TopicPartition) -> None:
        target, state = self._targets.get(key), self._states.get(key)
        if target is not None and state is not None and {*target} <= {*state.isr}:
            self._reached[key] = True

    def _wrong_in(self, key: TopicPartition, before: Assignment, after: Assignment, now_us: int) -> Iterator[Finding]:
        state = self._states.get(key)
        if after.target != before.target and not self._was_asked(key, before, after.target, now_us):
            yield Finding("moves", f"{key} moves to {after.target}, and nobody asks for it: {before}")
        if state is None:
            return
        if after.is_moving and {*after.origin} != {*before.origin}:
            yield Finding("moves", f"the move of {key} begins anew from {after.origin}: {before}")
        is_reached = {*after.target} <= {*state.isr} or (
            after.target == before.target and self._reached.get(key, False)
        )
        left = {*before.origin} - {*after.replicas}
        if left and not is_reached:
            yield Finding("moves", f"{sorted(left)} have left {key} before {after.target} are in sync: {state.isr}")
        elif before.is_moving and not after.is_moving and after.target == before.target and not is_reached:
            yield Finding("moves", f"the move of {key} to {after.target} ends, and in sync are {state.isr}")

    def _was_asked(self, key: TopicPartition, before: Assignment, target: tuple[int, ...], now_us: int) -> bool:
        since_us = now_us - LATE_US - LONGEST_REQUEST_US
        return any(
            asked.replicas == target or (asked.replicas is None and target == before.origin)
            for asked in begun_since(self._history, Reassignment, since_us)
            if asked.partition == key and asked.outcome is not Outcome.FAILED
        )

    def _follow(self, key: TopicPartition, before: Assignment, after: Assignment) -> None:
        if not after.is_moving:
            self._forget(key)
        elif after.target != before.target or not before.is_moving:
            self._targets[key] = after.target
            self._reached[key] = key not in self._states
            self._ready_since.pop(key, None)
            self._note_in_sync(key)

    def _forget(self, key: TopicPartition) -> None:
        for known in (self._targets, self._reached, self._ready_since):
            known.pop(key, None)
