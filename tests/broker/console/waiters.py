"""Requests that wait for a long time, on connections of their own."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.groups import JoinGroupRequest
from odradek.protocol.schema import Message
from tests.wire.blocking_client import RawClient
from tests.wire.frames import request_payload

LONG_MS = 600_000
EVIL = "<img src=x onerror=\"window.hacked='yes'\">"
"""A name that would run as a script in a page that parses it."""


def fetch_of(*partitions: tuple[str, int, int], min_bytes: int = 1, wait_ms: int = LONG_MS) -> FetchRequest:
    """A fetch without a session, of (topic, partition, offset), that waits."""
    topics = [
        FetchRequest.FetchTopic(
            topic=topic,
            partitions=[
                FetchRequest.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
            ],
        )
        for topic, number, offset in partitions
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=topics,
        forgotten_topics_data=[],
        rack_id="",
    )


def join_of(group: str) -> JoinGroupRequest:
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=struct.pack(">hii", 0, 0, 0))]
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=LONG_MS,
        member_id="",
        protocol_type="consumer",
        protocols=protocols,
    )


@contextmanager
def waiting_clients(bootstrap: str, *requests: tuple[Message, int, str]) -> Iterator[list[RawClient]]:
    """Sends each (request, version, client id) on a connection of its own."""
    clients: list[RawClient] = []
    try:
        for request, version, client_id in requests:
            client = RawClient(bootstrap)
            clients.append(client)
            client.send(request_payload(request, version, client_id=client_id))
        yield clients
    finally:
        for client in clients:
            client.socket.close()
