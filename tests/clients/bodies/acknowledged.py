"""Produces batches as they are, and tells which ones the broker has acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.headers import response_header_version
from odradek.protocol.messages.produce import ProduceResponse
from odradek.protocol.records import read_batch_header, read_records
from tests.clients.bodies.mutator import Body
from tests.clients.bodies.readers import checksum
from tests.scenarios.hostile_batches import produce_of
from tests.wire.blocking_client import RawClient
from tests.wire.frames import request_payload

VERSION = 8
IN_FLIGHT = 20


@dataclass(frozen=True, slots=True)
class Answer:
    topic: str
    body: Body
    code: ErrorCode
    base_offset: int

    def checksums(self) -> dict[int, int]:
        """The checksum of each record by its offset in the log."""
        batch = self.body.batch
        return {
            self.base_offset + record.offset: checksum(record.key, record.value)
            for record in read_records(batch, 0, read_batch_header(batch))
        }


def answers(bootstrap: str, bodies: Iterable[tuple[str, Body]]) -> Iterator[Answer]:
    """Sends each body as a batch to partition 0 of its topic, several at a time, and yields the answers in order."""
    waiting: deque[tuple[str, Body]] = deque()
    with RawClient(bootstrap, 30) as client:
        for topic, body in bodies:
            client.send(request_payload(produce_of(topic, [body.batch]), VERSION))
            waiting.append((topic, body))
            if len(waiting) == IN_FLIGHT:
                yield _answer(client, *waiting.popleft())
        while waiting:
            yield _answer(client, *waiting.popleft())


def _answer(client: RawClient, topic: str, body: Body) -> Answer:
    start = 4 + response_header_version(ApiKey.PRODUCE, VERSION)
    response: ProduceResponse = decode(ProduceResponse, VERSION, client.receive(), start)
    answer = response.responses[0].partition_responses[0]
    return Answer(topic, body, ErrorCode(answer.error_code), answer.base_offset)
