"""`/api/handovers`: which partitions of a consumer group go from one member to another, and what each waits for.

A partition is on its way from when the target assignment is computed until the member that it is meant for has it:

    not told   its owner has not sent a heartbeat since, or must join again first
    told       its owner has been told to give it up, and must do so before its rebalance timeout
    away       its owner is a static member that left for a while
    free       nobody owns it; the other member gets it with its next heartbeat

Either side may be missing: a partition that nobody owned, or one that nobody is to have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.console.groups import group_of_name
from odradek.broker.console.queries import Query
from odradek.broker.console.selection import Row, listing, rows_of, select, shown
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import ConsumerMember
from odradek.broker.coordinator.group.consumer.timers import StepKey
from odradek.broker.coordinator.group.group import Group
from odradek.broker.metrics.sources import MetricSources
from odradek.purgatory import DelayedOperation
from odradek.purgatory.delayed_step import DelayedStep

_NONE_KEPT: frozenset[int] = frozenset()
_NO_PARTITIONS: Mapping[int, int] = {}


class HandOver(NamedTuple):
    """A partition, the member that must give it up, and the one that waits for it."""

    topic_id: UUID
    partition: int
    giver: ConsumerMember | None
    taker: ConsumerMember | None


def hand_overs(group: ConsumerGroup, pace: Pace) -> Steps[list[HandOver]]:
    """Returns what is on its way in the group. Members that come or go between two steps may be missing."""
    givers: dict[tuple[UUID, int], ConsumerMember] = {}
    takers: dict[tuple[UUID, int], ConsumerMember] = {}
    for member in list(group.members):
        target = group.target_of(member.member_id)
        for topic_id, partitions in member.assigned.items():
            kept = target.get(topic_id, _NONE_KEPT)
            givers.update(dict.fromkeys(((topic_id, each) for each in partitions if each not in kept), member))
            if pace.step_ends(1 + len(partitions)):
                yield
        for topic_id, partitions in member.revoking.items():
            givers.update(dict.fromkeys(((topic_id, each) for each in partitions), member))
            if pace.step_ends(1 + len(partitions)):
                yield
        for topic_id, numbers in target.items():
            given = member.assigned.get(topic_id, _NO_PARTITIONS)
            takers.update(dict.fromkeys(((topic_id, each) for each in numbers if each not in given), member))
            if pace.step_ends(1 + len(numbers)):
                yield
    return [HandOver(*key, givers.get(key), takers.get(key)) for key in {**givers, **takers}]


class Takers:
    """Who waits for what members give up. It looks once at each group."""

    def __init__(self) -> None:
        self._by_giver: dict[ConsumerGroup, dict[str, dict[str, str]]] = {}

    def of(self, operation: DelayedOperation, group: Group | None) -> Steps[Collection[str]]:
        """Returns the client ids of the members that wait for what the member of a DelayedStep gives up."""
        if not isinstance(operation, DelayedStep) or not isinstance(group, ConsumerGroup):
            return ()
        key = operation.watch_keys[0]
        assert isinstance(key, StepKey)
        if group not in self._by_giver:
            self._by_giver[group] = _takers_by_giver((yield from hand_overs(group, Pace())))
        return sorted(self._by_giver[group].get(key.member_id, {}).values())


def _takers_by_giver(moves: Iterable[HandOver]) -> dict[str, dict[str, str]]:
    """Returns, by giver, the client ids of the takers by member id."""
    found: dict[str, dict[str, str]] = {}
    for move in moves:
        if move.giver is not None and move.taker is not None:
            found.setdefault(move.giver.member_id, {})[move.taker.member_id] = move.taker.client_id
    return found


def handovers(sources: MetricSources, query: Query) -> Steps[Row]:
    """Raises BadQuery if there is no such group. A group of another kind hands over nothing here: its leader does."""
    _, group = group_of_name(sources, query.name)
    moves: list[HandOver] = []
    if isinstance(group, ConsumerGroup):
        moves = yield from hand_overs(group, Pace())
    selection = yield from select(moves, lambda move: f"{_topic(sources, move)}-{move.partition:010}", query)
    rows = yield from rows_of(selection, lambda move: _row(sources, group, move))
    return {"name": shown(group.group_id), **listing(query, selection, rows)}


def _topic(sources: MetricSources, move: HandOver) -> str:
    return sources.metadata.topic_name(move.topic_id) or str(move.topic_id)


def _row(sources: MetricSources, group: object, move: HandOver) -> Row:
    assert isinstance(group, ConsumerGroup)
    giver, taker = move.giver, move.taker
    step = None if giver is None else group.step_of(giver.member_id)
    left_ms = None if step is None else max(step.expiration_ms - sources.timer.clock.now_ms(), 0)
    return {
        "topic": shown(_topic(sources, move)),
        "partition": move.partition,
        "state": _state(move),
        "from_member": None if giver is None else shown(giver.member_id),
        "from_client": None if giver is None else shown(giver.client_id),
        "to_member": None if taker is None else shown(taker.member_id),
        "to_client": None if taker is None else shown(taker.client_id),
        "left_ms": left_ms,
    }


def _state(move: HandOver) -> str:
    if move.giver is None:
        return "free"
    if move.giver.is_away:
        return "away"
    return "told" if move.partition in move.giver.revoking.get(move.topic_id, _NO_PARTITIONS) else "not told"
