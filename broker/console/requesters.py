"""For whom an operation waits: the client of the parked request, or the members of the group."""

from __future__ import annotations

from itertools import islice

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.console.groups import find_group
from odradek.broker.console.selection import Row, shown
from odradek.broker.coordinator.group.group import Group, GroupMember
from odradek.broker.metrics.sources import MetricSources
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.api_keys import ApiKey
from odradek.purgatory import DelayedOperation, DelayedOperationPurgatory
from odradek.purgatory.delayed_heartbeat import DelayedHeartbeat
from odradek.purgatory.delayed_join import DelayedJoin
from odradek.purgatory.delayed_step import DelayedStep
from odradek.purgatory.delayed_sync import DelayedSync

MOST_CLIENTS = 5
MOST_LOOKED_AT = 20_000
"""Operations of a purgatory that one request looks at; the others are only counted."""
OF_GROUPS = (DelayedHeartbeat, DelayedJoin, DelayedSync, DelayedStep)


def purgatories(sources: MetricSources) -> list[DelayedOperationPurgatory]:
    manager, waits = sources.replica_manager, sources.group_coordinator.waits
    return [
        manager.produce_purgatory,
        manager.fetch_purgatory,
        manager.delete_records_purgatory,
        waits.heartbeat,
        waits.rebalance,
        sources.topic_purgatory,
        sources.election_purgatory,
    ]


def waiting_in(purgatory: DelayedOperationPurgatory, pace: Pace) -> Steps[list[DelayedOperation]]:
    """Returns the operations that wait, each once, at most MOST_LOOKED_AT; the order is the watcher lists'."""
    found: list[DelayedOperation] = []
    looked_at = 0
    for watchers in purgatory.lists():
        for operation in watchers.operations[: MOST_LOOKED_AT - looked_at]:
            looked_at += 1
            is_over = operation.is_completed or operation.is_cancelled
            if not is_over and operation.watch_keys and operation.watch_keys[0] == watchers.key:
                found.append(operation)
            if pace.step_ends():
                yield
        if looked_at >= MOST_LOOKED_AT:
            break
        if pace.step_ends():
            yield
    return found


def client_ids(sources: MetricSources) -> Steps[dict[int, str | None]]:
    """Returns the client ids of requests that wait, by the numbers of their connections, which have none themselves."""
    found: dict[int, str | None] = {}
    pace = Pace()
    for purgatory in purgatories(sources):
        for operation in (yield from waiting_in(purgatory, pace)):
            if isinstance(operation.requester, RequestContext):
                found[operation.requester.connection.number] = operation.requester.client_id
            if pace.step_ends():
                yield
    return found


def group_of(sources: MetricSources, operation: DelayedOperation) -> Group | None:
    """The group that the operation waits for; None for those of requests, and if the group is gone."""
    if not isinstance(operation, OF_GROUPS):
        return None
    key = operation.watch_keys[0]
    assert isinstance(key, tuple)
    found = find_group(sources, key[0])
    return None if found is None else found[1]


def clients_of(operation: DelayedOperation, group: Group | None) -> list[Row]:
    """Returns for whom the operation waits. The list is empty if nobody knows: changes of topics and elections are the
    controller's, for requests that may have come to another broker.
    """
    requester = operation.requester
    if isinstance(requester, RequestContext):
        return [_of_request(requester)]
    if group is None:
        return []
    if isinstance(operation, (DelayedHeartbeat, DelayedStep)):
        key = operation.watch_keys[0]
        assert isinstance(key, tuple)
        member = group.member(key[1])
        return [] if member is None else [_of_member(member)]
    waiting = (member for member in list(group.members) if member.waits_for is not None)
    return [_of_member(member) for member in islice(waiting, MOST_CLIENTS)]


def _of_request(request: RequestContext) -> Row:
    connection = request.connection
    return {
        "client_id": None if request.client_id is None else shown(request.client_id),
        "address": f"{connection.client_host}:{connection.client_port}",
        "connection": connection.number,
        "principal": shown(connection.principal),
        "request": f"{ApiKey(request.api_key).name} v{request.api_version}",
        "correlation_id": request.correlation_id,
        "member_id": None,
    }


def _of_member(member: GroupMember) -> Row:
    return {
        "client_id": shown(member.client_id),
        "address": shown(member.client_host),
        "connection": None,
        "principal": None,
        "request": member.waits_for,
        "correlation_id": None,
        "member_id": shown(member.member_id),
    }
