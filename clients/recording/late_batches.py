"""Batches that a target has, but had not yet when a recorded fetch was answered.

A fetch of the recording may have waited for a batch until it came. The same fetch of a replay may be answered before:
its time is up, or another partition has records. The client of the recording then went on behind the batch, and no
later request asks for it. So it is fetched once more, by its partition and offset.

(A) The target's broker waits for the batch as long as a response may take. If it does not come, later fetches of the
    partition do not wait: a recording of data that the target lacks does not take a timeout for each batch.
(B) What cannot be fetched stays missing. The comparison says so.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from odradek.clients.network_errors import NetworkError
from odradek.clients.recording.addresses import Address
from odradek.clients.recording.fetched import Fetched, Of, Offsets
from odradek.clients.recording.streams import Dial, Stream
from odradek.clients.recording.streams import asked as ask
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse

LAST_WITH_NAMES = 12
"""From the next version on, Fetch has topics by their ids."""
FIRST_WITH_ISOLATION = 4
MOST_BYTES = 1 << 20


class Reader(NamedTuple):
    """How a connection of the recording has fetched. `version` is that of its request."""

    version: int
    isolation_level: int


class LateBatches:
    """Adds them to `fetched`. It has a connection of its own to each broker."""

    def __init__(self, fetched: Fetched, dial: Dial, timeout_s: float) -> None:
        self._fetched = fetched
        self._dial = dial
        self._timeout_s = timeout_s
        self._streams: dict[Address, Stream] = {}
        self._absent: set[tuple[str, int]] = set()
        """Partitions for which was waited in vain (A)."""

    async def fetch(self, address: Address, reader: Reader, wanted: Offsets) -> None:
        """Fetches those of the wanted batches that are missing."""
        missing = self._fetched.missing(wanted)
        try:
            for of, offsets in missing.items():
                async with asyncio.timeout(2 * self._timeout_s):
                    await self._fetch_partition(await self._stream(address), of, offsets, reader)
        except (NetworkError, OSError, TimeoutError):
            if stream := self._streams.pop(address, None):
                stream.abort()

    async def stop(self) -> None:
        """Closes its connections."""
        for stream in self._streams.values():
            stream.abort()
        self._streams.clear()

    async def _stream(self, address: Address) -> Stream:
        if address not in self._streams:
            self._streams[address] = await self._dial.connect(*address)
        return self._streams[address]

    async def _fetch_partition(self, stream: Stream, of: Of, offsets: list[int], reader: Reader) -> None:
        offset: int | None = offsets[0]
        version = min(reader.version, LAST_WITH_NAMES)
        while offset is not None and offset <= offsets[-1]:
            response: FetchResponse = await ask(stream, self._request(of, offset, reader), version)
            records: Any = response.responses[0].partitions[0].records
            offset = self._fetched.add_late(of, offsets, bytes(records or b""))
        if offset is None:
            self._absent.add((of.topic, of.partition))

    def _request(self, of: Of, offset: int, reader: Reader) -> FetchRequest:
        partition = FetchRequest.FetchPartition(
            partition=of.partition, fetch_offset=offset, partition_max_bytes=MOST_BYTES
        )
        is_absent = (of.topic, of.partition) in self._absent
        return FetchRequest(
            max_wait_ms=0 if is_absent else int(self._timeout_s * 1000),
            min_bytes=1,
            isolation_level=reader.isolation_level if reader.version >= FIRST_WITH_ISOLATION else 0,
            topics=[FetchRequest.FetchTopic(topic=of.topic, partitions=[partition])],
        )
