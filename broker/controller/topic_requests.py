"""Requests to create and delete topics, and to add partitions.

    (A) A request for many topics is split into several events, so that others can run in between.
    (B) Each request runs as its own task. When its timeout passes, the client receives REQUEST_TIMED_OUT and the change
        continues. As in Kafka, a timeout of 0 or less means: start the change and do not wait.
    (C) A request is answered when this broker has carried out what was sent to it, so that a client that asks this
        broker next sees the change. If this broker cannot create a log, the client sees that, too. It does not wait for
        other brokers.

Items that fail are returned as ProtocolError values, because the items of a request fail independently. Source: Kafka's
`ZkAdminManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from odradek.broker.background.tasks import Spawn
from odradek.broker.controller.request_waits import RequestWaits
from odradek.broker.controller.term import Term
from odradek.broker.controller.terms import Terms, not_controller
from odradek.broker.controller.topic_planner import PlannedTopic, pieces
from odradek.broker.metadata.new_topic import NewPartitions, NewTopic
from odradek.protocol.errors import ErrorCode, ProtocolError


class TopicRequests:
    """The requests to the controller with this `terms`."""

    def __init__(self, terms: Terms, waits: RequestWaits, spawn: Spawn) -> None:
        self._terms = terms
        self._waits = waits
        self._spawn = spawn

    async def create(
        self, topics: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool = False
    ) -> list[PlannedTopic | ProtocolError]:
        """Creates topics. Returns, per topic in order, what was (or would be) created, or the error: the codes of
        `Planner.topic`, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR, NOT_CONTROLLER.
        """
        names = [topic.name for topic in topics]
        change = partial(self._create, topics)
        return await self._asked(
            names, change, timeout_ms, validate_only=validate_only, plan=lambda term: term.topics.plan(topics)
        )

    async def delete(self, names: Sequence[str], *, timeout_ms: int) -> list[ProtocolError | None]:
        """Deletes topics. Returns, per name in order, None, or UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT,
        KAFKA_STORAGE_ERROR, NOT_CONTROLLER. A topic with replicas on brokers that are dead is deleted later.
        """
        return await self._asked(names, lambda _: self._delete(names), timeout_ms)

    async def add_partitions(
        self, additions: Sequence[NewPartitions], *, timeout_ms: int, validate_only: bool = False
    ) -> list[ProtocolError | None]:
        """Adds partitions. Returns, per topic in order, None, or the reason why no partitions were added."""
        names = [addition.topic for addition in additions]
        change = partial(self._add_partitions, additions)
        return await self._asked(
            names,
            change,
            timeout_ms,
            validate_only=validate_only,
            plan=lambda term: term.topics.plan_partitions(additions),
        )

    async def _asked(
        self,
        names: Sequence[str],
        change: Callable[[bool], Coroutine[Any, Any, list[Any]]],
        timeout_ms: int,
        *,
        validate_only: bool = False,
        plan: Callable[[Term], Awaitable[list[Any]]] | None = None,
    ) -> list[Any]:
        """Starts a change if this broker is the controller, and waits for it (B). `plan` returns what is wrong with
        each item, if nobody waits for the change.
        """
        term = self._terms.term
        if term is None:
            return [not_controller() for _ in names]
        if plan is not None and timeout_ms <= 0 and not validate_only:
            planned = await plan(term)
            self._spawn(change(False), "change of metadata")
            return [each if isinstance(each, ProtocolError) else _begun() for each in planned]
        return await self._within(timeout_ms, change(validate_only), validate_only, names)

    # The changes

    async def _create(self, topics: Sequence[NewTopic], validate_only: bool) -> list[PlannedTopic | ProtocolError]:
        if validate_only:
            return await self._each(topics, lambda term: term.topics.plan(topics))
        results: list[PlannedTopic | ProtocolError] = []
        for some in pieces(topics):
            results += await self._each(some, partial(_create, some))
        await self._terms.own_answered()
        return results

    async def _delete(self, names: Sequence[str]) -> list[ProtocolError | None]:
        try:
            refused = await self._terms.ask("deletion of topics", lambda term: term.deletions.mark(names))
        except ProtocolError as error:
            return [error for _ in names]
        if self._terms.term is not None:
            await self._terms.term.deletions.ended([name for name in names if name not in refused])
        await self._terms.own_answered()
        return [refused.get(name) for name in names]

    async def _add_partitions(
        self, additions: Sequence[NewPartitions], validate_only: bool
    ) -> list[ProtocolError | None]:
        if validate_only:
            return await self._each(additions, lambda term: term.topics.plan_partitions(additions))
        results = await self._each(additions, lambda term: term.topics.add_partitions(additions))
        await self._terms.own_answered()
        return results

    async def _each(self, items: Sequence[Any], work: Callable[[Term], Awaitable[list[Any]]]) -> list[Any]:
        """Runs an event. If it fails, each item fails."""
        try:
            return await self._terms.ask("change of topics", work)
        except ProtocolError as error:
            return [error for _ in items]

    async def _within(
        self, timeout_ms: int, change: Coroutine[Any, Any, list[Any]], validate_only: bool, topics: Sequence[str]
    ) -> list[Any]:
        """Runs `change` and waits for at most `timeout_ms` (case B)."""
        task = self._spawn(change, "change of metadata")
        if validate_only or not topics:
            return await asyncio.shield(task)
        if timeout_ms > 0:
            await self._waits.topic_change(task, timeout_ms, topics)
        return task.result() if task.done() else [_begun() for _ in topics]


async def _create(topics: Sequence[NewTopic], term: Term) -> list[PlannedTopic | ProtocolError]:
    return await term.topics.create(topics)


def _begun() -> ProtocolError:
    return ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "The change was started and continues in the background")
