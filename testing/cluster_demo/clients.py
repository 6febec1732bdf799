"""The clients of the demo: an idempotent producer with acks=all, and a consumer. They survive the loss of brokers.

A producer sends each record in a request of its own, with at most five in flight. If a request fails, or the connection
is lost, it looks for the leader again and sends everything that is not acknowledged, in order and with the same
sequence numbers: a record that the partition has already is acknowledged, and not stored again (KIP-98).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from odradek.clients.admin.client import AdminClient
from odradek.clients.network_client import NetworkClient
from odradek.clients.network_errors import NetworkError, NodeUnreachable
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.records import Record, build_batch, iter_batches, read_records
from odradek.timer import Clock, SystemClock

PRODUCE_VERSION, FETCH_VERSION, INIT_PRODUCER_ID_VERSION = 8, 11, 1
MOST_IN_FLIGHT = 5
"""A leader recognizes the last five batches of a producer."""
RETRY_S = 0.05
CONNECT_TIMEOUT_MS = 1000
REQUEST_TIMEOUT_MS = 30_000
POLL_MS = 500
ACKNOWLEDGED = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


class Waiting:
    """A record that is not acknowledged. `timestamp_ms`: since 1970; a broker that starts again forgets a producer that
    has written nothing for long (producer.id.expiration.ms).
    """

    __slots__ = ("offered_s", "sequence", "timestamp_ms", "value")

    def __init__(self, sequence: int, value: bytes, offered_s: float, timestamp_ms: int) -> None:
        self.sequence = sequence
        self.value = value
        self.offered_s = offered_s
        self.timestamp_ms = timestamp_ms


class Client:
    """Finds the leader of partition 0 of a topic, again and again until `end` and until nothing is left to do."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.has_ended = False
        self._bootstrap = bootstrap

    async def run(self) -> None:
        """Works until `end`, and until `is_idle`."""
        while not (self.has_ended and self.is_idle):
            with contextlib.suppress(NetworkError, ProtocolError):
                async with self._leader() as leader:
                    await self.use(leader)
            await asyncio.sleep(RETRY_S)

    def end(self) -> None:
        """No more work comes."""
        self.has_ended = True

    @property
    def is_idle(self) -> bool:
        """Whether all work is done."""
        return True

    async def use(self, leader: NetworkClient) -> None:
        """Works with the leader until the end. Raises NetworkError, ProtocolError."""
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def _leader(self) -> AsyncIterator[NetworkClient]:
        async with AdminClient(self._bootstrap, timeout_ms=CONNECT_TIMEOUT_MS) as admin:
            (partition, *_) = (await admin.topic(self.topic)).partitions
            brokers = {broker.broker_id: broker for broker in (await admin.describe_cluster()).brokers}
        broker = brokers.get(partition.leader_id)
        if broker is None:
            raise NodeUnreachable("there is no leader")
        async with await NetworkClient.connect(broker.host, broker.port, timeout_ms=CONNECT_TIMEOUT_MS) as client:
            yield client


class Producer(Client):
    """`acknowledged(record)` is called for each record once."""

    def __init__(
        self, bootstrap: str, topic: str, acknowledged: Callable[[Waiting], object], clock: Clock | None = None
    ) -> None:
        super().__init__(bootstrap, topic)
        self._clock = clock or SystemClock()
        self.waiting: deque[Waiting] = deque()
        """The records that are not acknowledged, in order."""
        self._acknowledged = acknowledged
        self._offered = 0
        self._producer_id = -1
        self._news = asyncio.Event()

    def offer(self, value: bytes) -> None:
        """Sends a record as soon as possible."""
        now_s = asyncio.get_running_loop().time()
        self.waiting.append(Waiting(self._offered, value, now_s, self._clock.wall_ms()))
        self._offered += 1
        self._news.set()

    def end(self) -> None:
        """See Client."""
        super().end()
        self._news.set()

    @property
    def is_idle(self) -> bool:
        """See Client."""
        return not self.waiting

    async def use(self, leader: NetworkClient) -> None:
        """See Client."""
        if self._producer_id < 0:
            asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
            response = await leader.send(asked, version=INIT_PRODUCER_ID_VERSION)
            _check(response.error_code)
            self._producer_id = response.producer_id
        requests: deque[asyncio.Task[Any]] = deque()
        try:
            while not (self.has_ended and self.is_idle):
                self._news.clear()
                while len(requests) < min(MOST_IN_FLIGHT, len(self.waiting)):
                    requests.append(asyncio.create_task(self._send(leader, self.waiting[len(requests)])))
                if requests:
                    await self._first_answer(requests)
                else:
                    await self._news.wait()
        finally:
            for request in requests:
                request.cancel()
            await asyncio.gather(*requests, return_exceptions=True)

    async def _first_answer(self, requests: deque[asyncio.Task[Any]]) -> None:
        """Waits for the first answer, or for something to send."""
        news = asyncio.create_task(self._news.wait())
        await asyncio.wait([requests[0], news], return_when=asyncio.FIRST_COMPLETED)
        news.cancel()
        while requests and requests[0].done():
            code = requests[0].result()
            if code not in ACKNOWLEDGED:
                raise ProtocolError(ErrorCode.of(code))
            requests.popleft()
            self._acknowledged(self.waiting.popleft())

    async def _send(self, leader: NetworkClient, record: Waiting) -> int:
        batch = build_batch(
            [Record(0, record.timestamp_ms, None, record.value)],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=record.sequence,
        )
        data = ProduceRequest.PartitionProduceData(index=0, records=batch)
        topic = ProduceRequest.TopicProduceData(name=self.topic, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=[topic])
        response = await leader.send(request, version=PRODUCE_VERSION, timeout_ms=2 * REQUEST_TIMEOUT_MS)
        code: int = response.responses[0].partition_responses[0].error_code
        return code


class Consumer(Client):
    """`values` is all that was read, in order; `position` is the next offset."""

    def __init__(self, bootstrap: str, topic: str, until: Callable[[Consumer], bool]) -> None:
        """`until(consumer)`: whether it has read everything."""
        super().__init__(bootstrap, topic)
        self.values: list[bytes] = []
        self.position = 0
        self._until = until

    @property
    def is_idle(self) -> bool:
        """See Client."""
        return self._until(self)

    async def use(self, leader: NetworkClient) -> None:
        """See Client."""
        while not (self.has_ended and self.is_idle):
            partition = FetchRequest.FetchPartition(
                partition=0, fetch_offset=self.position, partition_max_bytes=1 << 20
            )
            request = FetchRequest(
                max_wait_ms=POLL_MS,
                min_bytes=1,
                max_bytes=1 << 20,
                session_epoch=-1,
                topics=[FetchRequest.FetchTopic(topic=self.topic, partitions=[partition])],
            )
            response = await leader.send(request, version=FETCH_VERSION)
            (data,) = response.responses[0].partitions
            _check(data.error_code)
            records = bytes(data.records or b"")
            for at, header in iter_batches(records):
                for record in read_records(records, at, header):
                    self.values.append(record.value or b"")
                self.position = header.last_offset + 1


def _check(code: int) -> None:
    if code != ErrorCode.NONE:
        raise ProtocolError(ErrorCode.of(code))
