"""`/api/connections`: the connections of clients and other brokers."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.background.stepwise import Steps
from odradek.broker.console.queries import Query
from odradek.broker.console.requesters import client_ids
from odradek.broker.console.selection import Row, listing, rows_of, select, shown
from odradek.broker.metrics.sources import MetricSources
from odradek.broker.network.connection import (
    ENDING,
    HELD,
    IN_FLIGHT,
    QUEUED,
    THROTTLED,
    WRITING,
    YIELDING,
    Connection,
)

NOT_READ = {
    WRITING: "the client does not take its responses",
    IN_FLIGHT: "too much is in flight",
    HELD: "the next request waits for a parked one",
    THROTTLED: "throttled",
    ENDING: "ends when all is answered",
    YIELDING: "yields its turn",
    QUEUED: "all connections together have sent too much",
}


def connections(sources: MetricSources, query: Query) -> Steps[Row]:
    """A search looks at the address, the principal and the client's software."""
    names = yield from client_ids(sources)
    everything: Iterable[Connection] = list(sources.socket_server.connections)
    selection = yield from select(everything, _name, query)
    now_ms = sources.timer.clock.now_ms()
    rows = yield from rows_of(selection, lambda connection: _row(connection, now_ms, names))
    return listing(query, selection, rows)


def _name(connection: Connection) -> str:
    info = connection.info
    return f"{info.client_host}:{info.client_port} {info.principal} {' '.join(info.client_software or ())}"


def _row(connection: Connection, now_ms: int, names: dict[int, str | None]) -> Row:
    info = connection.info
    software = info.client_software
    client_id = names.get(info.number)
    return {
        "number": info.number,
        "id": shown(info.connection_id),
        "listener": info.listener.name,
        "security_protocol": info.listener.security_protocol,
        "address": f"{info.client_host}:{info.client_port}",
        "principal": shown(info.principal),
        "client_id": None if client_id is None else shown(client_id),
        "software": None if software is None else shown(software[0]),
        "software_version": None if software is None else shown(software[1]),
        "silent_ms": max(now_ms - connection.last_active_ms, 0),
        "unanswered": connection.unanswered,
        "in_flight_bytes": connection.in_flight_bytes,
        "not_read": [reason for bit, reason in NOT_READ.items() if connection.blocked & bit],
    }
